"""Tables and lines on the terminal.

console      Primitives of the terminal: progress, snippets, safe text.
evaluations  Print evaluations, comparisons, stacks, datamodels and diagnoses.
learning     Print fine-tunes, training steps, warm-ups and verdicts.
plan         Print a plan.
results      Print rankings, groups, what-ifs, methods and manifests.
"""
