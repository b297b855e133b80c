"""Verdicts: whether anything in the data stands out.

nearest  The training examples that come nearest to a copy of an answer.
outside  Answers that no data taught, asked of an index.
verdict  The verdict on each answer, in a number and in words.
"""
