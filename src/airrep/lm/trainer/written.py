"""Arguments, state and adapters that trainers write; a pickle runs nothing."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from airrep.errors import ConfigError, need
from airrep.lm.folders.checkpoints import STATE, checkpoints_in, last_checkpoint
from airrep.lm.folders.forms import ADAPTER_CONFIG
from airrep.runtime.settings import read_yaml

PICKLE = "training_args.bin"
ARGUMENTS = ("args.json", "training_args.json", PICKLE)
"""Files of all arguments, those first that say most: ms-swift's, one that a user wrote, transformers'."""
KIND = "kind of arguments"
"""Key under which the class of pickled arguments stands."""
_TELLING = ("learning_rate", "num_epochs", "num_train_epochs")
_YAML = (".yaml", ".yml")
_MOST_BYTES, _MOST_STATE_BYTES = 2**22, 2**28


class Written(NamedTuple):
    """Files found of one training; a missing part is empty."""

    path: Path
    """The file of the arguments, else of the state, else of the adapters; what was given if there is none."""
    arguments: Mapping[str, Any]
    state: Mapping[str, Any]
    adapters: Mapping[str, Any]


def find_written(path: Path) -> Written:
    """Read what a trainer wrote into a folder, into its last checkpoint and around it; or one file of it.

    ConfigError: there is no such path, or a file cannot be read or is none of a trainer.
    """
    if path.is_dir():
        return _of_files(path, list(_files(path)))
    if not path.is_file():
        raise ConfigError(f"training {path}: there is no such file or folder. Name a trainer's folder or config file.")
    found = _of_files(path, [path])
    if not any(found[1:]):
        raise ConfigError(
            f"training {path}: is no file of a trainer; expected {STATE}, {PICKLE}, args.json, {ADAPTER_CONFIG}, or a "
            "YAML config of axolotl, LLaMA-Factory or trl. Name one, or the trainer's folder."
        )
    return found


def _files(folder: Path) -> Iterator[Path]:
    last, around = last_checkpoint(folder), folder in checkpoints_in(folder.parent).values()
    places = [folder, *([] if last is None else [last]), *([folder.parent] if around else [])]
    for place in places:
        yield from (place / name for name in (*ARGUMENTS, STATE, ADAPTER_CONFIG) if (place / name).is_file())
    for place in places:
        yield from sorted(file for file in place.iterdir() if file.suffix in _YAML and _holds_mapping(file))


def _holds_mapping(file: Path) -> bool:
    """True if a YAML file can be read; a trainer's folder may hold files that are not the trainer's."""
    try:
        return file.is_file() and bool(_values(file))
    except ConfigError:
        return False


def _of_files(path: Path, files: list[Path]) -> Written:
    """The first of each kind among some files."""
    parts: dict[str, Mapping[str, Any]] = {}
    sources: dict[str, Path] = {}
    for file in files:
        if "arguments" in parts and file.name not in (STATE, ADAPTER_CONFIG):
            continue
        values = _values(file)
        if (kind := _kind(values)) is not None and kind not in parts:
            parts[kind], sources[kind] = values, file
    kinds = Written._fields[1:]
    source = next((sources[kind] for kind in kinds if kind in sources), path)
    return Written(source, *(parts.get(kind, {}) for kind in kinds))


def _kind(values: Mapping[str, Any]) -> str | None:
    """Name the part of :class:`Written` that a file holds; None if it holds none."""
    if "log_history" in values:
        return "state"
    if "peft_type" in values:
        return "adapters"
    return "arguments" if any(name in values for name in _TELLING) else None


def _values(file: Path) -> Mapping[str, Any]:
    """The values of a file by name; empty for one of another kind."""
    if file.suffix == ".bin":
        return _unpickled(file)
    found = None
    if file.suffix in _YAML and file.stat().st_size <= _MOST_BYTES:
        found = read_yaml(file)
    if file.suffix == ".json":
        found = _json(file)
    return found if isinstance(found, dict) else {}


def _json(file: Path) -> Any:
    try:
        return json.loads(file.read_bytes()) if file.stat().st_size <= _MOST_STATE_BYTES else None
    except (OSError, ValueError, RecursionError) as error:
        raise ConfigError(f"{file}: cannot be read as JSON ({type(error).__name__}). Restore the file.") from error


class _StandIn:
    """An object of a pickle whose class is not looked up: its values, and nothing that runs."""

    def __new__(cls, *values: Any) -> "_StandIn":
        made = super().__new__(cls)
        made.__dict__[KIND] = values
        return made


def _unpickled(file: Path) -> Mapping[str, Any]:
    """The values of pickled arguments.

    torch's reader of weights calls what it is allowed to alone, and each class that the pickle names, whatever it is,
    is a stand-in here. So no code of the file, or that it names, runs.
    """
    need(str(file), "lm", "torch")
    import torch
    from torch.serialization import get_unsafe_globals_in_checkpoint, safe_globals

    try:
        if file.stat().st_size > _MOST_BYTES:
            raise ValueError("larger than 4 MiB")
        allowed: list[Any] = [
            (type(name, (_StandIn,), {}), name) for name in get_unsafe_globals_in_checkpoint(str(file))
        ]
        with safe_globals(allowed):
            found = torch.load(file, map_location="cpu", weights_only=True)
    except Exception as error:  # damaged pickles raise nearly anything
        raise ConfigError(
            f"{file}: cannot be read as the arguments of a training ({type(error).__name__}), and is not run. Name "
            "another file of the trainer, or give its settings by --set."
        ) from error
    if not isinstance(found, _StandIn):
        raise ConfigError(f"{file}: holds no arguments of a training. Name another file of the trainer.")
    return {name: _plain(value) for name, value in vars(found).items()} | {KIND: type(found).__name__}


def _plain(value: Any) -> Any:
    """A value without stand-ins: of an enumeration's member its value, of another object its parts."""
    if not isinstance(value, _StandIn):
        return value
    parts = {name: _plain(part) for name, part in vars(value).items() if name != KIND}
    given = vars(value).get(KIND, ())
    return parts if parts or len(given) != 1 else given[0]
