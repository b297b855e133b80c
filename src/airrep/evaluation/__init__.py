"""Judge methods by labels, removals, classes and fine-tuning on selections.

classify     The identical-class test: the label of the nearest training example.
comparison   Paired tests between all rows of some evaluations.
diagnosis/   Findings that tell why an LDS is low.
judging      Group scores, best scale and LDS of any method on labelled instances.
lds          LDS of indexes on labelled instances, side by side.
loo          Leave-one-out: whether scores tell the effect of removing an example.
pool         Texts, classes and storage costs of the examples in an index.
result       The result of every evaluation: values per query, intervals, differences, the command.
select/      Data selection, judged by what a fine-tuned LM answers.
statistics/  Correlations, means and intervals; the noise in labels.
"""
