"""Encoders that sentence_transformers itself runs."""

from collections.abc import Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from airrep.arrays import DenseFeatures, Rows
from airrep.encoder.base import Encoder, Format, Storage
from airrep.encoder.checkpoints import is_finite
from airrep.encoder.exports import write_card
from airrep.encoder.folders import DOWNLOADED, Card
from airrep.encoder.prompts import Prompts
from airrep.encoder.tokens import LEAST_TOKENS, check_max_tokens, unknown_shares
from airrep.errors import ConfigError, DataError
from airrep.runtime.artifacts.digests import file_digest, json_digest
from airrep.runtime.devices import ResolvedPrecision
from airrep.runtime.hub import without_bars

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

_CHUNK = 512
"""Texts between two reports of progress."""


class LibraryEncoder(Encoder):
    """Any other encoder, run by ``SentenceTransformer.encode``."""

    packed = False

    def __init__(
        self,
        name: str,
        folder: Path,
        card: Card,
        max_tokens: int | None,
        precision: ResolvedPrecision,
        device: str,
        prompts: Prompts,
        code: Sequence[Path] = (),
    ) -> None:
        self._folder, self._trusted = folder, bool(code)
        self._library = _load_library(name, folder, precision, device, trusted=self._trusted)
        if max_tokens is not None:
            most = _positions(self._library) or max(max_tokens, LEAST_TOKENS)
            self._library.max_seq_length = check_max_tokens(max_tokens, most, f"encoder {name}")
        self._routed = any(type(module).__name__ == "Router" for module in self._library.modules())
        longest = self._library.max_seq_length
        super().__init__(name, card, int(longest) if longest else 0, precision, device, prompts)
        files = sorted({*_model_files(folder), *code})
        self._files = {str(path.relative_to(folder)): file_digest(path) for path in files}

    @property
    def dimension(self) -> int:
        return int(self._library.get_embedding_dimension() or 0)

    @cached_property
    def fingerprint(self) -> str:
        routed = {"routed": True} if self._routed else {}
        return json_digest({"kind": "sentence_transformers", "files": self._files, **routed, **self._decisive()})

    @property
    def symmetric(self) -> bool:
        return super().symmetric and not self._routed

    def _encode_window(self, texts: Sequence[str], queries: bool) -> Iterator[tuple[Rows, DenseFeatures]]:
        library, prompt = self._library, self._prompt(queries)
        encode = (library.encode_query if queries else library.encode_document) if self._routed else library.encode
        for start in range(0, len(texts), _CHUNK):
            part = list(texts[start : start + _CHUNK])
            features = encode(part, prompt=prompt, show_progress_bar=False, convert_to_numpy=True)
            yield np.arange(start, start + len(part)), np.asarray(features, np.float32)

    def _unknown_shares(self, texts: Sequence[str]) -> np.ndarray:
        tokenizer = self._library.tokenizer
        fast = getattr(tokenizer, "backend_tokenizer", None)
        if fast is None:
            return super()._unknown_shares(texts)
        return unknown_shares(fast, tokenizer.unk_token_id, texts)

    def sentence_transformer(self) -> "SentenceTransformer":
        return self._library

    def _write(self, folder: Path, model_format: Format, storage: Storage) -> None:
        if model_format == "airrep" or storage != "float32":
            raise ConfigError(
                f"saving {self.name}: only BERT-type encoders can be saved in the airrep format or in "
                "another storage type. Use model_format='sentence-transformers'."
            )
        library = self._library
        if self.precision != "float32":  # its weights were rounded
            library = _load_library(self.name, self._folder, "float32", "cpu", trusted=self._trusted)
            library.max_seq_length = self._library.max_seq_length
        library.save(str(folder))
        write_card(self.card, folder)


def _load_library(
    name: str, folder: Path, precision: ResolvedPrecision, device: str, *, trusted: bool
) -> "SentenceTransformer":
    from sentence_transformers import SentenceTransformer

    settings = {"dtype": precision, "use_safetensors": True}
    try:
        with without_bars():
            library = SentenceTransformer(
                str(folder), device=device, local_files_only=True, trust_remote_code=trusted, model_kwargs=settings
            )
    # Any of these, depending on which file is damaged.
    except (OSError, ValueError, RuntimeError, KeyError, ImportError, AttributeError, TypeError) as error:
        reason = str(error).strip().partition("\n")[0]
        raise DataError(
            f"encoder {name}: sentence_transformers cannot load it: {reason}. Restore it or give another one."
        ) from error
    for key, tensor in library.state_dict().items():
        if not is_finite(tensor):
            raise DataError(f"encoder {name}: weight {key} is not finite (NaN or infinite). Use another checkpoint.")
    return library


def _positions(library: "SentenceTransformer") -> int | None:
    """Tokens that a model has positions for, where its embeddings tell."""
    for name, module in library.named_modules():
        if name.endswith("embeddings.position_embeddings") and hasattr(module, "num_embeddings"):
            # In models of the RoBERTa kind the first position comes behind that of padding.
            padding = module.padding_idx
            return int(module.num_embeddings) - (0 if padding is None else int(padding) + 1)
    return None


def _model_files(folder: Path) -> list[Path]:
    """Files of a model that can change what it computes."""
    return sorted(path for pattern in DOWNLOADED for path in folder.rglob(pattern) if path.is_file())
