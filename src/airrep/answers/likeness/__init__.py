"""How near examples are, by words and by meaning.

clusters     Clusters of examples that are alike, with names from their words.
containment  Which texts an example contains, by shares of their word n-grams.
duplicates   Near duplicates by words, found exactly, without hashing into sketches.
layout       A map: dense vectors of examples brought to two dimensions.
neighbours   Nearest examples by meaning, also of embeddings that an index holds already.
signs        Signs that tell texts of the same words apart.
"""
