"""Sources of records: files, folders, datasets of Hugging Face.

files        The reader for each kind of file, by its suffix.
folders      Folders of data files or of texts as one source.
opening      The source that a path or a name stands for.
source       Records with their places.
tables       Rows of Arrow tables, datasets and Lance, with the values that JSON has.
textformats  Parsers of text formats, for the readers: JSON Lines, JSON, CSV.
"""
