"""Examples in: files and records to one checked table, and filters of its rows.

corpus       Examples and ordered, immutable corpora of them.
fields       Fields of a corpus table, each compared with literals row by row.
filters      Where-expressions, which choose rows of a corpus table.
inputs       Data as a program holds them: files, records, tables, texts as a corpus.
places       Places of n-grams in the texts of an example.
readers      The reader for each kind of file, by its suffix; Parquet, datasets, the Hub.
records      From a raw record to the checked fields of an example.
table        The table behind a corpus: records assembled, checked, taken from, digested.
textformats  Parsers of text formats, for the readers: JSON Lines, JSON, CSV.
views        Views: what of an example a representation reads.
"""
