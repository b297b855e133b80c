"""Places that are URLs: data streamed from them, folders fetched and published.

hub      Folders on the Hugging Face Hub, read at one commit and pushed.
outputs  Files and folders at paths or URLs: written, fetched, published, kept in step.
places   Places that users name: paths, or URLs of a storage.
storage  The storage behind a URL: its files, streams of data, errors in one line.
"""
