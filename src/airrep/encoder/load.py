"""Sentence encoders: load one by name, run it packed."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import numpy as np
import torch

from airrep.arrays import DenseFeatures, Rows
from airrep.encoder.base import Encoder, Format, Storage
from airrep.encoder.bert import PackedTokens
from airrep.encoder.checkpoints import StoredEncoder, read_checkpoint, weights_digest
from airrep.encoder.exports import write_airrep, write_sentence_transformer
from airrep.encoder.folders import Card, Layout, find_model, read_card, read_layout
from airrep.encoder.kinds import refuse_other_kinds
from airrep.encoder.probe import reads_alike
from airrep.encoder.prompts import NO_PROMPTS, Prompts, choose_prompts, counts_prompt
from airrep.encoder.tokens import TextTokenizer, check_max_tokens
from airrep.encoder.unpacked import LibraryEncoder
from airrep.errors import ConfigError, DataError
from airrep.runtime.artifacts.digests import json_digest
from airrep.runtime.devices import Precision, ResolvedPrecision, resolve_device, resolve_precision
from airrep.runtime.hub import CODE, check_own_code
from airrep.runtime.packing import pack

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer


class PackedEncoder(Encoder):
    """A BERT-type encoder run by :mod:`airrep.encoder.bert`; its ``checkpoint`` is saved and fingerprinted."""

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

    def _unknown_shares(self, texts: Sequence[str]) -> np.ndarray:
        return self._tokenize.unknown_shares(texts)

    def sentence_transformer(self) -> "SentenceTransformer":
        from sentence_transformers import SentenceTransformer

        with TemporaryDirectory() as folder:
            self._write(Path(folder), "sentence-transformers", "float32")
            return SentenceTransformer(folder, device=self.device, local_files_only=True)

    def _write(self, folder: Path, model_format: Format, storage: Storage) -> None:
        write = write_airrep if model_format == "airrep" else write_sentence_transformer
        write(self.checkpoint, folder, getattr(torch, storage))


def load_encoder(
    name_or_path: str | Path = "default",
    *,
    precision: Precision = "auto",
    device: str = "auto",
    template: str | None = None,
    max_tokens: int | None = None,
    batch_tokens: int | None = None,
    query_prompt: str | None = None,
    train_prompt: str | None = None,
    trust_remote_code: bool = False,
) -> Encoder:
    """Load an encoder.

    BERT-type encoders with mean pooling and linear or unit-length heads run packed, also those in the
    published AirRep format, where transformers' own tokenizer makes the same tokens; all else that
    ``sentence_transformers`` can load is run by that library, in float32 unless bfloat16 is asked for by name. An
    adapter beside the weights is merged into them.

    Args:
        name_or_path: ``"default"`` (bundled, needs no network), a folder, or ``owner/name`` on the Hugging
            Face Hub.
        precision: type of the large matrix products; ``"auto"`` is bfloat16 on CUDA devices that have it, else
            float32.
        device: ``"auto"`` is CUDA where there is one, else the CPU.
        template: text of an example, with ``{prompt}`` and ``{response}``; the model's when None.
        max_tokens: longest text; the model's when None.
        batch_tokens: tokens that are computed together when packed; when None, 2,048 on a CPU and 32,768
            elsewhere. Changes speed and memory, not results.
        query_prompt: text before each query: the name of one of the model's own prompts, or the text itself; ``""``
            is none. None: the model's own for queries, where it has one.
        train_prompt: likewise before each training example; None: the model's own for documents.
        trust_remote_code: run the program code that some models bring; they are refused otherwise.

    Raises:
        ConfigError: a setting that cannot hold, a name that leads to no model, another kind of model (sparse,
            multi-vector, cross encoder, language model), or a model with program code that is not trusted.
        DataError: a model folder that is incomplete, damaged or unsafe to read.

    Example:
        >>> from airrep.encoder.load import load_encoder
        >>> encoder = load_encoder("default")
        >>> encoder.encode_texts(["a text", "another"]).shape
        (2, 384)
    """
    name = str(name_or_path)
    device = resolve_device(device)
    folder = find_model(name, (CODE,) if trust_remote_code else ())
    refuse_other_kinds(folder)
    layout = read_layout(folder)
    code = [] if layout.format == "airrep" else check_own_code("encoder", name, folder, trust_remote_code)
    prompts = choose_prompts(folder, name, query_prompt, train_prompt)
    # Packed, the mean takes in the tokens of the prompt; a model that leaves them out is the library's to run.
    by_library = layout.format == "library" or bool(code) or bool(prompts and not counts_prompt(folder))
    checkpoint = None if by_library else read_checkpoint(layout)
    if checkpoint is None or not _reads_alike(name, layout, checkpoint):
        card = _with_template(name, read_card(folder), template)
        chosen = resolve_precision("float32" if precision == "auto" else precision, device)
        return LibraryEncoder(name, layout, card, max_tokens, chosen, device, prompts, code)
    limit = checkpoint.max_tokens if max_tokens is None else max_tokens
    checkpoint = replace(
        checkpoint,
        card=_with_template(name, checkpoint.card, template),
        max_tokens=check_max_tokens(limit, checkpoint.model.shape.positions, f"encoder {name}"),
    )
    tokens = (2048 if device == "cpu" else 32768) if batch_tokens is None else batch_tokens
    if tokens < 1:
        raise ConfigError(f"encoder {name}: batch_tokens is {tokens}; expected 1 or more. Change it.")
    return PackedEncoder(name, checkpoint, resolve_precision(precision, device), device, tokens, prompts)


def _reads_alike(name: str, layout: Layout, checkpoint: StoredEncoder) -> bool:
    """Whether a packed encoder reads as transformers does; the published format has no other way to be run."""
    alike = reads_alike(layout, checkpoint)
    if layout.format == "airrep" and not alike:
        raise DataError(
            f"encoder {name}: transformers reads texts otherwise than its tokenizer.json says; expected the same "
            "tokens. Write both anew: AutoTokenizer.from_pretrained(folder).save_pretrained(folder)"
        )
    return alike


def _with_template(name: str, card: Card, template: str | None) -> Card:
    chosen = card.template if template is None else template
    if "{prompt}" not in chosen and "{response}" not in chosen:
        raise ConfigError(f"encoder {name}: the template {chosen!r} has no field; expected {{prompt}} or {{response}}.")
    return replace(card, template=chosen)
