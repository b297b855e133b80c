"""Encoders that torch runs: BERT packed, others by sentence_transformers.

bert         A BERT sentence encoder over packed tokens, without padding.
checkpoints  Read a packed encoder from a model folder; write one in two formats.
packed       BERT-type encoders over packed tokens, where transformers reads texts as they do.
trainable    Encoders that airrep trains: their networks, and folders with new ones.
unpacked     Encoders that sentence_transformers itself runs, with the adapter that lies in their folder.
"""
