"""Find, load and check the files of a target LM."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError

from airrep import lm_attention
from airrep.artifacts import file_digest
from airrep.errors import ConfigError
from airrep.hub import download

_WEIGHTS = ("*.safetensors", "*.safetensors.index.json")
_READING = (
    *("config.json", "tokenizer*", "vocab*", "merges.txt", "special_tokens_map.json", "added_tokens.json"),
    *("*.model", "*.jinja", "additional_chat_templates/*"),
)
_WANTED = (*_WEIGHTS, *_READING, "generation_config.json")
_HUB_ID = re.compile(r"[\w-][\w.-]*(/[\w-][\w.-]*)?")


def find_lm(name: str) -> Path:
    """Return the folder of an LM, given as such or as an id on the Hugging Face Hub.

    Raises:
        ConfigError: there is no such folder, it holds no LM, or it cannot be had from the Hub.
    """
    path = Path(name)
    if not path.is_dir():
        if path.exists() or _HUB_ID.fullmatch(name) is None:
            kind = "is a file" if path.exists() else "there is no such folder"
            raise ConfigError(f"lm {name}: {kind}; expected a folder, or owner/name on the Hugging Face Hub. Check it.")
        path = download("lm", name, _WANTED, "Fetch it elsewhere (hf download) and give its folder.")
    for pattern in ("config.json", "*.safetensors"):
        if not any(path.glob(pattern)):
            raise ConfigError(
                f"lm {name}: its folder has no {pattern}; expected a Hugging Face causal LM with weights in "
                "safetensors. Give another folder, or save the LM again with save_pretrained."
            )
    return path


def digests(folder: Path) -> dict[str, str]:
    """sha256 of each file that decides what an LM reads and computes, by its name."""
    found = {path for pattern in (*_WEIGHTS, *_READING) for path in folder.glob(pattern) if path.is_file()}
    return {path.relative_to(folder).as_posix(): file_digest(path) for path in sorted(found)}


def load_tokenizer(folder: Path, name: str) -> Any:
    """Load the tokenizer of an LM.

    Raises:
        ConfigError: transformers cannot load it.
    """
    from transformers import AutoTokenizer

    with _loading(name, "its tokenizer"):
        return AutoTokenizer.from_pretrained(folder, local_files_only=True, trust_remote_code=False)


def load_network(folder: Path, name: str) -> Any:
    """Load a causal LM with float32 weights and packed attention; dropout is off, and no token is padding.

    Raises:
        ConfigError: transformers cannot load it, it is no causal LM, or weights are missing or not finite.
    """
    from transformers import AutoModelForCausalLM

    lm_attention.register()
    with _loading(name, "a causal LM"):
        model, report = AutoModelForCausalLM.from_pretrained(
            folder,
            dtype=torch.float32,
            attn_implementation=lm_attention.NAME,
            local_files_only=True,
            trust_remote_code=False,
            use_safetensors=True,
            output_loading_info=True,
        )
    absent = sorted({*report["missing_keys"], *(str(key[0]) for key in report["mismatched_keys"])})
    if absent:
        raise ConfigError(
            f"lm {name}: {len(absent)} weights are missing or of another shape, the first {absent[0]}; expected those "
            f"of a {type(model).__name__}. Give a folder with a causal LM."
        )
    for key, parameter in model.named_parameters():
        if not bool(torch.isfinite(parameter).all()):
            raise ConfigError(f"lm {name}: weight {key} is not finite (NaN or infinite). Use another checkpoint.")
    return _plain(model)


def _plain(model: Any) -> Any:
    """Switch dropout off, and let every row of the embeddings learn: its pad token may be a word of the texts."""
    for module in model.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0
        for holder in (module, getattr(module, "config", None)):
            _without_dropout(holder)
        if isinstance(module, torch.nn.Embedding):
            module.padding_idx = None
    return model.eval()


def _without_dropout(holder: object) -> None:
    """Set the rates to 0 that a module or a configuration holds as plain numbers, for dropout as a function."""
    for name, value in list(getattr(holder, "__dict__", {}).items()):
        if "drop" in name and isinstance(value, float):
            setattr(holder, name, 0.0)


@contextmanager
def _loading(name: str, part: str) -> Iterator[None]:
    """Load without progress bars; what goes wrong becomes a one-line ConfigError."""
    from transformers.utils import logging

    shown = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        yield
    except (
        OSError,
        ValueError,
        RuntimeError,
        KeyError,
        TypeError,
        AttributeError,
        ImportError,
        SafetensorError,
    ) as error:
        raise ConfigError(f"lm {name}: {part} cannot be loaded: {_reason(error)}. Give another LM.") from error
    finally:
        if shown:
            logging.enable_progress_bar()


def _reason(error: Exception) -> str:
    """First line of an error, without its full stop."""
    if lm_attention.NAME in str(error):
        return "it takes no attention from outside, so that documents cannot be packed"
    return str(error).strip().partition("\n")[0].rstrip(".") or type(error).__name__
