"""Prove by fine-tunes that some training examples taught an answer.

effects  Effects of leaving rows out, over repeats, and the verdict.
prove    Fine-tune with and without the named rows; say what that did.
trial    The fine-tunes of a proof: contexts, named rows, random rows like them.
"""
