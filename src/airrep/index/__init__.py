"""Features on disk: build an index, change it, ask it.

building   Build an index, or continue an unfinished build.
contrast   Questions: queries, with a better answer to each if there is one.
editing    Append to an index, delete from it, compact it.
encoding   Encode and write the shards that an index still lacks, its manifest last.
export     Export of an index to a file for other tools.
index      An index on disk: opened as memory maps, queried for scores.
results/   Results of queries to an index, with method, pool, sign and units.
rows       Rows of an index on disk: shards, examples, filters, ids, groups.
selection  Pick training data from an index: by rank or weight, diverse, within quotas, budgets.
shards     Shards: immutable pieces of an index on disk, and their blocks.
sharing    Build an index on several machines: build parts, then join them.
why        Why a hit has its score: its channels, and the words of both texts.
"""
