"""Labels by another trainer: subsets as files out, losses back in.

command       Labels by a command of the user's, run for each subset.
imported      Labels from a file of losses that another trainer measured.
losses        Files of losses that another trainer wrote: JSONL rows or .npy.
origin        The origin that labels of another trainer tell.
subset_files  Subsets and queries as JSONL files, for another trainer.
"""
