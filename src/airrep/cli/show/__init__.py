"""Printing results on the terminal.

answers      Print answers to questions about training data.
console      Primitives of the terminal: progress, snippets, safe text.
evaluations  Print evaluations, comparisons, learnt recipes, datamodels and diagnoses.
hits         Print training examples: places, texts, why they score as they do.
learning     Print labels, fine-tunes, training steps and verdicts.
results      Print rankings, groups, what-ifs, methods and manifests.
"""
