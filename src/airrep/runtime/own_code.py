"""Refuse models that bring program code, unless they are trusted."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from airrep.errors import ConfigError

CODE = "*.py"
"""Files of program code."""

_MAPS = ("config.json", "tokenizer_config.json", "processor_config.json", "preprocessor_config.json")
_LIBRARY = "sentence_transformers."


def check_own_code(kind: str, name: str, folder: Path, trusted: bool) -> list[Path]:
    """Files of program code that a model asks to be run; none of any ordinary model.

    Args:
        kind: what errors call it, such as ``"encoder"``.
        name: of the model.
        folder: of the model.
        trusted: whether its user trusts the code.

    Raises:
        ConfigError: it asks for code and is not trusted, or the code lies elsewhere.
    """
    asked = dict(_asked(folder))
    if not asked:
        return []
    files = " and ".join(sorted(asked))
    if not trusted:
        raise ConfigError(
            f"{kind} {name}: brings program code of its own ({files} asks for it), which can do anything on this "
            "machine and is refused. Read the code, then set trust_remote_code=true; or give another model."
        )
    elsewhere = sorted({entry.partition("--")[0] for entries in asked.values() for entry in entries if "--" in entry})
    if elsewhere:
        raise ConfigError(
            f"{kind} {name}: its program code lies in another repository ({elsewhere[0]}), which is not fetched; "
            f"expected it in the model's folder. Put it there, and take '{elsewhere[0]}--' out of {files}."
        )
    return sorted(path for path in folder.rglob(CODE) if path.is_file())


def _asked(folder: Path) -> Iterator[tuple[str, list[str]]]:
    """Files that ask for code, with the classes that they name."""
    for path in sorted(folder.rglob("*.json")):
        if path.name in _MAPS:
            classes = list(_texts(_object(path).get("auto_map")))
        elif path.name in ("modules.json", "router_config.json"):
            classes = [text for text in _types(path) if not text.startswith(_LIBRARY)]
        else:
            continue
        if classes:
            yield path.relative_to(folder).as_posix(), classes


def _types(path: Path) -> Iterator[str]:
    """Classes of the modules of a sentence-transformers folder, or of its router."""
    content = _json(path)
    if isinstance(content, list):
        yield from (str(entry.get("type", _LIBRARY)) for entry in content if isinstance(entry, dict))
    elif isinstance(content, dict):
        yield from _texts(content.get("types"))


def _texts(value: Any) -> Iterator[str]:
    """All texts in lists and objects."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, list | dict):
        for part in value.values() if isinstance(value, dict) else value:
            yield from _texts(part)


def _object(path: Path) -> dict[str, Any]:
    content = _json(path)
    return content if isinstance(content, dict) else {}


def _json(path: Path) -> Any:
    """Content of a file; None if it is no JSON, which its reader will say."""
    try:
        return json.loads(path.read_bytes())
    except (OSError, ValueError):
        return None
