"""Sources of records: files, folders, datasets of Hugging Face.

files        Opens data by its place: files by their suffix, folders, URLs, datasets.
tables       Rows of Arrow tables, datasets and Lance, with the values that JSON has.
textformats  Records with their places; parsers of JSON Lines, JSON and CSV.
"""
