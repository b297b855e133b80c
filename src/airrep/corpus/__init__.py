"""Examples in: files and records to one checked table, and filters of its rows.

corpus     Examples and ordered, immutable corpora of them.
fields     Fields of a corpus table, each compared with literals row by row.
filters    Filters (where-expressions), which choose rows of a corpus table.
inputs     Turns what callers pass (paths, records, tables, texts) into a corpus.
originals  Finds the original records of examples in their data, with messages kept as messages.
places     Character positions of n-grams in the texts of an example.
records    Parses a raw record into the checked fields of its examples.
schemas/   Schemas of records: from a raw record to prompts and responses.
sources/   Sources of records: files, folders, datasets of Hugging Face.
spans      Reads, checks and marks spans of a response; computes tokens' shares in them.
table      The table behind a corpus: builds, checks, slices and hashes it.
views      Views: the parts of an example that a representation reads.
words      Finds the words of a text, with accents and other marks on their letters.
"""
