"""Judge methods by labels, removals, classes and fine-tuning on selections.

classify     The identical-class test: the label of the nearest training example.
comparison   Paired tests between all rows of some evaluations.
diagnosis/   Why an LDS is low: findings on labels and indexes.
judging      Group scores, best scale and LDS of any method on labelled instances.
lds          LDS of indexes on labelled instances, side by side.
loo          Leave-one-out: do scores tell what removing an example does?
pool         Texts, classes and storage costs of the examples in an index.
result       The result of every evaluation: values per query, intervals, differences, the command.
select/      Data selection, judged by what a fine-tuned LM answers.
statistics/  Correlations, means and intervals; the noise in labels.
"""
