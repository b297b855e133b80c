"""Answers from scores: what taught an answer, what harms, leaks and mixes.

answer       The base of all answers: a result, with what is told beside it.
audit        Evaluation items that the training data contain, or nearly contain.
clean        Training examples that are likely wrong, repeated, odd or harmful; with reasons.
explain      Which training examples taught an answer, or in place of a better one.
harm         Examples that harm queries, beside their own spread; one question for a whole set.
likeness/    How near examples are, by words and by meaning.
mix          How to mix sources for a target: weights with intervals.
mixed_files  A mix as files: examples of each source, drawn to its weight.
proof/       Proofs by fine-tunes with and without some training examples.
reading      Read results of asking an index, and answers, whatever their kind.
spread       All scores of queries, streamed exactly; each query's mean and deviation.
texts        Examples of an index as words: normalised, and their n-grams.
tokens       The words of an answer that a training example helps: scores without each word.
verdicts/    Verdicts: whether anything in the data stands out.
"""
