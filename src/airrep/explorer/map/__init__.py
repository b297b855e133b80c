"""A map of all examples.

points  Places and colours of all examples, as one binary answer.
"""
