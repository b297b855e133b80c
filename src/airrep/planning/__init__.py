"""Predict time, memory and disk; adapt an encoder within a time budget.

adapt           Sample, label, weigh channels, train and judge within a time budget.
budget          Choose instances, subsets and layers that fit a time budget.
hours           The hours of fine-tunes, told before they are spent.
judging/        Judge an index on the user's own data within a time budget.
plan            A plan of costs: rates, intervals, crossovers; written and read.
plan_request    The request for a plan, checked, and the benchmarks that it needs.
predict         Predict from measured rates the time, memory and disk that a corpus takes.
real_runs       Real runs on this machine, and predictions beside them.
trial_learning  Try fine-tunes for labels, and training steps of an encoder.
trial_method    Try a method on a sample: fits, features, bytes.
trials          Slices, repeats and results of a plan's micro-benchmarks.
"""
