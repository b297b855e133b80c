"""Answers from scores: what taught an answer, what harms, leaks and mixes.

audit      Evaluation items that the training data contain, or nearly contain.
chance     Nearest examples of an answer, compared with those of answers that nothing taught.
clean      Training examples that are likely wrong, repeated, odd or harmful; with reasons.
copied     Word sequences of an answer that the training data hold.
likeness/  How near examples are, by words and by meaning.
mix        How to mix sources for a target: weights with intervals, and drawn examples.
proof      The result of a proof: effects, their intervals, a sentence.
reading    Read results of asking an index, and answers, whatever their kind.
spread     All scores of queries, streamed exactly; each query's mean and deviation.
texts      Examples of an index: their words, n-grams, templates and records.
together   One question for a set of queries: what helps, or harms, all of them.
verdict    The verdict on each answer: whether an example stands out as what taught it.
"""
