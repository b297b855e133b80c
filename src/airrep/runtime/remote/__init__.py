"""Places that are URLs: data streamed from them, folders fetched and published.

folders  Folders at a URL: fetched into a cache, published with one file last, or kept in step by several machines.
outputs  Files and folders that a user named, at paths or URLs.
places   Places that users name: paths, or URLs of a storage.
storage  The storage behind a URL: its files, data streamed from it, and its errors in one line.
"""
