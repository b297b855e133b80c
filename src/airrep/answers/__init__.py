"""Answers from scores: what taught an answer, what harms, leaks and mixes.

answer   What all answers share: a JSON form, written and read back.
explain  Which training examples taught an answer, or in place of a better one.
harm     What harms queries, beside their own spread; one question for a whole set.
spread   All scores of queries, streamed exactly; each query's mean and deviation.
"""
