"""Downloads models from the Hub and refuses their program code unless trusted."""

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from airrep.errors import ArtifactError, ConfigError
from airrep.runtime.artifacts import fetched
from airrep.runtime.remote.places import path_of, url_of

CODE = "*.py"
"""Pattern of program code files."""
FILES_NAMED = 3
"""Most files that an error names, of the files that refer to program code."""
_MAPS = ("config.json", "tokenizer_config.json", "processor_config.json", "preprocessor_config.json")
_MODULES = ("modules.json", "router_config.json")
"""Files of sentence-transformers that list the modules of a model, and the modules of a router."""
_LIBRARY = "sentence_transformers."


class NoModelError(ConfigError):
    """A model's folder does not exist."""


def download(kind: str, name: str, patterns: Sequence[str], instead: str) -> Path:
    """Download a model ``owner/name`` from the Hub and return its folder.

    Error messages call the model *kind*, such as ``"encoder"``, and end with *instead*, a way without the Hub.
    *patterns* select files; they must exclude pickles, and program code unless the model is trusted. ConfigError: the
    Hub has no such public model, refuses access, or cannot be reached.
    """
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import GatedRepoError, HfHubHTTPError, RepositoryNotFoundError

    # A failed connection raises errors of the HTTP library, which are among the bases of the Hub's own error.
    below = (base for base in HfHubHTTPError.__mro__ if issubclass(base, Exception) and base is not Exception)
    unreachable: tuple[type[Exception], ...] = (OSError, ValueError, *below)
    missing = f"{kind} {name}: there is no such folder"
    try:
        return Path(snapshot_download(name, allow_patterns=list(patterns)))
    except unreachable as error:
        absent = isinstance(error, RepositoryNotFoundError) and not isinstance(error, GatedRepoError)
        if absent:
            raise ConfigError(
                f"{missing}, and the Hugging Face Hub has no such public model. Check the name, or log in: "
                "hf auth login"
            ) from error
        status = getattr(getattr(error, "response", None), "status_code", None)
        if isinstance(error, GatedRepoError) or status in (401, 403):
            raise ConfigError(
                f"{kind} {name}: access to it is restricted on the Hugging Face Hub, and you do not have access "
                "(yet). Request access on its page there, then log in: hf auth login"
            ) from error
        raise ConfigError(
            f"{missing}, and the Hugging Face Hub could not be reached ({type(error).__name__}). {instead}"
        ) from error


def model_folder(kind: str, name: str) -> Path:
    """Return a model's name as a local path, which need not exist; for a URL, the path of a current local copy.

    ConfigError: nothing is at the URL, or its storage cannot be read.
    """
    if url_of(name) is None:
        return path_of(name)
    try:
        return fetched(name, loose=True)
    except ArtifactError as error:
        raise ConfigError(f"{kind} {error}") from error


def check_own_code(kind: str, name: str, folder: Path, trusted: bool) -> list[Path]:
    """Return the program code files of a model whose configuration refers to code; an empty list for other models.

    ConfigError: the model needs code and is not *trusted*, or its code lies in another repository.
    """
    asked = dict(_asked(folder))
    if not asked:
        return []
    names = sorted(asked)
    files = " and ".join(names[:FILES_NAMED]) + (f" and {len(names) - FILES_NAMED} more" if names[FILES_NAMED:] else "")
    if not trusted:
        raise ConfigError(
            f"{kind} {name}: contains program code ({files} refers to it), which can do anything on this machine and "
            "is not run. Read the code and set trust_remote_code=true, or give another model."
        )
    elsewhere = sorted({entry.partition("--")[0] for entries in asked.values() for entry in entries if "--" in entry})
    if elsewhere:
        raise ConfigError(
            f"{kind} {name}: its program code lies in another repository ({elsewhere[0]}), which airrep does not "
            f"download. Put the code into the model's folder, and remove '{elsewhere[0]}--' from {files}."
        )
    return sorted(path for path in folder.rglob(CODE) if path.is_file())


def _asked(folder: Path) -> Iterator[tuple[str, list[str]]]:
    """Yield the configuration files that refer to program code, each with the classes that it names."""
    for path in sorted(folder.rglob("*.json")):
        if path.name not in (*_MAPS, *_MODULES):
            continue
        try:
            content = json.loads(path.read_bytes())
        except (OSError, ValueError, RecursionError):
            continue  # the file's actual reader reports this
        if isinstance(content, dict):
            found = _texts(content.get("auto_map" if path.name in _MAPS else "types"))
        elif isinstance(content, list) and path.name in _MODULES:
            found = (str(entry.get("type", _LIBRARY)) for entry in content if isinstance(entry, dict))
        else:
            continue
        classes = [one for one in found if path.name in _MAPS or not one.startswith(_LIBRARY)]
        if classes:
            yield path.relative_to(folder).as_posix(), classes


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, list | dict):
        for part in value.values() if isinstance(value, dict) else value:
            yield from _texts(part)


@contextmanager
def without_bars() -> Iterator[None]:
    """Disable the progress bars of transformers inside the block."""
    from transformers.utils import logging

    shown = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        if shown:
            logging.enable_progress_bar()
