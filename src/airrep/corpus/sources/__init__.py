"""Sources of records: files, folders, datasets of Hugging Face.

files        Opens data at a path, URL or Hub id: files by suffix, folders, datasets.
tables       Reads rows of Arrow tables, datasets and Lance as JSON values.
textformats  Parses JSON Lines, JSON and CSV into records with their line numbers.
"""
