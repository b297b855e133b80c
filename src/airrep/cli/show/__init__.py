"""What the terminal prints.

console      Primitives of the terminal: progress, snippets, safe text.
evaluations  Print evaluations, comparisons, stacks, datamodels and diagnoses.
learning     What the learning commands show: fine-tunes, steps, verdicts.
plan         Print a plan.
results      Print rankings, groups, what-ifs, methods and manifests.
"""
