"""Verdicts: whether anything in the data stands out.

outside  Examples nearest to an answer, and to answers that no data taught.
verdict  The verdict on each answer, in a number and in words.
"""
