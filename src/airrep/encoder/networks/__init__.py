"""Encoders that torch runs: BERT packed, others by sentence_transformers.

bert         A BERT sentence encoder over packed tokens, without padding.
checkpoints  Read a packed encoder from a model folder; write one in two formats.
loading      Load an encoder that torch runs, packed where transformers reads texts as it does.
packed       BERT-type encoders over packed tokens.
trainable    Encoders that airrep trains: their networks, and folders with new ones.
unpacked     Encoders that sentence_transformers itself runs, with the adapter that lies in their folder.
"""
