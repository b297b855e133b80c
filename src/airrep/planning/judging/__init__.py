"""Judge an index on the user's own data within a time budget.

fitting  Choose subsets that fit the data and the budget.
judge    Draw, fine-tune, compare with what costs nothing, and say it in a sentence.
rivals   Rivals of an index: counting, TF-IDF, gradients, chance.
verdict  The verdict of an evaluation on an index, in a sentence.
"""
