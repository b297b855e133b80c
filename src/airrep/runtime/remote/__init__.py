"""Places that are URLs: data streamed from them, folders fetched and published.

folders  Folders at a URL: fetched into a cache, published, kept in step by machines.
outputs  Files and folders that a user named, at paths or URLs.
places   Places that users name: paths, or URLs of a storage.
storage  The storage behind a URL: its files, streams of data, errors in one line.
"""
