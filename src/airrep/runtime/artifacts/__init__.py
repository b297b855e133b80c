"""Artifacts in general: directories written atomically, manifest last.

checks     Check the files of an artifact against its manifest, and what they hold.
digests    One spelling of JSON values, and checksums of values and files.
locks      Locks of directories, held by their single writers.
making     Make an artifact: fill an unfinished directory, seal it, give it its name.
manifests  Manifests: what an artifact is and holds; written last, read with checks.
names      Names of files in an artifact, and of its unfinished directory.
targets    An artifact's target: its path, the artifact it replaces, its unfinished directory.
urls       Artifacts at URLs: fetched, brought to a path, sent.
"""
