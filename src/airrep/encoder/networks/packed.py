"""BERT-type encoders over packed tokens."""

from collections.abc import Iterator, Sequence
from functools import cached_property
from pathlib import Path

import numpy as np
import torch

from airrep.arrays import DenseFeatures, Rows
from airrep.encoder.base import Encoder, Format
from airrep.encoder.cards import NO_PROMPTS, Prompts
from airrep.encoder.networks.bert import PackedTokens
from airrep.encoder.networks.checkpoints import StoredEncoder, weights_digest, write_airrep, write_sentence_transformer
from airrep.encoder.static_files import Storage
from airrep.encoder.tokens import TextTokenizer
from airrep.runtime.artifacts.manifests import json_digest
from airrep.runtime.devices import ResolvedPrecision
from airrep.runtime.packing import pack
from airrep.shapes import Int64


class PackedEncoder(Encoder):
    """A BERT-type encoder run by :mod:`airrep.encoder.networks.bert`; its ``checkpoint`` is saved and fingerprinted."""

    packed = True

    def __init__(
        self,
        name: str,
        checkpoint: StoredEncoder,
        precision: ResolvedPrecision,
        device: str,
        batch_tokens: int,
        prompts: Prompts = NO_PROMPTS,
    ) -> None:
        super().__init__(name, checkpoint.card, checkpoint.max_tokens, precision, device, prompts)
        self.checkpoint = checkpoint
        self._batch_tokens = batch_tokens
        model = checkpoint.model
        self._tokenize = TextTokenizer(checkpoint.tokenizer, self.max_tokens, model.shape.vocabulary, name)
        self._network = (model.in_bfloat16() if precision == "bfloat16" else model).to(device)

    @property
    def dimension(self) -> int:
        return self.checkpoint.model.dimension

    @cached_property
    def fingerprint(self) -> str:
        checkpoint = self.checkpoint
        parts = {
            "kind": "bert, mean over tokens",
            "heads": [type(head).__name__ for head in checkpoint.model.heads],
            "weights": weights_digest(checkpoint.model),
            "attention_heads": checkpoint.model.shape.heads,
            "epsilon": checkpoint.model.shape.epsilon,
            "tokenizer": checkpoint.tokenizer,
        }
        return json_digest(parts | self._decisive())

    def _encode_window(self, texts: Sequence[str], queries: bool) -> Iterator[tuple[Rows, DenseFeatures]]:
        prompt = self._prompt(queries)
        sequences = self._tokenize([prompt + text for text in texts] if prompt else texts)
        lengths = np.array([len(sequence) for sequence in sequences], np.int64)
        for batch in pack(lengths, self._batch_tokens):
            with torch.inference_mode():
                tokens = PackedTokens.from_batch(batch, sequences, self.device)
                features = self._network(tokens.filled() if self.device == "cpu" else tokens)
            yield batch.rows, features[: len(batch.rows)].cpu().numpy()

    def token_ids(self, texts: Sequence[str]) -> list[Int64[np.ndarray, " length"]]:
        """Tokens of each text, special ones included, without any prompt."""
        return self._tokenize(texts)

    def _unknown_shares(self, texts: Sequence[str]) -> np.ndarray:
        return self._tokenize.unknown_shares(texts)

    def _write(self, folder: Path, model_format: Format, storage: Storage) -> None:
        write = write_airrep if model_format == "airrep" else write_sentence_transformer
        write(self.checkpoint, folder, getattr(torch, storage))
