"""Places that are URLs: data streamed from them, folders fetched and published.

data     Data at a URL, with what readers use of paths.
folders  Folders at a URL: fetched into a cache, published with one file last.
mirror   A folder that several machines fill, kept in step with its URL.
outputs  Files and folders that a user named, at paths or URLs.
places   Places that users name: paths, or URLs of a storage.
storage  The storage behind a URL, and its errors in one line.
"""
