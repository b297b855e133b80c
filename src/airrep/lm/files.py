"""Load and write the files of a target LM; checks of what is loaded."""

import json
import logging
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from safetensors import SafetensorError

from airrep.errors import ConfigError, caution, first_line, many, need
from airrep.lm.folders.forms import CONFIG, LmFiles
from airrep.runtime.artifacts import MANIFEST, check_sizes, read_manifest
from airrep.runtime.hub import without_bars

if TYPE_CHECKING:
    import torch
    from torch import Tensor

FAILURES = (OSError, ValueError, RuntimeError, KeyError, TypeError, AttributeError, ImportError, SafetensorError)
"""Errors of libraries that load models, depending on what is wrong with the files."""
WARM_UP = "warm-up"
"""Kind of the artifacts that hold a fine-tuned LM."""

ALL_CHAT = "chat for all rows"
"""Value in artifacts for template=chat."""
GENERATION = "generation_config.json"
_LOOKED_AT = 2**24  # numbers of a weight that are checked at a time
_log = logging.getLogger(__name__)


def warm_up_manifest(folder: Path) -> dict[str, Any] | None:
    """Return what :mod:`airrep.lm.warmup` recorded of a folder; None for other folders. ArtifactError if altered."""
    path = folder / MANIFEST
    if not path.is_file() or f'"kind": "{WARM_UP}"'.encode() not in path.read_bytes():
        return None
    manifest = read_manifest(folder, WARM_UP)
    check_sizes(folder, manifest["files"])
    return manifest


def recorded_reading(folder: Path) -> dict[str, Any]:
    """Return the settings that a warm-up read its examples with; none for other folders."""
    manifest = warm_up_manifest(folder)
    if manifest is None:
        return {}
    reading = {name: value for name, value in manifest["reading"].items() if name not in ("loss", "beta")}
    named = {"chat": None, ALL_CHAT: "chat"}
    return {**reading, "template": named.get(reading["template"], reading["template"])}


def recorded_base(folder: Path) -> dict[str, Any] | None:
    """Return the settings of the LM that a dpo or kto warm-up began from; None for any other folder."""
    manifest = warm_up_manifest(folder)
    if manifest is None or manifest["reading"].get("loss") not in ("dpo", "kto"):
        return None
    return {"lm": manifest["base"]["name"], "merged": manifest["base"].get("merged")}


def write_lm(model: Any, files: LmFiles, out: Path) -> None:
    """Write a causal LM into *out* as transformers does, with the tokenizer, chat template, generation settings and
    dropout of the files that the LM was loaded from.
    """
    from transformers import GenerationConfig

    own, model.generation_config = model.generation_config, GenerationConfig()  # transformers refuses to save some
    try:
        with without_bars():
            model.save_pretrained(out)
    finally:
        model.generation_config = own
    (out / GENERATION).unlink()
    for path, place in copied_files(files).items():
        (out / place).parent.mkdir(exist_ok=True)
        shutil.copyfile(path, out / place)
    written, before = (json.loads((folder / CONFIG).read_bytes()) for folder in (out, files.weights))
    # Loading set dropout to 0; the written LM has that of its base.
    dropout = {name: value for name, value in before.items() if "drop" in name}
    (out / CONFIG).write_text(json.dumps(written | dropout, indent=2, sort_keys=True) + "\n", "utf-8")


def copied_files(files: LmFiles) -> dict[Path, Path]:
    """Files that :func:`write_lm` copies as they are, with their places in the new folder."""
    folders = dict.fromkeys(files.tokenizer_files, files.tokenizer)
    if (files.weights / GENERATION).is_file():
        folders[files.weights / GENERATION] = files.weights
    for path, folder in folders.items():
        whole = folder.resolve()
        # In the Hub's cache, files in models--…/snapshots/… are links into models--…/blobs.
        allowed = [whole, *([whole.parents[1] / "blobs"] if whole.parent.name == "snapshots" else [])]
        if not any(path.resolve().is_relative_to(one) for one in allowed):
            raise ConfigError(
                f"lm {files.name}: {path.relative_to(folder)} is a link to {path.resolve()}, outside the folder, so "
                "airrep does not copy it. If that file belongs to the model, replace the link with a copy of the file."
            )
    return {path: path.relative_to(folder) for path, folder in folders.items()}


def read_weights(path: Path, where: str, advice: str) -> dict[str, "Tensor"]:
    """Read a safetensors file; the ConfigError for a damaged file begins with *where* and ends with *advice*."""
    from safetensors.torch import load_file

    try:
        return load_file(path)
    except (OSError, SafetensorError) as error:
        raise ConfigError(f"{where} cannot be read: {first_line(error)}. {advice}") from error


def take_weights(model: Any, stored: Mapping[str, "Tensor"], path: Path) -> None:
    """Copy *stored* weights into a model, in place; ConfigError if their names or shapes are not the model's."""
    import torch

    own = dict(model.named_parameters())
    if stored.keys() != own.keys() or any(stored[name].shape != own[name].shape for name in own):
        raise ConfigError(f"weights {path}: do not fit this {type(model).__name__}. Give weights of the same LM.")
    with torch.no_grad():
        for name, weight in own.items():
            weight.copy_(stored[name])


def load_tokenizer(folder: Path, name: str, trusted: bool = False) -> Any:
    """Load the tokenizer of an LM; code in its folder runs only if *trusted*."""
    need(f"lm {name}", "lm", "transformers")
    from transformers import AutoTokenizer

    with _loading(name, "its tokenizer cannot be loaded"):
        tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True, trust_remote_code=trusted)
    _tell_of_other_rules(tokenizer, folder / "tokenizer.json", name)
    return tokenizer


_PROBE = "She'LL pay $1234.50 in 2024.\n\n  Ça va: def f(x):\n\treturn 東京"
"""Text that tokenizers with different rules split differently: case, signs, numbers, spaces, line ends, scripts."""


def _tell_of_other_rules(tokenizer: Any, path: Path, name: str) -> None:
    """Warn if transformers built the tokenizer by the rules of its class, and these differ from tokenizer.json.

    The tokenizer is kept: trainers that run on the same version of transformers split texts in the same way.
    """
    ours = getattr(tokenizer, "backend_tokenizer", None)
    if ours is None or type(tokenizer).__name__ in ("TokenizersBackend", "PreTrainedTokenizerFast"):
        return  # a slow tokenizer has no such file; these classes follow the file
    from tokenizers import Tokenizer
    from transformers import __version__

    try:
        theirs = Tokenizer.from_file(str(path))
    except Exception:  # the library raises a bare Exception, also if the file is missing
        return
    if ours.encode(_PROBE, add_special_tokens=False).ids != theirs.encode(_PROBE, add_special_tokens=False).ids:
        caution(
            _log,
            f"lm {name}: transformers {__version__} splits texts by the rules of {type(tokenizer).__name__}, not of "
            "tokenizer.json. If you trained by the file, as transformers 4 does, set tokenizer_class to "
            "TokenizersBackend in tokenizer_config.json (this does not help where model_type is qwen2).",
        )


def load_network(folder: Path, name: str, trusted: bool = False, kind: "torch.dtype | None" = None) -> Any:
    """Load a causal LM with weights in float32, or in *kind*; dropout is off, and no token counts as padding.

    The LM uses packed attention if its code lets attention be replaced, else its own attention.
    """
    stored_tensors(folder, name)
    model = with_attention(name, lambda attention: _read_network(folder, trusted, attention, kind))
    for key, parameter in model.named_parameters():
        rows = max(1, _LOOKED_AT // max(1, parameter[:1].numel()))  # a few at a time: checks copy them
        if not all(map(_finite, parameter.detach().split(rows))):
            raise ConfigError(f"lm {name}: weight {key} is not finite (NaN or infinite). Use another checkpoint.")
    return make_plain(model)


def with_attention(name: str, read: Callable[[str | None], tuple[Any, Mapping[str, Any]]]) -> Any:
    """Return the LM that *read* loads with packed attention if its code lets attention be replaced, else its own.

    *read* takes the name of an attention (None: the LM's own) and returns the LM and transformers' loading report.
    ConfigError: the report has weights that are missing or have another shape.
    """
    from transformers import AttentionInterface

    from airrep.lm.attention import NAME, attend

    AttentionInterface.register(NAME, attend)
    with _loading(name, "cannot be loaded as a causal LM"):
        try:
            model, report = read(NAME)
        except (ValueError, KeyError) as error:  # of code that knows only its own attention
            if NAME not in str(error):
                raise
            model = None
        tells = getattr(type(model), "_can_set_attn_implementation", lambda: True)
        if model is None or not tells():  # without a mask, its code would attend to all tokens
            model, report = read(None)
    # transformers would draw these weights at random, and only warn.
    if absent := sorted({*report["missing_keys"], *(str(key[0]) for key in report["mismatched_keys"])}):
        raise ConfigError(
            f"lm {name}: {type(model).__name__} needs {many(len(absent), 'weight')} that the folder lacks or has in "
            f"another shape; the first is {absent[0]}. Give a folder with a complete causal LM."
        )
    return model


def stored_tensors(folder: Path, name: str) -> dict[str, Mapping[str, Any]]:
    """Return type, shape and place of each tensor in the safetensors files of an LM's folder, from their headers.

    Raises:
        ConfigError: a file that the folder's index names is missing, or a file has another size than its header says.
    """
    found: dict[str, Mapping[str, Any]] = {}
    for path in _weight_files(folder, name):
        try:
            with path.open("rb") as file:
                length = int.from_bytes(file.read(8), "little")
                header = json.loads(file.read(length)) if length <= 2**27 else {}
            header.pop("__metadata__", None)
            whole = 8 + length + max((entry["data_offsets"][1] for entry in header.values()), default=0)
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise _damaged(name, path, "cannot be read") from error
        if path.stat().st_size != whole:
            raise _damaged(name, path, f"has {path.stat().st_size:,} bytes, but its header describes {whole:,}")
        found |= header
    return found


def stored_weights(folder: Path, name: str) -> dict[str, "Tensor"]:
    """Read all tensors in the safetensors files of an LM's folder, in their stored types."""
    stored_tensors(folder, name)
    advice = "Download it again."
    parts = (read_weights(path, f"lm {name}: {path.name}", advice) for path in _weight_files(folder, name))
    return {key: tensor for part in parts for key, tensor in part.items()}


def _weight_files(folder: Path, name: str) -> list[Path]:
    """List the weight files of a folder: the files that its index names, else all but adapters."""
    index = folder / "model.safetensors.index.json"
    if not index.is_file():
        return sorted(path for path in folder.glob("*.safetensors") if not path.name.startswith("adapter"))
    try:
        names = sorted(set(json.loads(index.read_bytes())["weight_map"].values()))
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise _damaged(name, index, "cannot be read") from error
    missing = [name for name in names if not (folder / name).is_file()]
    if missing:
        raise _damaged(name, folder / missing[0], f"is missing ({len(missing)} of {len(names)} weight files are)")
    return [folder / name for name in names]


def _damaged(name: str, path: Path, what: str) -> ConfigError:
    return ConfigError(f"lm {name}: {path.name} {what}. Download it again.")


def _finite(part: "Tensor") -> bool:
    """True if all numbers of a part of a weight are finite; a finite sum proves it most quickly."""
    import torch

    return bool(part.sum(dtype=torch.float32).isfinite()) or bool(part.isfinite().all())


def _read_network(folder: Path, trusted: bool, attention: str | None, kind: "torch.dtype | None") -> Any:
    """Load a causal LM with transformers, in *kind* or float32; return it and the loading report."""
    import torch
    from transformers import AutoModelForCausalLM

    return AutoModelForCausalLM.from_pretrained(
        folder,
        dtype=kind or torch.float32,
        attn_implementation=attention,
        local_files_only=True,
        trust_remote_code=trusted,
        use_safetensors=True,
        output_loading_info=True,
    )


def make_plain(model: Any) -> Any:
    """Switch dropout off, and let every row of the embeddings learn: texts may contain the pad token."""
    import torch

    for module in model.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0
        for holder in (module, getattr(module, "config", None)):  # rates for dropout by a function
            for name, value in list(getattr(holder, "__dict__", {}).items()):
                if "drop" in name and isinstance(value, float):
                    setattr(holder, name, 0.0)
        if isinstance(module, torch.nn.Embedding):
            module.padding_idx = None
    return model.eval()


@contextmanager
def _loading(name: str, what: str) -> Iterator[None]:
    """Load without progress bars; turn errors of the loading libraries into a one-line ConfigError."""
    try:
        with without_bars():
            yield
    except FAILURES as error:
        raise ConfigError(f"lm {name}: {what}: {first_line(error)}. Give another LM.") from error
