"""The sentence encoder: load it, run it, save it.

base       Base class of encoders: render, encode in windows, save.
cards      Card, prompts and settings of a model folder: read, chosen and written.
folders    Find a model folder, read its card, recognise its format.
load       Load a sentence encoder by name; without torch if it is static.
networks/  Encoders that torch runs: BERT packed, others by sentence_transformers.
static     Static encoders, with one vector for each word piece, run by NumPy alone.
tokens     Turn texts into token ids without padding, and into word pieces.
"""
