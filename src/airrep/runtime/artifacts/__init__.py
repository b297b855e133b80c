"""Artifacts in general: directories written atomically, manifest last.

making     Make artifacts: hold their places, fill unfinished directories, seal, name, send and fetch them.
manifests  Manifests: what an artifact is and holds; written last, read with checks.
"""
