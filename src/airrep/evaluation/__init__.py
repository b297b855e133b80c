"""Judge methods by labels, removals, classes and fine-tuning on selections.

classify     The identical-class test: the label of the nearest training example.
comparison   Comparison of evaluations: every pair of rows, tested.
contest      Tasks and competitors of a data selection, and what each selects.
diagnosis    Diagnose labels and indexes: why an LDS is low.
effects/     Drop the examples that a method names and retrain; trace facts to their sources.
findings     Findings on labels: what holds an LDS back, whatever the method.
given        Read indexes, instances and evaluations from arguments; training pools of indexes.
judging      Group scores, best scale and LDS of any method on labelled instances.
lds          LDS of indexes on labelled instances, side by side.
loo          Leave-one-out: how well scores predict the effects of removing examples.
prove        Fine-tune with and without the named rows; say what that did.
result       Evaluations: rows with values per query, intervals and differences; written and read.
select       Data selection, judged by what a fine-tuned LM then answers.
statistics/  Correlations, means and intervals; the noise in labels.
"""
