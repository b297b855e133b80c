"""Encoders that torch runs: BERT packed, others by sentence_transformers.

adapters     Run a model folder with the adapter that lies in it.
bag          The network of a static encoder, for training: a mean of rows, then heads.
bert         A BERT sentence encoder over packed tokens, without padding.
checkpoints  Read a packed encoder from the folder of a model.
exports      Write packed encoders as model folders, in either of two formats.
loading      Load an encoder that torch runs.
packed       BERT-type encoders over packed tokens.
probe        Ask transformers whether a packed encoder reads texts as it does.
trainable    Encoders that airrep trains: their networks, and folders with new ones.
unpacked     Encoders that sentence_transformers itself runs.
"""
