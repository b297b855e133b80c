"""Tiny random BERT encoders and their folders, for tests."""

from pathlib import Path
from typing import Any

import torch

from airrep.encoder.cards import Card
from airrep.encoder.networks.bert import BertShape, HeadShape, SentenceBert
from airrep.encoder.networks.checkpoints import StoredEncoder, write_sentence_transformer

WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "question", "answer", ":", *"abcdefghijklmnopqrstuvwxyz"]
SHAPE = BertShape(vocabulary=40, positions=24, types=2, width=16, layers=2, heads=4, inner=32, epsilon=1e-12)
TEXTS = ["a b c", "", "question : a b answer : z", "zebra", "q w e r t y " * 9, "a b d"]


def tiny_model(heads: tuple[HeadShape, ...] = ((16, 16, True),), seed: int = 0) -> SentenceBert:
    """A network with random weights."""
    generator = torch.Generator().manual_seed(seed)
    model = SentenceBert(SHAPE, heads)
    state = {name: torch.randn(tensor.shape, generator=generator) / 3 for name, tensor in model.state_dict().items()}
    model.load_state_dict(state)
    return model


def tiny_tokenizer() -> dict[str, Any]:
    """Content of a WordPiece ``tokenizer.json`` over single letters and a few words."""
    ends = {"[CLS]": 2, "[SEP]": 3}
    specials = {name: {"id": name, "ids": [number], "tokens": [name]} for name, number in ends.items()}
    single = [
        {"SpecialToken": {"id": "[CLS]", "type_id": 0}},
        {"Sequence": {"id": "A", "type_id": 0}},
        {"SpecialToken": {"id": "[SEP]", "type_id": 0}},
    ]
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [],
        "normalizer": {
            "type": "BertNormalizer",
            "clean_text": True,
            "handle_chinese_chars": True,
            "strip_accents": None,
            "lowercase": True,
        },
        "pre_tokenizer": {"type": "BertPreTokenizer"},
        "post_processor": {"type": "TemplateProcessing", "single": single, "pair": single, "special_tokens": specials},
        "decoder": None,
        "model": {
            "type": "WordPiece",
            "unk_token": "[UNK]",
            "continuing_subword_prefix": "##",
            "max_input_chars_per_word": 100,
            "vocab": {word: number for number, word in enumerate(WORDS)},
        },
    }


def tiny_checkpoint(heads: tuple[HeadShape, ...] = ((16, 16, True),), seed: int = 0) -> StoredEncoder:
    """A network with random weights, its tokenizer and the default card."""
    return StoredEncoder(tiny_model(heads, seed), tiny_tokenizer(), {}, SHAPE.positions, Card())


def tiny_folder(folder: Path, heads: tuple[HeadShape, ...] = ((16, 16, True),), seed: int = 0) -> Path:
    """Write a sentence-transformers folder of a tiny encoder."""
    folder.mkdir()
    write_sentence_transformer(tiny_checkpoint(heads, seed), folder)
    return folder
