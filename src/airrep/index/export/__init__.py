"""Export of an index to files that other tools read.

columns  Columns of an exported index: examples, metadata, vectors; piece by piece.
export   Export of an index to a file for other tools.
"""
