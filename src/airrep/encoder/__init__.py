"""The sentence encoder: load it, run it, save it.

base          Base class of encoders: render, encode in windows, save.
folders       Find a model folder, read its card, recognise its format.
kinds         Refuse by name models that make something else than one vector of a text.
load          Sentence encoders: load one by name; without torch where it needs none.
modules       Files of every model folder: its list of modules, settings and card.
networks/     Encoders that torch runs: BERT packed, others by sentence_transformers.
pieces        Turn texts into word pieces, each different word once.
prompts       Texts that an encoder wants before queries and training examples.
static        Encoders of one vector a word piece and no layers, run by NumPy alone.
static_files  Read and write the folder of a static encoder.
tensors       Tensors of safetensors files as arrays, without torch.
tokens        Turn texts into token ids, without padding.
"""
