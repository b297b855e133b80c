"""Texts that an encoder wants before queries and training examples."""

import re
from dataclasses import dataclass
from pathlib import Path

from airrep.encoder.folders import SETTINGS, read_json, read_optional, write_json
from airrep.errors import ConfigError, DataError

_QUERY = ("query",)
_TRAIN = ("document", "passage", "corpus")
_NAME = re.compile(r"[\w.-]+")


@dataclass(frozen=True, slots=True)
class Prompts:
    """Texts put before a rendered query and before a rendered training example."""

    query: str = ""
    train: str = ""

    def __bool__(self) -> bool:
        return bool(self.query or self.train)


NO_PROMPTS = Prompts()


def choose_prompts(folder: Path, name: str, query: str | None, train: str | None) -> Prompts:
    """Prompts that are asked for, or the model's own.

    The model's own is the first that its settings name: ``query`` for queries, and ``document``, ``passage`` or
    ``corpus`` for training examples, also where it is empty, which means none. Where they name none, it is the one
    that the library's ``encode`` puts before every text; else nothing. Its ``encode_query`` and ``encode_document``
    (6.2) take ``query`` and ``document`` alone, and put nothing where the settings lack them.

    Args:
        folder: the model's folder.
        name: the encoder's name, for errors.
        query: name of one of the model's prompts, or a literal text; ``""`` is none, None the model's own.
        train: name or text for training examples, in the same form.
    """
    own, default = _own_prompts(folder / SETTINGS)
    return Prompts(
        _choose(f"encoder {name}: query_prompt", query, own, (*_QUERY, default)),
        _choose(f"encoder {name}: train_prompt", train, own, (*_TRAIN, default)),
    )


def _own_prompts(path: Path) -> tuple[dict[str, str], str]:
    """The prompts of a model by their names, and the name of the one for every text."""
    settings = read_optional(path)
    prompts, default = settings.get("prompts") or {}, settings.get("default_prompt_name") or ""
    named = isinstance(prompts, dict) and all(isinstance(text, str | None) for text in prompts.values())
    if not (named and isinstance(default, str)):
        raise DataError(f"{path}: its prompts are of the wrong type; expected texts by their names. Correct the file.")
    return {key: text or "" for key, text in prompts.items()}, default


def _choose(where: str, asked: str | None, own: dict[str, str], usual: tuple[str, ...]) -> str:
    if asked is None:
        return next((own[key] for key in usual if key in own), "")
    if asked in own:
        return own[asked]
    if _NAME.fullmatch(asked):  # a single word is a name mistyped rather than a text
        names = ", ".join(sorted(own)) or "none"
        raise ConfigError(
            f"{where}='{asked}': the model has no prompt of that name; expected one of its own ({names}), or a text "
            "that ends in a colon or a space. Correct it."
        )
    return asked


def counts_prompt(folder: Path) -> bool:
    """True if the mean over tokens includes the prompt's tokens, as in nearly all models."""
    configs = (read_json(path) for path in folder.glob("*/config.json"))
    return all(config.get("include_prompt", True) for config in configs)


def write_prompts(folder: Path, prompts: Prompts) -> None:
    """Make prompts the own ones of the model in a folder."""
    own = {"prompts": {"query": prompts.query, "document": prompts.train}, "default_prompt_name": None}
    write_json(folder / SETTINGS, read_optional(folder / SETTINGS) | own)
