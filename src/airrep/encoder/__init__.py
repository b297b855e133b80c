"""The sentence encoder: load it, run it, save it.

base       Base class of encoders: render, encode in windows, save.
cards      Card, prompts and settings of a model folder: read, chosen and written.
folders    Find a model folder, read its card, recognise its format.
load       Sentence encoders: load one by name; without torch where it needs none.
networks/  Encoders that torch runs: BERT packed, others by sentence_transformers.
static     Encoders of one vector a word piece, run by NumPy alone; their folders.
tokens     Texts to token ids without padding, and to word pieces.
"""
