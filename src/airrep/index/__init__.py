"""Features on disk: build an index, change it, ask it.

building  Building an index, safe against any interruption.
editing   Appending to an index, deleting from it, compacting it.
index     An index on disk: opened as memory maps, asked for scores.
picking   Picking training data from an index, with the reasons.
results   Results that know their method, pool, sign, units and index.
rows      Rows of an index on disk: shards, examples, filters, ids, groups.
shards    Shards: immutable pieces of an index on disk, and their blocks.
workers   Encoding of shards: in this process, or in the workers of an engine.
"""
