"""What it will take, and adapting an encoder within a time budget.

adapt           Sample, label, train and judge within a time budget.
budget          Choose instances, subsets and layers that fit a time budget.
plan            A plan of costs: rates, intervals, crossovers; written and read.
plan_request    What is to be planned, and the benchmarks that it needs.
predict         From measured rates to what a corpus will take.
real_runs       Real runs on this machine, and predictions beside them.
trial_learning  Try fine-tunes for labels, and training steps of an encoder.
trial_method    Try a method on a sample: fits, features, bytes.
trials          What micro-benchmarks of a plan share: slices, repeats, results.
verdict         Compare a trained encoder with its rivals on unseen examples.
"""
