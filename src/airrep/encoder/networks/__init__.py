"""Encoders that torch runs: BERT packed, others by sentence_transformers.

bert         A BERT sentence encoder over packed tokens, without padding.
checkpoints  Read a packed encoder from a model folder; write one in two formats.
packed       BERT-type encoders over packed tokens; encoders that airrep trains.
unpacked     Encoders that sentence_transformers itself runs, with the adapter that lies in their folder.
"""
