"""Find the files of a target LM: weights, adapters, checkpoints; which LM is meant."""

import json
import logging
import math
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from filecmp import cmp
from pathlib import Path
from typing import Any, NamedTuple

from airrep.errors import ConfigError, caution, near_path
from airrep.lm.folders.gguf import gguf_of, unpacked
from airrep.runtime.artifacts import file_digest, json_digest
from airrep.runtime.hub import CODE, NoModelError, check_own_code, download, model_folder
from airrep.runtime.remote.hub import pinned

PLAIN = "mxfp4"
"""Quantised format that transformers converts to plain weights on every machine."""
BITSANDBYTES, GPTQ, AWQ = "bitsandbytes", "gptq", "awq"


def quantised(config: Mapping[str, Any]) -> str | None:
    """Return the format of quantised weights that airrep reads; None if weights are plain, or cannot be read."""
    found = config.get("quantization_config")
    return _method(found) if isinstance(found, Mapping) and _is_read(found) else None


def not_read(config: Mapping[str, Any]) -> str | None:
    """Return the name of a format that airrep cannot read, with its bits or version; None if it reads the weights."""
    found = config.get("quantization_config")
    if not isinstance(found, Mapping) or _method(found) == PLAIN or _is_read(found):
        return None
    beyond = [f"{key}={found[key]}" for key in ("bits", "version", "checkpoint_format", "format") if key in found]
    return " ".join([_method(found), *(beyond if _method(found) in (GPTQ, AWQ) else [])])


def _method(found: Mapping[str, Any]) -> str:
    """Return the name of a format; folders of early versions of bitsandbytes do not give it."""
    old = BITSANDBYTES if {"load_in_4bit", "load_in_8bit"} & found.keys() else "unknown"
    return str(found.get("quant_method", old))


def _is_read(found: Mapping[str, Any]) -> bool:
    method = _method(found)
    if method == GPTQ:
        kind = found.get("checkpoint_format", found.get("format", "gptq"))
        return found.get("bits") in (4, 8) and kind in ("gptq", "gptq_v2")
    if method == AWQ:
        return found.get("bits") == 4 and str(found.get("version", "gemm")).lower() == "gemm"
    return method == BITSANDBYTES


CONFIG = "config.json"
ADAPTER = "adapter_model.safetensors"
ADAPTER_CONFIG = "adapter_config.json"
BASE = "base_model_name_or_path"
STATE = "trainer_state.json"

_WEIGHTS = ("*.safetensors", "*.safetensors.index.json")
_TOKENIZER = (
    *("tokenizer*", "vocab*", "merges.txt", "special_tokens_map.json", "added_tokens.json"),
    *("*.model", "*.jinja", "additional_chat_templates/*"),
)
_VOCABULARY = ("tokenizer.json", "tokenizer_config.json", "vocab.json", "*.model")
_WANTED = (CONFIG, ADAPTER_CONFIG, *_WEIGHTS, *_TOKENIZER, "generation_config.json")
_HUB_ID = re.compile(r"[\w-][\w.-]*(/[\w-][\w.-]*)?")
_NAMED = 5  # folders that an error names
_MOST_BYTES = 2**22  # of a configuration


@dataclass(frozen=True)
class LmFiles:
    """Folders of the parts of a target LM."""

    name: str
    """Name that was given: a folder, or an id on the Hub."""
    folder: Path
    """Folder that the name stands for."""
    weights: Path
    """Folder with configuration and weights: *folder*, or the base of its adapters."""
    tokenizer: Path
    """Folder with the tokenizer and the chat template."""
    adapter: Path | None = None
    """Folder of adapters that are added to the weights."""
    base: str | None = None
    """Name of the base of the adapters, also if the adapters are left out; None if there are none."""
    gguf: Path | None = None
    """GGUF file with the weights; *folder* has what was read from the file."""

    def digests(self, trusted: bool = False) -> dict[str, str]:
        """Return the sha256 of each file that decides what the LM reads and computes, by name; of code if *trusted*.

        The names of files in the folder of a base or a tokenizer begin with ``base/`` or ``tokenizer/``.
        """
        if self.gguf is not None:
            return {"model.gguf": file_digest(self.gguf)}
        code = check_own_code("lm", str(self.weights), self.weights, True) if trusted else []
        parts = [
            ("base/", self.weights, [*_files(self.weights, (*_WEIGHTS, CONFIG)), *code]),
            ("base/" if self.tokenizer == self.weights else "tokenizer/", self.tokenizer, self.tokenizer_files),
        ]
        found = {
            ("" if folder == self.folder else prefix) + path.relative_to(folder).as_posix(): file_digest(path)
            for prefix, folder, paths in parts
            for path in paths
        }
        return dict(sorted({**found, **({} if self.adapter is None else adapter_digests(self.adapter))}.items()))

    def digest(self, trusted: bool = False) -> str:
        """Return 64 hex digits over all :meth:`digests`."""
        return json_digest(self.digests(trusted))

    @property
    def tokenizer_files(self) -> list[Path]:
        """Files of the tokenizer and its chat templates."""
        return _files(self.tokenizer, _TOKENIZER)


def find_lm(name: str, trusted: bool = False, base: str | None = None, merged: bool | None = None) -> LmFiles:
    """Find the files of an LM, given as a folder, as a GGUF file or as an id on the Hugging Face Hub.

    The folder holds a whole LM, adapters that peft wrote, or only a trainer's checkpoints, of which the last is taken.
    *base* is the LM under the adapters, if it is not the one that they name. With *merged* False the LM is the base,
    with the tokenizer and the chat template that the adapters were trained with.
    """
    if (gguf := gguf_of(name, model_folder("lm", name))) is not None:
        folder = unpacked(name, gguf)
        return LmFiles(name, folder, folder, folder, gguf=gguf)
    folder = settled(_folder(name, trusted))
    check_own_code("lm", name, folder, trusted)
    if not _holds_adapters(name, folder):
        _check_whole(name, folder)
        _check_plain(name, folder)
        if base is not None:
            raise ConfigError(f"lm {name}: is a complete LM, not adapters, so it has no base. Remove base={base}.")
        return LmFiles(name, folder, folder, tokenizer_folder(name, folder))
    named, weights = _base_of(name, folder, base, trusted)
    tokenizer = tokenizer_folder(name, folder, weights)
    if merged is False:
        return LmFiles(
            name, weights, weights, weights if _same_tokenizer(tokenizer, weights) else tokenizer, base=named
        )
    return LmFiles(name, folder, weights, tokenizer, folder, named)


def settled(folder: Path) -> Path:
    """Return an LM's folder; if it holds no LM itself, the last checkpoint or the only adapters in its subfolders."""
    if any((folder / name).exists() for name in (CONFIG, ADAPTER_CONFIG)):
        return folder
    last, named = last_checkpoint(folder), adapters_in(folder)
    return folder if last is None and len(named) != 1 else settled(last or named[0])


def adapters_in(folder: Path) -> list[Path]:
    """List the subfolders of a folder that hold adapters, as peft writes adapters with a name."""
    return sorted(path.parent for path in folder.glob(f"*/{ADAPTER_CONFIG}")) if folder.is_dir() else []


def settled_name(name: str) -> str:
    """Return the absolute path of a file, or of :func:`settled` for a folder; add the commit to a name on the Hub, and
    keep other names."""
    return str(settled(Path(name).resolve())) if Path(name).exists() else pinned(name)


def tokenizer_folder(name: str, folder: Path, base: Path | None = None) -> Path:
    """Find the folder of an LM's tokenizer: its own, else one around a trainer's checkpoint, else its base's."""
    around = list(_around(folder))
    places = [folder, *around, *([] if base is None else [base])]
    found = next((place for place in places if _files(place, _VOCABULARY)), None)
    if found is None:
        where = " or ".join(
            ["this folder", *(["its parent"] if around else []), *(["the base of its adapters"] if base else [])]
        )
        raise ConfigError(
            f"lm {name}: there is no tokenizer.json in {where}. Save the tokenizer there: "
            f"tokenizer.save_pretrained({str(around[-1] if around else folder)!r})"
        )
    return found


def _around(folder: Path) -> Iterator[Path]:
    """Yield the folders around a trainer's checkpoint, or around adapters with a name, from the same training."""
    parent = folder.parent
    named = folder in adapters_in(parent) and not (parent / CONFIG).is_file()
    if named or folder in checkpoints_in(parent).values():
        yield parent
        yield from _around(parent)


def _same_tokenizer(one: Path, other: Path) -> bool:
    first, second = ({path.relative_to(place): path for path in _files(place, _TOKENIZER)} for place in (one, other))
    return first.keys() == second.keys() and all(cmp(first[name], second[name], shallow=False) for name in first)


def adapter_digests(folder: Path) -> dict[str, str]:
    """Return digests of a folder's adapters, by file; the base's name does not count, since a base may move."""
    config = {key: value for key, value in read_config(folder / ADAPTER_CONFIG).items() if key != BASE}
    return {ADAPTER_CONFIG: json_digest(config), ADAPTER: file_digest(folder / ADAPTER)}


def weights_digest(path: Path) -> str:
    """64 hex digits over weights: of a file, or of a folder with a whole LM or adapters."""
    if path.is_file():
        return file_digest(path)
    if (path / ADAPTER_CONFIG).is_file():
        return json_digest(adapter_digests(path))
    return json_digest({each.name: file_digest(each) for each in _files(path, _WEIGHTS)})


def read_config(path: Path) -> dict[str, Any]:
    """Read a JSON object (ConfigError: the file cannot be read, is too large, or is not a JSON object)."""
    try:
        found = json.loads(path.read_bytes()) if path.stat().st_size <= _MOST_BYTES else None
    except (OSError, ValueError, RecursionError) as error:
        raise ConfigError(f"{path}: cannot be read as JSON ({type(error).__name__}). Restore the file.") from error
    if not isinstance(found, dict):
        raise ConfigError(f"{path}: is not a JSON object, or is larger than 4 MiB. Restore the file.")
    return found


def _folder(name: str, trusted: bool) -> Path:
    """Return the folder that a name stands for; download it if the name is an id on the Hub."""
    path = model_folder("lm", name)
    if path.is_dir():
        return path
    if path.exists() or _HUB_ID.fullmatch(name) is None:
        instead = "Give a folder, or owner/name on the Hugging Face Hub."
        if path.exists():
            raise ConfigError(f"lm {name}: this is a file. {instead}")
        raise NoModelError(f"lm {name}: there is no such folder. {instead} {near_path(path)}")
    wanted = (*_WANTED, CODE) if trusted else _WANTED
    return download("lm", name, wanted, "Fetch it elsewhere (hf download) and give its folder.")


def _check_whole(name: str, folder: Path) -> None:
    if not (folder / CONFIG).is_file() and (named := adapters_in(folder)):
        names = ", ".join(short(path.name) for path in named[:_NAMED]) + (", …" if named[_NAMED:] else "")
        raise ConfigError(
            f"lm {name}: holds {len(named)} adapters ({names}), each in its own folder. Choose one of them: "
            f"--lm {folder / named[0].name}"
        )
    for pattern in (CONFIG, "*.safetensors"):
        if not any(folder.glob(pattern)):
            raise ConfigError(
                f"lm {name}: its folder has no {pattern}. Give a folder with a Hugging Face causal LM in safetensors, "
                "adapters that peft wrote, or checkpoints of a trainer; or save the LM again with save_pretrained."
            )


def _check_plain(name: str, folder: Path, remedy: str = "") -> None:
    """Refuse weights that are quantised in a format that airrep cannot read."""
    try:
        kind = not_read(read_config(folder / CONFIG))
    except ConfigError:  # reported where the configuration is needed
        return
    if kind is not None:
        raise ConfigError(
            f"lm {name}: its weights are quantised ({short(kind)}) in a format that airrep cannot read. It reads 16 "
            "and 32 bits, GGUF, bitsandbytes, GPTQ (4 and 8 bits) and AWQ (gemm). Give the LM before "
            f"quantisation{remedy}, or run transformers' model.dequantize() and save_pretrained()."
        )


def _holds_adapters(name: str, folder: Path) -> bool:
    """True if a folder holds adapters; refuse adapters that lack weights, and a folder with adapters and an LM."""
    if not (folder / ADAPTER_CONFIG).is_file():
        return False
    if not (folder / ADAPTER).is_file():
        pickled = " (pickled adapters are never loaded)" if (folder / "adapter_model.bin").is_file() else ""
        raise ConfigError(
            f"lm {name}: has {ADAPTER_CONFIG} but no {ADAPTER}{pickled}. Save the adapters again with peft's "
            "save_pretrained."
        )
    if (folder / CONFIG).is_file() and any(path.name != ADAPTER for path in folder.glob("*.safetensors")):
        raise ConfigError(
            f"lm {name}: holds both a complete LM and adapters, so airrep cannot know whether the adapters are merged "
            "into the LM already. Move the adapters or the LM to another folder."
        )
    return True


def _base_of(name: str, folder: Path, base: str | None, trusted: bool) -> tuple[str, Path]:
    """Name and folder of the whole LM that adapters belong to."""
    named = base or read_config(folder / ADAPTER_CONFIG).get(BASE)
    remedy = "Say where the base is: --set base=MODEL"
    if not isinstance(named, str) or not named:
        raise ConfigError(f"lm {name}: its {ADAPTER_CONFIG} does not name the base LM ({BASE}). {remedy}")
    beside = folder / named
    try:
        found = beside if base is None and beside.is_dir() else _folder(named, trusted)
    except (ConfigError, OSError, ValueError) as error:
        reason = str(error).partition(": ")[2].strip() or f"cannot be looked for ({type(error).__name__})"
        reason = short(reason.partition(". ")[0].partition("; expected")[0])
        raise ConfigError(f"lm {name}: its adapters' base {short(named)} cannot be used: {reason}. {remedy}") from error
    found = settled(found)
    if (found / ADAPTER_CONFIG).is_file():
        raise ConfigError(
            f"lm {name}: the base of its adapters, {short(named)}, holds adapters too, not a complete LM. Merge these "
            "adapters with peft's merge_and_unload, and give the merged LM: --set base=MODEL"
        )
    _check_whole(f"{name}, base {short(named)}", found)
    _check_plain(f"{name}, base {short(named)}", found, ": --set base=MODEL")
    check_own_code("lm", short(named), found, trusted)
    return short(named), found


def short(text: str) -> str:
    """Return a name from a file with printable characters only, cut to 200 characters."""
    return "".join(letter if letter.isprintable() else "?" for letter in text[:200])


def _files(folder: Path, patterns: Iterable[str]) -> list[Path]:
    return sorted({path for pattern in patterns for path in folder.glob(pattern) if path.is_file()})


_BESIDE = (
    *(STATE, "training_args.bin", "optimizer*", "scheduler.pt", "train_results.json", "trainer_log.jsonl"),
    *("zero_to_fp32.py", "record.json"),
)
"""Files that trainers, and airrep's record of a training, leave beside the trained weights."""
_CARD = re.compile(r"^base_model:\s*([\w.-]+/[\w.-]+)\s*$", re.MULTILINE)

_log = logging.getLogger(__name__)


def meant(name: str, merged: bool | None, base: str | None = None, trusted: bool = False) -> bool | None:
    """Decide whether an LM's adapters are added to it (True, None) or left out (False).

    Data are attributed by what they would change in the LM, so airrep reads the LM before training. It leaves adapters
    out, with a caution, and refuses a whole LM that was trained already. Users set ``merged`` to keep the LM as it is.
    """
    if merged:
        return True
    files = find_lm(name, trusted, base)
    if files.adapter is None:
        folder = files.folder
        beside = [path.name for pattern in _BESIDE for path in sorted(folder.glob(pattern))]
        beside += [path.name for path in checkpoints_in(folder).values()]
        if beside and Path(name).is_dir():  # the Hub's cache holds only the files that were downloaded
            raise ConfigError(
                f"lm {name}: a trainer left {short(beside[0])} in its folder, so this seems to be the LM after "
                f"training. Give the LM before training{_before(folder)}, or keep this LM with --set merged=true"
            )
        return merged
    if merged is None:
        caution(
            _log,
            f"lm {short(name)}: holds adapters. airrep reads the LM before training: only their base, {files.base} "
            "(--set merged=true adds the adapters)",
        )
    return False


def _before(folder: Path) -> str:
    """Return the base model that a model card names, in brackets; empty if there is none."""
    card = folder / "README.md"
    found = _CARD.search(card.read_text("utf-8", "replace")[:100_000]) if card.is_file() else None
    return "" if found is None else f" ({found[1]}, as its README.md says)"


_NAME = re.compile(r"checkpoint-([0-9]{1,12})")


class Checkpoint(NamedTuple):
    """Weights after one step of a fine-tune."""

    path: Path
    """A file of all weights, or the folder of an LM, for :meth:`airrep.lm.model.TargetLM.load_weights`."""
    rate: float
    """Mean learning rate of the steps since the checkpoint before, TracIn's weight."""


def checkpoints_in(folder: Path) -> dict[int, Path]:
    """Return the folders ``checkpoint-STEP`` in a folder by step, ascending."""
    found = {
        int(match[1]): path
        for path in (folder.iterdir() if folder.is_dir() else ())
        if (match := _NAME.fullmatch(path.name)) is not None and path.is_dir()
    }
    return dict(sorted(found.items()))


def last_checkpoint(folder: Path) -> Path | None:
    """Return the checkpoint with the most steps in a folder; None if there is none."""
    return next(reversed(checkpoints_in(folder).values()), None)


def trainer_checkpoints(folder: Path) -> tuple[Checkpoint, ...]:
    """Return the checkpoints of the run that a folder belongs to, in the order of training; none for other folders.

    The folder is the trainer's output, or one of its checkpoints, after which later checkpoints do not count. Each
    checkpoint's rate is the mean of the rates that the trainer logged since the checkpoint before.
    """
    found = checkpoints_in(folder)
    if not found and folder in checkpoints_in(folder.parent).values():
        around = checkpoints_in(folder.parent)
        last = next(step for step, path in around.items() if path == folder)
        found = {step: path for step, path in around.items() if step <= last}
    if not found:
        return ()
    rates = _logged_rates(found[max(found)] / STATE)
    bounds = zip([0, *found], found, strict=False)
    return tuple(Checkpoint(found[end], _mean_rate(rates, begin, end, found[end])) for begin, end in bounds)


def _mean_rate(rates: dict[int, float], begin: int, end: int, path: Path) -> float:
    """Return the mean of the rates that were logged in steps ``begin + 1`` to ``end``."""
    between = [rate for step, rate in rates.items() if begin < step <= end]
    if not between:
        raise ConfigError(
            f"{path}: the trainer logged no learning rate between steps {begin} and {end}, so airrep cannot "
            "weight this checkpoint. Train with a smaller logging_steps, or use checkpoints=final."
        )
    return math.fsum(between) / len(between)


def _logged_rates(path: Path) -> dict[int, float]:
    try:
        state: Any = json.loads(path.read_bytes())
        lines = state["log_history"]
        found = {line["step"]: line["learning_rate"] for line in lines if "learning_rate" in line}
    except (OSError, ValueError, TypeError, KeyError, RecursionError) as error:
        raise ConfigError(
            f"{path}: cannot be read as the state that transformers' Trainer writes beside a checkpoint "
            f"({type(error).__name__}). Restore the file, or use checkpoints=final."
        ) from error
    good = all(type(step) is int and type(rate) in (int, float) and 0 <= rate < 1e6 for step, rate in found.items())
    if not good:
        raise ConfigError(f"{path}: a logged learning rate is negative or not a number. Use checkpoints=final.")
    return found
