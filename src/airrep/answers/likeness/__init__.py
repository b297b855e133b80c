"""How near examples are, by words and by meaning.

common       Which n-grams are common: a template's or a system prompt's.
containment  Which texts an example contains, by shares of their word n-grams.
copies       Near copies of one text, so many that its words pass for a template's.
duplicates   Near duplicates by words, found exactly, without hashing into sketches.
meaning      Embeddings that an index holds already, and the nearest of them.
neighbours   Nearest examples by meaning: who disagrees with them, who has none.
records      Which examples are parts of one record: turns, or a preference pair.
signs        Signs that tell texts of the same words apart.
"""
