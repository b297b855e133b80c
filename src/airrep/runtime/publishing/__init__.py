"""Publishing: files and folders stand under their names whole, or not at all.

files    Publish files: whole under their names, or as they were before.
folders  Publish folders, and what others write: at once, in place of what was there.
"""
