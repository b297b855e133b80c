"""Random subsets, one fine-tune each, and the losses after it.

farm        Fine-tune the target LM on every subset and record the losses.
fine_tuner  The worker that fine-tunes an LM on one subset after another.
gather      Gather labelled instances from label directories, data and airrep-test folders.
labels      Labels on disk: losses of queries after fine-tuning on subsets.
ledger      Files of a label directory: the request, finished fine-tunes, and the seal.
outside     Labels by another trainer: write subsets to files, read losses back.
plan        Subset plans on disk: instances, their queries and subsets.
sampling    Draws of cross-validation instances from a corpus.
"""
