"""Say what work will cost; adapt within a time budget; judge an index.

adapt   Sample, label, weigh channels, train and judge within a time budget.
budget  Choose labels and layers that fit a time budget; measure what work costs.
judge   Judge an index by fine-tunes on random subsets, against methods that cost little.
"""
