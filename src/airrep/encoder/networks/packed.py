"""BERT-type encoders over packed tokens; encoders that airrep trains."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any, Self, TypeAlias

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from airrep.arrays import DenseFeatures, Rows
from airrep.encoder.base import Encoder, Format
from airrep.encoder.cards import NO_PROMPTS, Card, Prompts, counts_prompt, read_card, with_template
from airrep.encoder.folders import DEFAULT, MODELS, Layout, Storage, read_json, read_optional
from airrep.encoder.networks.bert import Headed, HeadShape, PackedTokens, SentenceBert, UnitLength, heads_of
from airrep.encoder.networks.checkpoints import (
    StoredEncoder,
    read_checkpoint,
    weights_digest,
    write_airrep,
    write_sentence_transformer,
)
from airrep.encoder.networks.unpacked import LibraryEncoder
from airrep.encoder.static import LinearHead, StaticEncoder, StoredStatic, write_static
from airrep.encoder.tokens import TextTokenizer, check_max_tokens
from airrep.errors import DataError
from airrep.runtime.artifacts import json_digest
from airrep.runtime.devices import Precision, ResolvedPrecision, resolve_device, resolve_precision
from airrep.runtime.packing import pack
from airrep.shapes import Float32, Int64


def load_network(
    name: str,
    layout: Layout,
    prompts: Prompts,
    code: Sequence[Path],
    *,
    precision: Precision,
    device: str,
    template: str | None,
    max_tokens: int | None,
    batch_tokens: int | None,
) -> Encoder:
    """Load an encoder that needs torch, packed if possible; settings are those of ``load_encoder``.

    *code* are the model's files of program code, which the user trusts.
    """
    device = resolve_device(device)
    # The packed mean includes the prompt's tokens; the library runs models whose mean leaves them out.
    by_library = (
        layout.format == "library" or bool(code) or (prompts != NO_PROMPTS and not counts_prompt(layout.folder))
    )
    checkpoint = None if by_library else read_checkpoint(layout)
    if checkpoint is None or not reads_alike(name, layout, checkpoint):
        card = with_template(name, read_card(layout.folder), template)
        chosen = resolve_precision("float32" if precision == "auto" else precision, device)
        return LibraryEncoder(name, layout, card, max_tokens, chosen, device, prompts, code)
    limit = checkpoint.max_tokens if max_tokens is None else max_tokens
    checkpoint = replace(
        checkpoint,
        card=with_template(name, checkpoint.card, template),
        max_tokens=check_max_tokens(limit, checkpoint.model.shape.positions, f"encoder {name}"),
    )
    tokens = (2048 if device == "cpu" else 32768) if batch_tokens is None else batch_tokens
    return PackedEncoder(name, checkpoint, resolve_precision(precision, device), device, tokens, prompts)


_WORDS = "The Größe of NAÏVE cafés, e\u0301 İstanbul ΣΊΣΥΦΟΣ straße"
_SIGNS = "don't re-use x_1 = 3.14e-5; $5,000 (50%)! #tag @me a/b\\c <p> [x] {y} \u201cquoted\u201d … — 1st"
_SPACES = " two  spaces\tand\nlines\r\n\u00a0\u200b\u00ad\u3000 end \x00\x07 \ufffd"
_SCRIPTS = "中文字符 日本語テキスト 한국어 हिन्दी עִבְרִית العَرَبِيَّة ไทย Русский ﬁ ½ Ⅷ ℃ 😀👩\u200d👩\u200d👧"
_SPECIALS = "[CLS] a [SEP] b [MASK] [PAD] [UNK] <s> </s> </s><unk> ##ing unaffable"
_PROBES = ("", "a", _WORDS, _SIGNS, _SPACES, _SCRIPTS, "first word of many " * 3000 + "last")
"""Texts in which tokenizers differ: by case, accents, signs, spaces, scripts and length."""


def reads_alike(name: str, layout: Layout, checkpoint: StoredEncoder) -> bool:
    """Return True if transformers makes the packed encoder's token ids, in one segment and without masks.

    transformers builds some tokenizers anew from their vocabulary and settings, whatever else ``tokenizer.json`` says.
    The shipped encoders and those trained from them share a tokenizer that needs no test. DataError: an encoder in the
    published AirRep format differs; only packed can it run.
    """
    alike = _is_shipped(layout, checkpoint) or _agrees(layout, checkpoint)
    if layout.format == "airrep" and not alike:
        raise DataError(
            f"encoder {name}: transformers and the file tokenizer.json split texts into different tokens. Write the "
            "tokenizer's files again: AutoTokenizer.from_pretrained(folder).save_pretrained(folder)"
        )
    return alike


def _is_shipped(layout: Layout, checkpoint: StoredEncoder) -> bool:
    shipped = MODELS / DEFAULT
    if layout.folder.is_relative_to(MODELS):
        return True
    settings = read_json(shipped / "tokenizer_config.json") | {"model_max_length": None}
    same = checkpoint.tokenizer_settings | {"model_max_length": None} == settings
    uncut = {"truncation": None, "padding": None}
    return same and checkpoint.tokenizer == read_json(shipped / "tokenizer.json") | uncut


def _agrees(layout: Layout, checkpoint: StoredEncoder) -> bool:
    shape = checkpoint.model.shape
    ours = TextTokenizer(checkpoint.tokenizer, checkpoint.max_tokens, shape.vocabulary, str(layout.folder))
    # transformers reads [CLS] in a text as a special token, even if tokenizer.json lists none: no probe of these then.
    probes = [*_PROBES, _SPECIALS] if checkpoint.tokenizer.get("added_tokens") else list(_PROBES)
    try:
        from transformers import AutoTokenizer

        theirs: Any = AutoTokenizer.from_pretrained(str(layout.transformer), local_files_only=True)
        read = theirs(probes, truncation=True, max_length=checkpoint.max_tokens)
    except Exception:  # any class; the library then loads the folder and reports what is wrong with it
        return False
    same = [ids.tolist() for ids in ours(probes)] == [list(ids) for ids in read["input_ids"]]
    limit = read_optional(layout.transformer / "sentence_bert_config.json").get("max_seq_length")
    same_length = limit is not None or min(theirs.model_max_length, shape.positions) == checkpoint.max_tokens
    marks = (("token_type_ids", 1), ("attention_mask", 0))  # a second segment, a masked token
    return same and same_length and not any(value in row for name, value in marks for row in read.get(name, ()))


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
        prompt = self.prompts.query if queries else self.prompts.train
        sequences = self._tokenize([prompt + text for text in texts] if prompt else texts)
        lengths = np.array([len(sequence) for sequence in sequences], np.int64)
        for batch in pack(lengths, self._batch_tokens):
            with torch.inference_mode():
                tokens = PackedTokens.from_batch(batch, sequences, self.device)
                features = self._network(tokens.filled() if self.device == "cpu" else tokens)
            yield batch.rows, features[: len(batch.rows)].cpu().numpy()

    def token_ids(self, texts: Sequence[str]) -> list[Int64[np.ndarray, " length"]]:
        """Return token ids of each text, special tokens included, without any prompt."""
        return self._tokenize(texts)

    def _unknown_shares(self, texts: Sequence[str]) -> np.ndarray:
        return self._tokenize.unknown_shares(texts)

    def _write(self, folder: Path, model_format: Format, storage: Storage) -> None:
        write = write_airrep if model_format == "airrep" else write_sentence_transformer
        write(self.checkpoint, folder, getattr(torch, storage))


class SentenceBag(Headed):
    """The mean of the vectors of a text's word pieces, and heads; it has no layers."""

    def __init__(self, matrix: Float32[Tensor, "v h"], heads: tuple[HeadShape, ...] = ()) -> None:
        super().__init__()
        self.embeddings: nn.Embedding = nn.Embedding.from_pretrained(matrix, freeze=False)
        self.layers = nn.ModuleList()
        self.heads = heads_of(heads)

    @classmethod
    def of(cls, stored: StoredStatic) -> Self:
        """Make the network of a stored encoder, with copies of its weights."""
        head = stored.head
        unit: tuple[HeadShape, ...] = (None,) if stored.normalise else ()
        shapes = unit if head is None else (*unit, (head.weight.shape[1], head.weight.shape[0], True))
        made = cls(torch.from_numpy(stored.matrix.copy()), shapes)
        if head is not None:
            values = {name: torch.from_numpy(part.copy()) for name, part in head._asdict().items()}
            made.heads[-1].load_state_dict(values)
        return made

    @property
    def width(self) -> int:
        return self.embeddings.embedding_dim

    def means(self, ids: Int64[Tensor, " t"], lengths: Int64[Tensor, " s"]) -> Float32[Tensor, "s h"]:
        """Return the mean over the pieces of each text, which lie end to end; 0 if a text has none."""
        offsets = lengths.cumsum(0) - lengths
        return functional.embedding_bag(ids, self.embeddings.weight, offsets, mode="mean")

    def stored(self, start: StoredStatic, card: Card) -> StoredStatic:
        """Return *start* with these weights; if means are not scaled, the linear head is multiplied into the matrix."""
        matrix, (*below, last) = _array(self.embeddings.weight), self.heads
        assert isinstance(last, nn.Linear)
        weight, bias = _array(last.weight), _array(last.bias) if last.bias is not None else np.zeros(last.out_features)
        normalise = any(isinstance(head, UnitLength) for head in below)
        if normalise:
            head = LinearHead(weight, bias.astype(np.float32))
            return replace(start, matrix=matrix, card=card, normalise=True, head=head)
        return replace(start, matrix=matrix @ weight.T + bias.astype(np.float32), card=card, normalise=False, head=None)


def _array(tensor: Tensor) -> np.ndarray:
    return tensor.detach().cpu().numpy().copy()


Trainable: TypeAlias = PackedEncoder | StaticEncoder
"""An encoder that airrep can train."""
Network: TypeAlias = SentenceBert | SentenceBag
"""Network of an encoder that airrep can train."""
Stored: TypeAlias = StoredEncoder | StoredStatic
"""A trained encoder as its folder holds it."""


def network_of(encoder: Trainable) -> Network:
    """Return the network of an encoder, on the CPU."""
    stored = encoder.checkpoint
    return SentenceBag.of(stored) if isinstance(stored, StoredStatic) else stored.model


def stored_with(start: Stored, network: Network, card: Card) -> Stored:
    """Return a stored encoder with a trained network and card in place of its own."""
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
