"""Examples in: files and records to one checked table, and filters of its rows.

corpus     Examples and ordered, immutable corpora of them.
fields     Fields of a corpus table, each compared with literals row by row.
filters    Filters (where-expressions), which choose rows of a corpus table.
inputs     Data as a program holds them: files, records, tables, texts as a corpus.
originals  Records that examples were read from, as their data hold them: messages stay messages.
places     Places of n-grams in the texts of an example.
records    From a raw record to the checked fields of an example.
schemas/   Schemas of records: from a raw record to prompts and responses.
sources/   Sources of records: files, folders, datasets of Hugging Face.
spans      Spans of an answer: read, checked, marked in texts; shares of tokens.
table      The table behind a corpus: records assembled, checked, taken from, digested.
views      Views: what of an example a representation reads.
words      Words of texts: letters with their marks.
"""
