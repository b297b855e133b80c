"""What fine-tunes with and without some training examples prove.

result  The result of a proof: effects, their intervals, a sentence.
"""
