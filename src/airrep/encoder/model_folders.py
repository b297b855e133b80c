"""Find a model folder by name and read its settings."""

import json
import re
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, get_args

from airrep.errors import ConfigError, DataError
from airrep.runtime.hub import download
from airrep.runtime.settings import BUNDLED
from airrep.scoring.pooling import TrainedPool

MODELS = Path(__file__).parents[1] / "models"
CARD = "airrep.json"
DOWNLOADED = ("*.safetensors", "*.json", "*.txt")
"""What is fetched from the Hub: no pickles, no programs."""

_HUB_ID = re.compile(r"[\w-][\w.-]*/[\w-][\w.-]*")


@dataclass(frozen=True, slots=True)
class Card:
    """What ``airrep.json`` says about a model's texts and training; the defaults hold where there is none."""

    template: str = "Question: {prompt}\nAnswer: {response}"
    """How an example becomes one text."""
    prompt_words: int = 256
    """Most words of a prompt; the rest is cut off."""
    trained_for_attribution: bool = False
    """Whether the encoder was trained to rank subsets by their labels."""
    trained_group_sizes: tuple[int, int] | None = None
    """Smallest and largest group that the encoder was trained on, where known."""
    trained_pool: TrainedPool | None = None
    """Pool that the encoder was trained with, where known."""
    caution: str = ""
    """What readers of its scores should be told, in a sentence."""
    training: dict[str, Any] | None = None
    """What the encoder was trained on, how, and its held-out LDS, as :mod:`airrep.training.train` writes it."""

    def to_dict(self) -> dict[str, Any]:
        """Return the content of ``airrep.json``."""
        content = asdict(self)
        return content if self.training is not None else {key: content[key] for key in content if key != "training"}


def find_model(name: str, extra: tuple[str, ...] = ()) -> Path:
    """Return the folder of a model.

    Args:
        name: ``"default"`` or ``"untrained"`` (bundled), a folder, or ``owner/name`` on the Hugging Face Hub.
        extra: more files to fetch from the Hub: the programs of a model that is trusted.

    Raises:
        ConfigError: there is no such folder, and it cannot be had from the Hub.
    """
    if name in BUNDLED:
        return MODELS / name
    path = Path(name)
    if path.is_dir():
        return path
    if path.exists():
        raise ConfigError(f"encoder {name}: is a file; expected a folder with a model. Give the folder.")
    if _HUB_ID.fullmatch(name) is None:
        raise ConfigError(
            f"encoder {name}: there is no such folder; expected 'default', a folder, or owner/name on the "
            "Hugging Face Hub. Check the path."
        )
    instead = "Use 'default', which needs no network, or fetch it elsewhere (hf download) and give its folder."
    return download("encoder", name, (*DOWNLOADED, *extra), instead)


def read_json(path: Path) -> dict[str, Any]:
    """Read a JSON object.

    Raises:
        DataError: missing, unreadable, or not a JSON object.
    """
    return _expect_object(path, parse_json(path))


def parse_json(path: Path) -> object:
    """Read a JSON value.

    Raises:
        DataError: missing, unreadable, or not JSON.
    """
    try:
        return json.loads(path.read_bytes())
    except FileNotFoundError as error:
        raise DataError(f"{path}: is missing; a model folder has one. Restore it or download again.") from error
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error.strerror}. Mend its permissions.") from error
    except ValueError as error:
        raise DataError(f"{path}: is not JSON. Restore it or download the model again.") from error


def _expect_object(path: Path, value: object) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise DataError(f"{path}: holds no JSON object; expected one. Restore it or download the model again.")
    return value


def read_card(folder: Path) -> Card:
    """Read ``airrep.json``, or return the defaults where there is none.

    Raises:
        DataError: a field is of another type than it must be.
    """
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


POOLS = get_args(TrainedPool)


def _check_card(path: Path, card: Card) -> None:
    sizes = card.trained_group_sizes
    expected = {
        "caution, a text": isinstance(card.caution, str),
        f"trained_pool, {', '.join(POOLS)} or null": card.trained_pool in (*POOLS, None),
        "template, a text": isinstance(card.template, str),
        "prompt_words, a whole number from 1 up": type(card.prompt_words) is int and card.prompt_words > 0,
        "trained_for_attribution, true or false": isinstance(card.trained_for_attribution, bool),
        "trained_group_sizes, two whole numbers or null": sizes is None
        or (isinstance(sizes, tuple) and len(sizes) == 2 and all(type(size) is int for size in sizes)),
        "training, an object or null": card.training is None or isinstance(card.training, dict),
    }
    for what, holds in expected.items():
        if not holds:
            raise DataError(f"{path}: a field is of the wrong type; expected {what}. Correct the file.")
