"""Answers from scores: what taught an answer, what harms, leaks and mixes.

answer       What all answers share: a JSON form, written and read back.
audit        Evaluation items that the training data contain, or nearly contain.
clean        Training examples that are likely wrong, repeated, odd or harmful; with reasons.
containment  Which texts an example contains, by shares of their word n-grams.
duplicates   Near duplicates by words, found exactly, without hashing into sketches.
explain      Which training examples taught an answer, or in place of a better one.
harm         What harms queries, beside their own spread; one question for a whole set.
meaning      Embeddings that an index holds already, and the nearest of them.
mix          How to mix sources for a target: weights with intervals.
neighbours   Nearest examples by meaning: who disagrees with them, who has none.
spread       All scores of queries, streamed exactly; each query's mean and deviation.
texts        Examples of an index as words: normalised, and their n-grams.
"""
