"""Answers from scores: what taught an answer, what harms, leaks and mixes.

audit      Evaluation items that the training data contain, or nearly contain.
chance     Nearest examples of an answer, compared with those of answers that nothing taught.
clean      Training examples that are likely wrong, repeated, odd or harmful; with reasons.
copied     Word sequences of an answer that the training data hold.
likeness/  How near examples are, by words and by meaning.
mix        How to mix sources for a target: weights with intervals, and drawn examples.
proof      The result of a proof: effects, their intervals, a sentence.
reading    Read results and answers of any kind.
spread     Mean, deviation and ends of each query's scores, streamed exactly.
texts      Examples of an index: their words, n-grams, templates and records.
together   Examples that help, or harm, a whole set of queries most.
verdict    The verdict on each answer: whether an example stands out as what taught it.
"""
