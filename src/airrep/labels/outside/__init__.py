"""Labels by another trainer: subsets as files out, losses back in.

command   Labels by a command of the user's, run for each subset.
imported  Labels from a file of losses that another trainer measured.
losses    Files for other trainers: subsets and queries, and the losses they write.
"""
