"""Examples in: files and records to one checked table, and filters of its rows.

corpus       Examples and ordered, immutable corpora of them.
fields       Fields of a corpus table, each compared with literals row by row.
filters      Where-expressions, which choose rows of a corpus table.
readers      Files, folders and Hub datasets as raw records.
records      From a raw record to the checked fields of an example.
table        The table behind a corpus: records assembled, checked, taken from, digested.
textformats  JSON Lines, JSON and CSV text as numbered raw records.
"""
