"""How near examples are, by words and by meaning.

clusters    A map of examples in two dimensions, and clusters of similar examples.
duplicates  Near duplicates by words, found exactly, without hashing into sketches.
neighbours  Nearest examples by meaning, also by embeddings that an index holds.
signs       Punctuation and symbols that distinguish texts of the same words.
"""
