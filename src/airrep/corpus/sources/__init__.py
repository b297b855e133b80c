"""Sources of records: files, folders, datasets of Hugging Face.

files        The reader for each kind of file, by its suffix.
opening      The source that a path, a folder or a name stands for.
tables       Rows of Arrow tables, datasets and Lance, with the values that JSON has.
textformats  Records with their places; parsers of JSON Lines, JSON and CSV.
"""
