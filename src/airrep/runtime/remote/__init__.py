"""Data and folders at URLs: streaming, fetching, publishing.

hub      Reads folders on the Hugging Face Hub at one commit, and pushes folders.
outputs  Writes, fetches, publishes and mirrors files and folders at paths or URLs.
places   Places that users give: local paths, or URLs of a storage.
storage  The storage behind a URL: files, streams of data, one-line errors.
"""
