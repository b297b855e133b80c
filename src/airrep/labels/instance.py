"""Instances with their losses, from which encoders learn."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256

import numpy as np

from airrep.corpus.corpus import Corpus
from airrep.errors import ConfigError, DataError
from airrep.scoring.groups import Groups
from airrep.shapes import Float32


@dataclass(frozen=True, eq=False)
class LabelledInstance:
    """One cross-validation draw and what fine-tuning on its subsets did to its queries."""

    name: str
    """Unique in a run, such as ``"0"``."""
    train: Corpus
    """The train pool, ``n`` examples."""
    queries: Corpus
    """``q`` examples, none of them in the train pool."""
    subsets: Groups
    """``m`` subsets as rows of the train pool."""
    losses: Float32[np.ndarray, "q m"]
    """Mean nats per response token after fine-tuning on each subset, averaged over its seeds; lower = better.
    NaN where a fine-tune is missing."""
    base_losses: Float32[np.ndarray, " q"] | None = None
    """Losses of the language model before any fine-tuning."""
    by_seed: Float32[np.ndarray, "s q m"] | None = None
    """Losses of each seed by itself, where there are several."""

    def __post_init__(self) -> None:
        """Check that all fits."""
        expected = (len(self.queries), len(self.subsets))
        if self.losses.shape != expected:
            raise DataError(
                f"instance {self.name}: its losses are {self.losses.shape}; expected {expected}, queries by subsets. "
                "Give the losses of these queries and subsets."
            )

    @property
    def query_texts(self) -> list[str]:
        """Content hash of each query."""
        return [text.decode() for text in self.queries.content_hashes.tolist()]


def is_of_removals(instance: LabelledInstance) -> bool:
    """Whether the first subset is the whole pool and the others leave less than half of it out."""
    n, sizes = len(instance.train), instance.subsets.sizes
    return bool(len(sizes) > 1 and sizes[0] == n and 2 * min(sizes[1:]) > n)


def refuse_removals(instance: LabelledInstance) -> None:
    """Refuse an instance of removals."""
    if is_of_removals(instance):
        raise DataError(
            f"instance {instance.name}: is made of removals; expected random subsets. "
            "Judge it by `airrep evaluate`, or use labels of `airrep sample --subsets M`."
        )


def check_disjoint(seen: Sequence[LabelledInstance], held_out: Sequence[LabelledInstance]) -> None:
    """Refuse *held_out* with an example or a query that is also in *seen*, by its texts."""
    parts = [part.content_hashes for instance in seen for part in (instance.train, instance.queries)]
    known = np.concatenate([np.empty(0, "S16"), *parts])
    for instance in held_out:
        for part in (instance.train, instance.queries):
            rows = np.flatnonzero(np.isin(part.content_hashes, known))
            if len(rows):
                raise DataError(
                    f"instance {instance.name}: its example '{part[int(rows[0])].id}' was trained on; expected unseen "
                    "ones. Draw the held-out instance from other examples."
                )


def identity(instance: LabelledInstance) -> str:
    """64 hex digits over the examples, subsets and losses of an instance."""
    found = sha256(f"{instance.train.fingerprint} {instance.queries.fingerprint}".encode())
    for array in (instance.subsets.rows, instance.subsets.offsets, instance.losses):
        found.update(f" {array.dtype} {array.shape} ".encode() + np.ascontiguousarray(array).tobytes())
    return found.hexdigest()


def distinct(instances: Sequence[LabelledInstance]) -> dict[str, str]:
    """Names of instances by their :func:`identity`, in order; refuses two of equal content, which would count twice."""
    found: dict[str, str] = {}
    for instance in instances:
        content = identity(instance)
        if content in found:
            raise ConfigError(
                f"instances {found[content]} and {instance.name}: have the same examples, subsets and losses, which "
                "would count twice; expected each once. Leave one out."
            )
        found[content] = instance.name
    return found


def shown_json(value: object) -> str:
    """A JSON value for errors, cut."""
    text = json.dumps(value, ensure_ascii=True)
    return text if len(text) <= 60 else f"{text[:60]}…"
