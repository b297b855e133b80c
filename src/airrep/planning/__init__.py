"""Say what work will cost; adapt within a time budget; judge an index.

adapt     Sample, label, weigh channels, train and judge within a time budget.
budget    Choose instances, subsets and layers that fit a time budget.
judge     Draw, fine-tune, compare with what costs nothing, and say it in a sentence.
measured  Forecasts of cost: a small sample, measured, times the number of examples.
"""
