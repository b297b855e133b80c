"""Encoders that sentence_transformers itself runs, with the adapter that lies in their folder."""

import math
import re
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file

from airrep.arrays import DenseFeatures, Rows
from airrep.encoder.base import Encoder, Format
from airrep.encoder.cards import Card, Prompts, write_card
from airrep.encoder.folders import ADAPTER_CONFIG, DOWNLOADED, WEIGHTS, Layout, Storage, find_model, read_json
from airrep.encoder.networks.checkpoints import is_finite
from airrep.encoder.tokens import LEAST_TOKENS, check_max_tokens, unknown_shares
from airrep.errors import ConfigError, DataError, first_line, need
from airrep.runtime.artifacts import file_digest, json_digest
from airrep.runtime.devices import ResolvedPrecision
from airrep.runtime.hub import without_bars

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer
    from torch import nn


_CHUNK = 512
"""Texts between two reports of progress."""
_BATCH = 32
"""Texts that are computed together, padded to the longest of them."""
_PROBES = ("a", "the", "a the of and to in is it that you not b c d 0 1 2 . , ? " * 3)
"""Texts of which every vocabulary has some words, two short ones and a long one."""
_NEAR = {"float32": 3e-5, "bfloat16": 5e-2}
"""Largest change, relative to the longest vector, that counts as rounding if a text is encoded beside others."""
_TABLE = re.compile(r"(^|\.)(position_embeddings?|embed_positions|wpe)$")
_OTHER_SENSES = re.compile("vision|visual|image|audio|speech")


class LibraryEncoder(Encoder):
    """An encoder that is neither packed nor static, run by ``SentenceTransformer.encode``."""

    packed = False

    def __init__(
        self,
        name: str,
        layout: Layout,
        card: Card,
        max_tokens: int | None,
        precision: ResolvedPrecision,
        device: str,
        prompts: Prompts,
        code: Sequence[Path] = (),
    ) -> None:
        self._layout, self._trusted, self._asked = layout, bool(code), max_tokens
        self._library = _load_library(name, layout, precision, device, trusted=self._trusted)
        longest = _limit_lengths(self._library, max_tokens, f"encoder {name}")
        self._routed = any(type(module).__name__ == "Router" for module in self._library.modules())
        super().__init__(name, card, longest, precision, device, prompts)
        self._files = _digests(layout, code)
        self._batch = _BATCH
        self._probe()

    def _probe(self) -> None:
        """Encode texts alone and together; if a text changes another's vector, encode every text alone from now on.

        Padding changes vectors in convolutions, and in models that count positions from the left of a padded text.
        """
        try:
            both = [self._features(_PROBES, queries) for queries in (False, True)]
            alone = [self._features([text], queries)[0] for queries in (False, True) for text in _PROBES]
        # The class depends on which module gets an input that it cannot read.
        except (OSError, ValueError, RuntimeError, LookupError, AttributeError, TypeError) as error:
            kinds = ", ".join(type(module).__name__ for module in self._library)
            raise DataError(
                f"encoder {self.name}: sentence_transformers cannot run its modules ({kinds}): "
                f"{type(error).__name__}: {first_line(error)}. Correct the folder or give another encoder."
            ) from error
        if {row.shape for row in alone} != {both[0].shape[1:]}:
            raise DataError(
                f"encoder {self.name}: its vectors have shape {both[1].shape[1:]} for queries and "
                f"{both[0].shape[1:]} for documents, so they cannot be compared. Give another encoder."
            )
        self._width = int(both[0].shape[1])
        together = np.concatenate(both)
        moved, longest = np.abs(together - alone).max(), np.linalg.norm(together, axis=1).max()
        self._batch = _BATCH if moved <= _NEAR[self.precision] * longest else 1

    @property
    def dimension(self) -> int:
        return self._width

    @cached_property
    def fingerprint(self) -> str:
        routed = {"routed": True} if self._routed else {}
        return json_digest({"kind": "sentence_transformers", "files": self._files, **routed, **self._decisive()})

    @property
    def symmetric(self) -> bool:
        return super().symmetric and not self._routed

    def _encode_window(self, texts: Sequence[str], queries: bool) -> Iterator[tuple[Rows, DenseFeatures]]:
        for start in range(0, len(texts), _CHUNK):
            part = texts[start : start + _CHUNK]
            yield np.arange(start, start + len(part)), self._features(part, queries)

    def _features(self, texts: Sequence[str], queries: bool) -> DenseFeatures:
        """Return features of texts, each read behind its prompt."""
        library = self._library
        encode = (library.encode_query if queries else library.encode_document) if self._routed else library.encode
        features = encode(
            list(texts),
            prompt=self.prompts.query if queries else self.prompts.train,
            batch_size=self._batch,
            show_progress_bar=False,
            convert_to_numpy=True,
        )
        return np.asarray(features, np.float32)

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
                f"saving {self.name}: only BERT-type encoders can be saved in the airrep format or in another "
                "storage type. Use model_format='sentence-transformers' and storage='float32'."
            )
        library = self._library
        if self.precision != "float32":  # its weights were rounded
            library = _load_library(self.name, self._layout, "float32", "cpu", trusted=self._trusted)
            _limit_lengths(library, self._asked, f"encoder {self.name}")
        library.save(str(folder))
        write_card(self.card, folder)


def _load_library(
    name: str, layout: Layout, precision: ResolvedPrecision, device: str, *, trusted: bool
) -> "SentenceTransformer":
    base = base_of(layout.transformer)
    if base is None:
        library = _load_folder(name, layout.folder, precision, device, trusted=trusted)
    else:
        with without_adapter(layout.folder, layout.transformer, base) as view:
            library = _load_folder(name, view, precision, device, trusted=trusted)
        library[0].model = merged(library[0].model, layout.transformer, f"encoder {name}")
    for key, tensor in library.state_dict().items():
        if not is_finite(tensor):
            raise DataError(f"encoder {name}: weight {key} is not finite (NaN or infinite). Use another checkpoint.")
    return library


def _load_folder(
    name: str, folder: Path, precision: ResolvedPrecision, device: str, *, trusted: bool
) -> "SentenceTransformer":
    need(f"encoder {name}", "encoders", "sentence_transformers")
    from sentence_transformers import SentenceTransformer

    settings = {"dtype": precision, "use_safetensors": True}
    try:
        with without_bars():
            library = SentenceTransformer(
                str(folder), device=device, local_files_only=True, trust_remote_code=trusted, model_kwargs=settings
            )
    # The class depends on which file is damaged.
    except (OSError, ValueError, RuntimeError, KeyError, ImportError, AttributeError, TypeError) as error:
        raise DataError(
            f"encoder {name}: sentence_transformers cannot load it: {first_line(error)}. "
            "Restore its folder or give another encoder."
        ) from error
    if precision == "float32":
        library.float()  # modules other than transformers keep the type that they are stored in
    return library


def _limit_lengths(library: "SentenceTransformer", asked: int | None, where: str) -> int:
    """Limit the tokens that each module reads to its positions and to *asked*; return the largest of these limits, 0 if
    a module has none."""
    modules = (one for one in library.modules() if one is not library and type(one).__name__ != "Router")
    readers: list[Any] = [one for one in modules if hasattr(one, "max_seq_length")]
    if asked is not None and not readers:
        raise _endless(where, next(iter(library)))
    for reader in readers:
        most = _positions(reader)
        longest = reader.max_seq_length
        if asked is not None:
            longest = check_max_tokens(asked, most or max(asked, LEAST_TOKENS), where)
        elif most is not None and (longest is None or longest > most):
            longest = most
        if longest != reader.max_seq_length:
            try:
                reader.max_seq_length = longest
            except AttributeError as error:
                raise _endless(where, reader) from error
    lengths = [reader.max_seq_length or math.inf for reader in readers]
    return int(max(lengths)) if lengths and max(lengths) < math.inf else 0


def _endless(where: str, module: "nn.Module") -> ConfigError:
    return ConfigError(
        f"{where}: max_tokens cannot be set, since its {type(module).__name__} reads whole texts. Leave max_tokens out."
    )


def _positions(reader: "nn.Module") -> int | None:
    """Return the number of tokens that a module has positions for; None if it has no table of positions."""
    tables = [
        # In RoBERTa-type models the first position follows that of padding.
        int(module.num_embeddings) - (0 if module.padding_idx is None else int(module.padding_idx) + 1)
        for name, module in reader.named_modules()
        if _TABLE.search(name) and not _OTHER_SENSES.search(name) and hasattr(module, "num_embeddings")
    ]
    told = getattr(getattr(reader, "config", None), "max_position_embeddings", None)
    return min([*tables, *([told] if isinstance(told, int) and told > 0 else [])]) if tables else None


def _digests(layout: Layout, code: Sequence[Path]) -> dict[str, str]:
    """Return digests of all files that can change what a model computes, including those of its adapter's base."""
    folder, base = layout.folder, base_of(layout.transformer)
    files = sorted({*(path for pattern in DOWNLOADED for path in folder.rglob(pattern) if path.is_file()), *code})
    named = {str(path.relative_to(folder)): path for path in files}
    if base is not None and base != layout.transformer:
        named |= {f"base of the adapter/{path.name}": path for path in base_files(base)}
    return {name: file_digest(path) for name, path in named.items()}


_ADAPTER = "adapter_model.safetensors"
_BASE = ("config.json", WEIGHTS, "model-*.safetensors", "model.safetensors.index.json")


def base_of(transformer: Path) -> Path | None:
    """Return the folder of the weights that the adapter in a folder changes; None without an adapter.

    The weights lie beside the adapter, or else in the folder of the model that the adapter names.
    """
    if not (transformer / ADAPTER_CONFIG).exists():
        return None
    if (transformer / "config.json").exists() and any(transformer.glob("model*.safetensors")):
        return transformer
    return find_model(str(read_json(transformer / ADAPTER_CONFIG).get("base_model_name_or_path")))


def base_files(base: Path) -> list[Path]:
    """Return the files of an adapter's base that decide what it computes."""
    return sorted(path for pattern in _BASE for path in base.glob(pattern))


@contextmanager
def without_adapter(folder: Path, transformer: Path, base: Path) -> Iterator[Path]:
    """Copy a model folder, by links, with the weights of the base and without the adapter.

    transformers would load the adapter itself, but only with releases of peft that it supports.
    """
    with TemporaryDirectory() as place:
        view = Path(place)
        paths = [path for path in folder.rglob("*") if path.is_file() and not path.name.startswith("adapter_")]
        places = {view / path.relative_to(folder): path for path in paths}
        inside = view / transformer.relative_to(folder)
        for link, path in ({inside / path.name: path for path in base_files(base)} | places).items():
            link.parent.mkdir(parents=True, exist_ok=True)
            link.symlink_to(path.resolve())
        yield view


def merged(model: Any, transformer: Path, where: str) -> Any:
    """Merge the adapter of a folder into a transformer's weights."""
    need(f"{where}: its adapter", "peft", "peft")
    from peft import PeftModel, get_peft_model_state_dict

    try:
        stored = load_file(transformer / _ADAPTER)
        with torch.random.fork_rng(devices=[]), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about names that do not fit, which are refused below
            adapted = PeftModel.from_pretrained(model, transformer, torch_device="cpu")
            put = get_peft_model_state_dict(adapted, save_embedding_layers=any(".lora_" not in name for name in stored))
            whole = adapted.merge_and_unload(safe_merge=True)
    # The class depends on the kind of adapter and on what is wrong with it.
    except (SafetensorError, OSError, ValueError, RuntimeError, LookupError, AttributeError, TypeError) as error:
        raise DataError(
            f"{where}: its adapter cannot be merged into its weights: {first_line(error)}. Merge them with peft's "
            "merge_and_unload, save the model, and give its folder."
        ) from error
    missing = next((name for name in sorted(put.keys() ^ stored.keys()) if ".lora_" in name or name in stored), None)
    if missing is not None:
        raise DataError(
            f"{where}: its adapter does not fit its weights (only one of the two has {missing}). "
            "Restore the folder, or remove the adapter from it."
        )
    return whole
