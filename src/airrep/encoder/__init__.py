"""The sentence encoder: load it, run it packed, save it.

adapters     Run a model folder with the adapter that lies in it.
base         Base class of encoders: render, encode in windows, save.
bert         A BERT sentence encoder over packed tokens, without padding.
checkpoints  Read a packed encoder from the folder of a model.
exports      Write encoders as model folders, in either of two formats.
folders      Find a model folder, read its card, recognise its format.
kinds        Refuse by name models that make something else than one vector of a text.
load         Sentence encoders: load one by name, run it packed.
probe        Ask transformers whether a packed encoder reads texts as it does.
prompts      Texts that an encoder wants before queries and training examples.
tokens       Turn texts into token ids, without padding.
unpacked     Encoders that sentence_transformers itself runs.
"""
