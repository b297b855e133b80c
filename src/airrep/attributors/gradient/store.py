"""Gradients, scores and learnt arrays on disk, found by text or fingerprint.

A store is a directory with a folder for each way of computing rows, which holds immutable blocks. A block is a file
named by the checksum of its bytes, with rows and the key of each row's example, a hash of its texts. All runs and
indexes share a store, and may write to it at the same time.
"""

import hashlib
from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from operator import attrgetter
from pathlib import Path
from typing import ClassVar, NamedTuple, TypeAlias, TypeVar

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import load, save

from airrep.attributors.base import MethodAttributor, OnRows, SlowFit
from airrep.attributors.direct import DirectAttributor, QueryScorer
from airrep.corpus.corpus import Example
from airrep.errors import ArtifactError
from airrep.runtime.artifacts import json_digest
from airrep.runtime.metering import computing_rows, note_recalled
from airrep.runtime.publishing import remove_leftovers, write_file, writing
from airrep.runtime.remote.places import CACHE, cache
from airrep.runtime.settings import Settings
from airrep.shapes import Float32

CHUNK = 512
"""Most examples computed at a time; an interruption loses no more."""

NUMBERS = 2**24
"""Most numbers computed at a time, 64 MiB."""

OFF = "none"

T = TypeVar("T")


class Computed(NamedTuple):
    """Rows of examples, and the losses that were computed on the way."""

    rows: Float32[np.ndarray, "n d"]
    losses: Sequence[Float32[np.ndarray, " r"]]
    """Loss of each response token of each example, in nats."""


Compute: TypeAlias = Callable[[Sequence[Example]], "Float32[np.ndarray, 'n d'] | Computed"]

_elsewhere: list[Path] = []


@contextmanager
def stored_in(folder: Path) -> Iterator[None]:
    """Store gradients in a folder while the context lasts, unless settings store none, for trials that leave none."""
    _elsewhere.append(folder)
    try:
        yield
    finally:
        _elsewhere.pop()


def store_folder(setting: str | None) -> Path | None:
    """Return the directory of the store: the one that is set, or the user's cache; None for ``"none"``."""
    if setting == OFF:
        return None
    if _elsewhere:
        return _elsewhere[-1]
    if setting is not None:
        return Path(setting)
    return cache() / "gradients"


class GradientStore:
    """Rows that are computed in one way, ``(n, d)`` float32; rows with the same *key* are equal.

    *folder* is the directory of the whole store; None stores nothing. *key_of* gives the key of an example, 16 hex
    digits; by default the hash of its texts. *heard* is called with the key and the losses that each row came with.
    """

    def __init__(
        self,
        folder: Path | None,
        key: str,
        dimension: int,
        key_of: Callable[[Example], str] = attrgetter("reading_hash"),
        heard: Callable[[str, Float32[np.ndarray, " r"]], None] | None = None,
    ) -> None:
        self._name = key[:32]
        self._folder = None if folder is None else folder / self._name
        self._dimension = dimension
        self._key_of = key_of
        self._heard = heard
        self._found: dict[str, tuple[Path, int]] = {}
        self._known: set[Path] = set()

    def rows(
        self, examples: Sequence[Example], compute: Compute, on_rows: Callable[[int], None] | None = None
    ) -> Float32[np.ndarray, "n d"]:
        """Return rows of examples, in order; missing rows are computed, equal texts once, and stored in chunks.

        ArtifactError: a block was altered, or one cannot be written.
        """
        keys = [self._key_of(example) for example in examples]
        self._look()
        unique = dict(zip(keys, examples, strict=True))
        missing = [key for key in unique if key not in self._found]
        fresh: dict[str, np.ndarray] = {}
        report = on_rows or (lambda _: None)
        report(len(examples) - len(missing))
        with nullcontext() if self._folder is None else computing_rows(self._name, len(unique), len(missing)):
            for chunk in chunks(missing, chunk_rows(self._dimension)):
                made = compute([unique[key] for key in chunk])
                rows, losses = made if isinstance(made, Computed) else (made, [])
                if self._folder is None:
                    fresh |= dict(zip(chunk, rows.astype(np.float32), strict=True))
                    self._tell(chunk, losses)
                else:
                    self._keep(chunk, rows.astype(np.float32), losses)
                report(len(chunk))
        return self._gather(keys, fresh)

    def has(self, examples: Sequence[Example]) -> bool:
        """Return whether the rows of all these examples are stored."""
        self._look()
        return all(self._key_of(example) in self._found for example in examples)

    def _gather(self, keys: Sequence[str], fresh: Mapping[str, np.ndarray]) -> Float32[np.ndarray, "n d"]:
        """Return rows in order, read block by block."""
        found = np.empty((len(keys), self._dimension), np.float32)
        wanted: dict[Path, list[int]] = {}
        for place, key in enumerate(keys):
            if key in fresh:
                found[place] = fresh[key]
            else:
                wanted.setdefault(self._found[key][0], []).append(place)
        for path, places in wanted.items():
            block, rows = _checked(path), [self._found[keys[place]][1] for place in places]
            found[places] = block["rows"][rows]
            if self._heard is not None and "losses" in block:  # older blocks have none
                parts = np.split(block["losses"], block["ends"][:-1])
                self._tell([keys[place] for place in places], [parts[row].copy() for row in rows])
        return found

    def _tell(self, keys: Sequence[str], losses: Sequence[Float32[np.ndarray, " r"]]) -> None:
        """Pass the losses of rows to *heard*, if there are any."""
        if self._heard is not None and losses:
            for key, own in zip(keys, losses, strict=True):
                self._heard(key, own)

    def _look(self) -> None:
        """Find blocks that were written since the last call, by any run."""
        if self._folder is None or not self._folder.is_dir():
            return
        remove_leftovers(self._folder)
        for path in sorted(self._folder.glob("*.safetensors")):
            if path not in self._known:
                try:
                    with safe_open(path, framework="np") as block:
                        self._note(path, block.get_tensor("keys"))
                except (OSError, SafetensorError) as error:
                    raise _altered(path) from error

    def _note(self, path: Path, keys: np.ndarray) -> None:
        self._known.add(path)
        self._found |= {bytes(key).hex(): (path, row) for row, key in enumerate(keys)}

    def _keep(
        self, names: Sequence[str], rows: Float32[np.ndarray, "n d"], losses: Sequence[Float32[np.ndarray, " r"]]
    ) -> None:
        assert self._folder is not None
        keys = np.frombuffer(bytes.fromhex("".join(names)), np.uint8).reshape(len(names), -1)
        ends = np.cumsum([len(own) for own in losses], dtype=np.int64)
        read: dict[str, np.ndarray] = {}
        if losses:
            read = {"losses": np.concatenate(losses).astype(np.float32), "ends": ends}
        content = pack_arrays({"keys": keys, "rows": rows, **read})
        path = self._folder / f"{hashlib.sha256(content).hexdigest()[:32]}.safetensors"
        _write(path, content)
        self._note(path, keys)


def _checked(path: Path) -> dict[str, np.ndarray]:
    """Read the arrays of a file whose name ends in the checksum of its bytes."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise ArtifactError(f"{path}: cannot be read: {error.strerror}. Run the same command again.") from error
    if not path.stem.endswith(hashlib.sha256(content).hexdigest()[:32]):
        raise _altered(path)
    return load(content)


def _write(path: Path, content: bytes) -> None:
    """Write a file atomically; other processes may write the same file at the same time."""
    try:
        with writing(path):
            path.parent.mkdir(parents=True, exist_ok=True)
        write_file(path, content)
    except ArtifactError as error:
        raise ArtifactError(
            f"{error} Or store gradients in another folder ({CACHE}=FOLDER), or not at all (--set store=none)."
        ) from error


def keep_arrays(folder: Path | None, key: str, arrays: Mapping[str, np.ndarray]) -> None:
    """Store arrays learnt from gradients, under the fingerprint of all that decides them."""
    if folder is not None:
        content = pack_arrays(arrays)
        path = folder / f"{key[:32]}-{hashlib.sha256(content).hexdigest()[:32]}.safetensors"
        _write(path, content)


def recall_arrays(folder: Path | None, key: str) -> dict[str, np.ndarray] | None:
    """Read the arrays that :func:`keep_arrays` stored under a key; None without any (ArtifactError: altered)."""
    kept = [] if folder is None else sorted(folder.glob(f"{key[:32]}-*.safetensors"))
    if not kept:
        return None
    note_recalled()
    return _checked(kept[0])


def pack_arrays(arrays: Mapping[str, np.ndarray]) -> bytes:
    """Return arrays as the bytes of a safetensors file."""
    return save({name: np.ascontiguousarray(array) for name, array in arrays.items()})  # save ignores strides


def _altered(path: Path) -> ArtifactError:
    return ArtifactError(f"{path}: was altered after it was written. Delete the file: airrep makes it again.")


def chunk_rows(dimension: int) -> int:
    """Return how many rows of *dimension* numbers are computed at a time."""
    return max(1, min(CHUNK, NUMBERS // max(1, dimension)))


def chunks(items: Sequence[T], size: int = CHUNK) -> Iterator[Sequence[T]]:
    """Divide examples, or other items, into chunks of at most *size*."""
    return (items[first : first + size] for first in range(0, len(items), size))


def by_chunks(
    examples: Sequence[Example], dimension: int, make: Callable[[Sequence[Example]], np.ndarray]
) -> Float32[np.ndarray, "n d"]:
    """Compute features chunk by chunk, so that memory beside the result does not grow with the number of examples."""
    found = np.empty((len(examples), dimension), np.float32)
    size = chunk_rows(dimension)
    for first in range(0, len(examples), size):
        found[first : first + size] = make(examples[first : first + size])
    return found


STATE = "state.safetensors"
"""Name of the arrays' file in the folder of an index."""
KEY, READER = "key", "reader"
"""Names, among the arrays, of two fingerprints: of all that decides them, and of the LM."""

Arrays: TypeAlias = Mapping[str, np.ndarray]
"""Learnt arrays by name, with these fingerprints."""

S = TypeVar("S", bound=Settings)


class LearnsArrays(MethodAttributor[S], SlowFit):
    """A method whose :meth:`fit` learns arrays; an index keeps them, and a store shares them with other indexes."""

    made_of_learnt: ClassVar[tuple[str, ...]] = ()
    """Names of cached properties that are computed from the arrays."""

    _learnt: Arrays | None = None

    @property
    @abstractmethod
    def reader(self) -> str:
        """The fingerprint of the LM that reads examples, 64 hex digits."""

    def recall_or_learn(self, folder: Path | None, key: str, learn: Callable[[], Arrays]) -> None:
        """Load the arrays stored under *key*, the fingerprint of all that decides them, or learn and store them."""
        self._learnt = recall_arrays(folder, key)
        if self._learnt is None:
            # laid out as they will be when read back, since on some processors products round by layout
            arrays = {name: np.ascontiguousarray(array) for name, array in learn().items()}
            self._learnt = with_key(arrays, key)
            keep_arrays(folder, key, self._learnt)
        self.take_learnt(with_key(self._learnt, self.reader, READER))

    def take_learnt(self, arrays: Arrays) -> None:
        """Take arrays, and drop cached properties that were computed from earlier ones."""
        self._learnt = arrays
        for cached in self.made_of_learnt:
            self.__dict__.pop(cached, None)

    @property
    def learnt_key(self) -> str:
        """The fingerprint of all that decides the arrays; another one if the LM has changed since they were learnt."""
        key, known = (self._fitted()[name].tobytes().hex() for name in (KEY, READER))
        return key if known == self.reader else json_digest([key, self.reader])

    def save_state(self, folder: Path) -> None:
        (folder / STATE).write_bytes(pack_arrays(self._fitted()))

    def load_state(self, folder: Path) -> None:
        self.take_learnt(load((folder / STATE).read_bytes()))

    def _fitted(self) -> Arrays:
        return self.check_fitted(self._learnt)


QUERY_NUMBERS = 2**29
"""Numbers of queries that are held at a time, 2 GiB; for more queries the examples are read several times."""


class ScoresByParts(LearnsArrays[S], DirectAttributor):
    """A method that learns arrays and scores examples directly, for as many queries at a time as fit in memory."""

    @property
    @abstractmethod
    def at_once(self) -> int:
        """Number of queries that fit in memory."""

    @abstractmethod
    def scorer(self, queries: Sequence[Example]) -> QueryScorer:
        """Return a function that scores training examples for some queries."""

    def scorers(self, queries: Sequence[Example]) -> Iterator[tuple[slice, QueryScorer]]:
        self._fitted()
        size = max(1, self.at_once)
        parts = (slice(first, min(first + size, len(queries))) for first in range(0, len(queries), size))
        return ((part, self.scorer(queries[part])) for part in parts)

    def score(
        self, train: Sequence[Example], queries: Sequence[Example], on_rows: OnRows | None = None
    ) -> Float32[np.ndarray, "n q"]:
        """Return influence scores, from the store if an example was scored for a query before."""
        found = np.zeros((len(train), len(queries)), np.float32)
        for part, score in self.scorers(queries):
            found[:, part] = score(train, on_rows if part.stop >= len(queries) else None)
        return found


def with_key(arrays: Arrays, key: str, name: str = KEY) -> Arrays:
    """Add a fingerprint, given as hex digits, to arrays."""
    return {**arrays, name: np.frombuffer(bytes.fromhex(key), np.uint8)}


QUERIES = "queries"

Score = Callable[[Sequence[Example], Sequence[int]], Float32[np.ndarray, "n q"]]
"""Scores training examples for the queries at some places of a list."""


class ScoreStore:
    """Scores of examples for queries on disk; scores with the same *key* are equal.

    There is a folder for each list of queries that were scored together. A query of an earlier list takes its scores
    from there, if that list has all wanted examples; the remaining queries become a list of their own. *folder* is the
    directory of the whole store; None stores nothing.
    """

    def __init__(
        self, folder: Path | None, key: str, queries: Sequence[Example], key_of: Callable[[Example], str]
    ) -> None:
        self._folder = None if folder is None else folder / key[:32]
        self._asked = [key_of(query) for query in queries]
        self._key_of = key_of
        self._lists: dict[str, tuple[list[str], GradientStore]] = {}

    def rows(self, train: Sequence[Example], score: Score, on_rows: OnRows | None = None) -> Float32[np.ndarray, "n q"]:
        """Return scores of training examples for all queries, in order; missing scores are computed and stored.

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
        """Yield stored lists that share queries with this one, the list with most shared queries first."""
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
