"""Pick training data from an index.

choosing  Choose from a ranking: diverse, within quotas, within a budget of tokens.
picking   Pick training data from an index, by min-rank or weight, with the reasons.
"""
