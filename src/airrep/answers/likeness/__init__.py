"""How near examples are, by words and by meaning.

clusters    A map of examples in two dimensions, and clusters of those that are alike.
duplicates  Near duplicates by words, found exactly, without hashing into sketches.
neighbours  Nearest examples by meaning, also of embeddings that an index holds already.
signs       Signs that tell texts of the same words apart.
"""
