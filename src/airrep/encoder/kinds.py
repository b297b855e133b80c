"""Refuse by name models that make something else than one vector of a text."""

from collections.abc import Iterator
from pathlib import Path

from airrep.encoder.folders import MODULES, SETTINGS, parse_json, read_optional
from airrep.errors import ConfigError

_OTHERS = {
    "sparse": "a sparse encoder",
    "splade": "a sparse encoder",
    "multivector": "a multi-vector encoder",
    "colbert": "a multi-vector encoder",
    "pylate": "a multi-vector encoder",
    "maxsim": "a multi-vector encoder",
    "forretrieval": "a multi-vector encoder",
    "crossencoder": "a cross encoder",
    "forsequenceclassification": "a cross encoder or classifier",
    "forcausallm": "a language model",
    "lmheadmodel": "a language model",
    "forconditionalgeneration": "a language model",
}
"""Meanings of parts of a class's name, in lower case without underscores."""


def refuse_other_kinds(folder: Path) -> None:
    """Refuse a folder whose files name another kind of model.

    Raises:
        ConfigError: the model is a sparse, multi-vector or cross encoder, a classifier or a language model.
    """
    for name in _names(folder):
        plain = name.replace("_", "").lower()
        kind = next((kind for part, kind in _OTHERS.items() if part in plain), None)
        if kind is not None:
            raise ConfigError(
                f"{folder}: holds {kind} ({name}), not an encoder; expected a BERT-type encoder or a "
                "sentence-transformers folder, which makes one vector of a text. Give the folder of an encoder."
            )


def _names(folder: Path) -> Iterator[str]:
    """Names of classes by which a folder tells what it is: where no modules are listed, the transformer's own."""
    settings = read_optional(folder / SETTINGS)
    yield from (str(settings[key]) for key in ("model_type", "similarity_fn_name") if settings.get(key))
    if not (folder / MODULES).exists():
        yield from map(str, read_optional(folder / "config.json").get("architectures") or ())
    elif isinstance(entries := parse_json(folder / MODULES), list):
        yield from (str(entry.get("type")) for entry in entries if isinstance(entry, dict))
