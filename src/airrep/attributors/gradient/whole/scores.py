"""Scores of whole gradients kept on disk, by lists of queries."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np

from airrep.attributors.base import OnRows
from airrep.attributors.gradient.store import GradientStore, keep_arrays, recall_arrays
from airrep.corpus.corpus import Example
from airrep.runtime.artifacts.manifests import json_digest
from airrep.runtime.publishing import remove_leftovers
from airrep.shapes import Float32

QUERIES = "queries"

Score = Callable[[Sequence[Example], Sequence[int]], Float32[np.ndarray, "n q"]]
"""Scores of training examples for the queries at some places of a list."""


class ScoreStore:
    """Scores of examples for queries: equal keys promise equal scores.

    They are kept as the examples passed: a folder for each list of queries that was scored together. A list that shares
    queries with an earlier one takes their scores from there, if that has all examples that are asked for; the others
    are a list of their own. The folder is that of all recipes; None keeps nothing.
    """

    def __init__(
        self, folder: Path | None, key: str, queries: Sequence[Example], key_of: Callable[[Example], str]
    ) -> None:
        self._folder = None if folder is None else folder / key[:32]
        self._asked = [key_of(query) for query in queries]
        self._key_of = key_of
        self._lists: dict[str, tuple[list[str], GradientStore]] = {}

    def rows(self, train: Sequence[Example], score: Score, on_rows: OnRows | None = None) -> Float32[np.ndarray, "n q"]:
        """Scores of training examples for all queries, in order; what is not there is computed and kept.

        Raises:
            ArtifactError: a file was altered, or one cannot be written.
        """
        place = {key: n for n, key in enumerate(self._asked)}
        columns: dict[str, np.ndarray] = {}
        for keys, store in self._earlier():
            shared = [n for n, key in enumerate(keys) if key in place and key not in columns]
            if shared and store.has(train):
                known = store.rows(train, _nothing)
                columns |= {keys[n]: known[:, n] for n in shared}
        rest = [key for key in place if key not in columns]
        if rest:
            chosen = [place[key] for key in rest]
            made = self._of_list(rest).rows(train, lambda missing: score(missing, chosen), on_rows)
            columns |= dict(zip(rest, made.T, strict=True))
        elif on_rows is not None:
            on_rows(len(train))
        return np.stack([columns[key] for key in self._asked], axis=1) if columns else np.empty((len(train), 0), "f4")

    def _earlier(self) -> Iterator[tuple[list[str], GradientStore]]:
        """Lists that share queries with this one, those with most of them first."""
        if self._folder is None or not self._folder.is_dir():
            return
        remove_leftovers(self._folder)
        for path in sorted(self._folder.glob("*.safetensors")):
            name = path.stem.split("-")[0]
            if name not in self._lists:
                kept = recall_arrays(self._folder, name)
                assert kept is not None
                self._lists[name] = self._list([bytes(key).hex() for key in kept[QUERIES]])
        asked = set(self._asked)
        found = [(len(asked.intersection(keys)), name) for name, (keys, _) in self._lists.items()]
        yield from (self._lists[name] for shared, name in sorted(found, reverse=True) if shared)

    def _of_list(self, keys: list[str]) -> GradientStore:
        name = _name(keys)
        if name not in self._lists:
            self._lists[name] = self._list(keys)
            raw = np.frombuffer(bytes.fromhex("".join(keys)), np.uint8).reshape(len(keys), -1)
            keep_arrays(self._folder, name, {QUERIES: raw})
        return self._lists[name][1]

    def _list(self, keys: list[str]) -> tuple[list[str], GradientStore]:
        return keys, GradientStore(self._folder, _name(keys), len(keys), self._key_of)


def _name(keys: list[str]) -> str:
    return json_digest(keys)[:32]


def _nothing(missing: Sequence[Example]) -> np.ndarray:
    raise AssertionError(f"{len(missing)} examples are missing")
