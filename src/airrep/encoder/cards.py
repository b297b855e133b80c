"""Card, prompts and settings of a model folder: read, chosen and written."""

import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, get_args

from airrep.encoder.folders import CARD, MODULES, SETTINGS, read_json, read_optional, write_json
from airrep.errors import ConfigError, DataError
from airrep.scoring.pooling import TrainedPool


@dataclass(frozen=True, slots=True)
class Card:
    """Content of ``airrep.json``, on a model's texts and training; a model without this file has the defaults."""

    template: str = "Question: {prompt}\nAnswer: {response}"
    """Template by which an example becomes one text."""
    prompt_words: int = 256
    """Most words of a prompt; the rest is cut off."""
    trained_for_attribution: bool = False
    """True if the encoder was trained to rank subsets by their labels."""
    trained_group_sizes: tuple[int, int] | None = None
    """Smallest and largest group that the encoder was trained on, where known."""
    trained_pool: TrainedPool | None = None
    """Pool that the encoder was trained with, where known."""
    caution: str = ""
    """Caution to readers of its scores, in a sentence."""
    training: dict[str, Any] | None = None
    """Lineage of the training and its held-out LDS, as :mod:`airrep.training.train` writes them."""


def read_card(folder: Path) -> Card:
    """Read ``airrep.json``, or return the defaults if it is missing (DataError: a field has a wrong type)."""
    path = folder / CARD
    if not path.exists():
        return Card()
    given = read_json(path)
    known = {key: given[key] for key in asdict(Card()) if key in given}
    if isinstance(known.get("trained_group_sizes"), list):
        known["trained_group_sizes"] = tuple(known["trained_group_sizes"])
    card = Card(**known)
    _check_card(path, card)
    return card


def with_template(name: str, card: Card, template: str | None) -> Card:
    """Return the card with another template, or its own if that is None (ConfigError: the template has no field)."""
    chosen = card.template if template is None else template
    if "{prompt}" not in chosen and "{response}" not in chosen:
        raise ConfigError(f"encoder {name}: the template {chosen!r} must contain {{prompt}} or {{response}}. Add one.")
    return replace(card, template=chosen)


def _check_card(path: Path, card: Card) -> None:
    sizes = card.trained_group_sizes
    pools = get_args(TrainedPool)
    expected = {
        "caution must be a text": isinstance(card.caution, str),
        f"trained_pool must be {', '.join(pools)} or null": card.trained_pool in (*pools, None),
        "template must be a text": isinstance(card.template, str),
        "prompt_words must be a whole number, at least 1": type(card.prompt_words) is int and card.prompt_words > 0,
        "trained_for_attribution must be true or false": isinstance(card.trained_for_attribution, bool),
        "trained_group_sizes must be two whole numbers or null": sizes is None
        or (isinstance(sizes, tuple) and len(sizes) == 2 and all(type(size) is int for size in sizes)),
        "training must be an object or null": card.training is None or isinstance(card.training, dict),
    }
    for what, holds in expected.items():
        if not holds:
            raise DataError(f"{path}: {what}. Correct the file.")


_TYPES = {
    "Transformer": "sentence_transformers.base.modules.transformer.Transformer",
    "StaticEmbedding": "sentence_transformers.sentence_transformer.modules.static_embedding.StaticEmbedding",
    "Pooling": "sentence_transformers.sentence_transformer.modules.pooling.Pooling",
    "Dense": "sentence_transformers.base.modules.dense.Dense",
    "Normalize": "sentence_transformers.base.modules.normalize.Normalize",
}
_OF_SENTENCE = {"module_input_name": "sentence_embedding", "module_output_name": "sentence_embedding"}


def write_modules(folder: Path, kinds: Sequence[str]) -> list[Path]:
    """Write ``modules.json`` and make a folder for each module; the first module lies in the model's folder."""
    names = ["", *(f"{number}_{kind}" for number, kind in enumerate(kinds) if number)]
    entries = [
        {"idx": number, "name": str(number), "path": name, "type": _TYPES[kind]}
        for number, (kind, name) in enumerate(zip(kinds, names, strict=True))
    ]
    write_json(folder / MODULES, entries)
    for name in names[1:]:
        (folder / name).mkdir()
    return [folder / name for name in names]


def write_head_config(folder: Path, shape: tuple[int, int] | None = None, *, bias: bool = True) -> None:
    """Write the settings of a head: linear of *shape* (outputs, inputs), or scaling to unit length if None."""
    config: dict[str, Any] = dict(_OF_SENTENCE)
    if shape is not None:
        config |= {"in_features": shape[1], "out_features": shape[0], "bias": bias}
        config["activation_function"] = "torch.nn.modules.linear.Identity"
    write_json(folder / "config.json", config)


def write_settings(folder: Path) -> None:
    """Write the settings of a model whose vectors are compared by their inner product."""
    settings: dict[str, Any] = {"model_type": "SentenceTransformer", "prompts": {}, "default_prompt_name": None}
    write_json(folder / SETTINGS, settings | {"similarity_fn_name": "dot"})


def write_card(card: Card, folder: Path) -> None:
    """Write ``airrep.json``."""
    content = asdict(card)
    if card.training is None:
        del content["training"]
    write_json(folder / CARD, content)


_TRAIN = ("document", "passage", "corpus")
_NAME = re.compile(r"[\w.-]+")


@dataclass(frozen=True, slots=True)
class Prompts:
    """Texts put before a rendered query and before a rendered training example."""

    query: str = ""
    train: str = ""


NO_PROMPTS = Prompts()


def choose_prompts(folder: Path, name: str, query: str | None, train: str | None) -> Prompts:
    """Return the prompts that *query* and *train* ask for, or the model's own.

    Each argument is the name of one of the model's prompts or a literal text; ``""`` is no prompt, None the model's
    own. That is the first prompt in its settings named ``query`` for queries, and ``document``, ``passage`` or
    ``corpus`` for training examples, even if it is empty. Without such a name it is the default prompt, which the
    library's ``encode`` puts before every text, or else no prompt. The library's ``encode_query`` and
    ``encode_document`` (6.2) take ``query`` and ``document`` alone, and no prompt if the settings lack them.
    """
    settings = read_optional(folder / SETTINGS)
    prompts, default = settings.get("prompts") or {}, settings.get("default_prompt_name") or ""
    named = isinstance(prompts, dict) and all(isinstance(text, str | None) for text in prompts.values())
    if not (named and isinstance(default, str)):
        raise DataError(
            f"{folder / SETTINGS}: prompts must map names to texts, and default_prompt_name must be one of these "
            "names or null. Correct the file."
        )
    own = {key: text or "" for key, text in prompts.items()}
    return Prompts(
        _choose(f"encoder {name}: query_prompt", query, own, ("query", default)),
        _choose(f"encoder {name}: train_prompt", train, own, (*_TRAIN, default)),
    )


def _choose(where: str, asked: str | None, own: dict[str, str], usual: tuple[str, ...]) -> str:
    if asked is None:
        return next((own[key] for key in usual if key in own), "")
    if asked in own:
        return own[asked]
    if _NAME.fullmatch(asked):  # a single word is more likely a mistyped name than a text
        names = ", ".join(sorted(own)) or "none"
        raise ConfigError(
            f"{where}='{asked}': the model has no prompt of that name; its prompts: {names}. Give one of these names, "
            "or a text that ends in a colon or a space."
        )
    return asked


def counts_prompt(folder: Path) -> bool:
    """Return True if the mean over tokens includes the prompt's tokens, as in nearly all models."""
    configs = (read_json(path) for path in folder.glob("*/config.json"))
    return all(config.get("include_prompt", True) for config in configs)


def write_prompts(folder: Path, prompts: Prompts) -> None:
    """Store prompts as the model's own in its folder."""
    own = {"prompts": {"query": prompts.query, "document": prompts.train}, "default_prompt_name": None}
    write_json(folder / SETTINGS, read_optional(folder / SETTINGS) | own)
