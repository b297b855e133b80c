"""Encoders that airrep trains: their networks, and folders with new ones."""

from dataclasses import replace
from pathlib import Path
from typing import TypeAlias

from airrep.encoder.folders import Card
from airrep.encoder.networks.bag import SentenceBag
from airrep.encoder.networks.bert import SentenceBert
from airrep.encoder.networks.checkpoints import StoredEncoder
from airrep.encoder.networks.exports import write_sentence_transformer
from airrep.encoder.networks.packed import PackedEncoder
from airrep.encoder.static import StaticEncoder
from airrep.encoder.static_files import StoredStatic, write_static

Trainable: TypeAlias = PackedEncoder | StaticEncoder
"""An encoder that airrep can train."""
Network: TypeAlias = SentenceBert | SentenceBag
"""The weights that learn."""
Stored: TypeAlias = StoredEncoder | StoredStatic
"""A trained encoder as its folder holds it."""


def network_of(encoder: Trainable) -> Network:
    """The network of an encoder, on the CPU."""
    stored = encoder.checkpoint
    return SentenceBag.of(stored) if isinstance(stored, StoredStatic) else stored.model


def stored_with(start: Stored, network: Network, card: Card) -> Stored:
    """An encoder as it is stored, with a trained network and its card in place of its own."""
    if isinstance(start, StoredStatic):
        assert isinstance(network, SentenceBag)
        return network.stored(start, card)
    assert isinstance(network, SentenceBert)
    return replace(start, model=network, card=card)


def write_stored(stored: Stored, folder: Path) -> None:
    """Write into an empty folder what ``SentenceTransformer`` loads."""
    if isinstance(stored, StoredStatic):
        write_static(stored, folder)
    else:
        write_sentence_transformer(stored, folder)
