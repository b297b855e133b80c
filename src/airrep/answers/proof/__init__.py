"""Proofs by fine-tunes with and without some training examples.

result  The result of a proof: effects, their intervals, a sentence.
"""
