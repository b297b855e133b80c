"""Prove by fine-tunes that some training examples taught an answer.

effects   Effects of leaving rows out, over repeats, and the verdict.
matching  Random examples like the named ones.
named     The rows that are named: ids, rows, a filter, or a file of them.
prove     Fine-tune with and without the named rows; say what that did.
trial     The fine-tunes of a proof: contexts, named rows, random rows.
"""
