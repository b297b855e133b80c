"""Gradients, scores and learnt arrays kept on disk, found by text or fingerprint.

A store is a directory of immutable blocks, one folder of them for each recipe. A block is a file named by the checksum
of its bytes: the key of each example, a hash of its texts, and the rows. It does not matter which run or which index
asked for them first; two that write at once do each other no harm.
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
"""Most examples computed at a time, which is what an interruption can lose."""

NUMBERS = 2**24
"""Most numbers computed at a time, 64 MiB."""

OFF = "none"

T = TypeVar("T")


class Computed(NamedTuple):
    """Rows of examples, and the losses that were read on the way."""

    rows: Float32[np.ndarray, "n d"]
    losses: Sequence[Float32[np.ndarray, " r"]]
    """Nats of each response token of each example."""


Compute: TypeAlias = Callable[[Sequence[Example]], "Float32[np.ndarray, 'n d'] | Computed"]


_elsewhere: list[Path] = []


@contextmanager
def stored_in(folder: Path) -> Iterator[None]:
    """Keep gradients in a folder in the meantime, whatever settings say: a trial finds nothing and leaves nothing."""
    _elsewhere.append(folder)
    try:
        yield
    finally:
        _elsewhere.pop()


def store_folder(setting: str | None) -> Path | None:
    """The directory of the store: the one that was asked for, or the user's cache; None for ``"none"``."""
    if setting == OFF:
        return None
    if _elsewhere:
        return _elsewhere[-1]
    if setting is not None:
        return Path(setting)
    return cache() / "gradients"


class GradientStore:
    """Rows of one recipe, ``(n, d)`` float32: equal keys promise equal rows.

    The folder is that of all recipes; None keeps nothing. *key_of* gives the key of an example, 16 hex digits; by
    default it is the hash of its texts. *heard* is told the losses that each row came with, by its key.
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
        """Rows of examples, in order; those that are not there are computed, equal texts once, and kept by chunks.

        Raises:
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
        """Tell whether the rows of all these examples are there."""
        self._look()
        return all(self._key_of(example) in self._found for example in examples)

    def _gather(self, keys: Sequence[str], fresh: Mapping[str, np.ndarray]) -> Float32[np.ndarray, "n d"]:
        """Rows in order, read block by block."""
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
            if self._heard is not None and "losses" in block:  # blocks of before have none
                parts = np.split(block["losses"], block["ends"][:-1])
                self._tell([keys[place] for place in places], [parts[row].copy() for row in rows])
        return found

    def _tell(self, keys: Sequence[str], losses: Sequence[Float32[np.ndarray, " r"]]) -> None:
        """Hand on losses that came with rows, if they did."""
        if self._heard is not None and losses:
            for key, own in zip(keys, losses, strict=True):
                self._heard(key, own)

    def _look(self) -> None:
        """Note blocks that were written since the last time, by whichever run."""
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
    """The arrays of a file whose name ends in the checksum of its bytes."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise ArtifactError(f"{path}: cannot be read: {error.strerror}. Run the same command again.") from error
    if not path.stem.endswith(hashlib.sha256(content).hexdigest()[:32]):
        raise _altered(path)
    return unpack_arrays(content)


def _write(path: Path, content: bytes) -> None:
    """Write a file whole; other processes may write the same one at the same time."""
    try:
        with writing(path):
            path.parent.mkdir(parents=True, exist_ok=True)
        write_file(path, content)
    except ArtifactError as error:
        raise ArtifactError(
            f"{error} Or store gradients in another folder ({CACHE}=FOLDER), or not at all (--set store=none)."
        ) from error


def keep_arrays(folder: Path | None, key: str, arrays: Mapping[str, np.ndarray]) -> None:
    """Keep arrays learnt from gradients, under the fingerprint of all that decides them."""
    if folder is not None:
        content = pack_arrays(arrays)
        path = folder / f"{key[:32]}-{hashlib.sha256(content).hexdigest()[:32]}.safetensors"
        _write(path, content)


def recall_arrays(folder: Path | None, key: str) -> dict[str, np.ndarray] | None:
    """The arrays that :func:`keep_arrays` kept under a fingerprint; None without any. ArtifactError if altered."""
    kept = [] if folder is None else sorted(folder.glob(f"{key[:32]}-*.safetensors"))
    if not kept:
        return None
    note_recalled()
    return _checked(kept[0])


def pack_arrays(arrays: Mapping[str, np.ndarray]) -> bytes:
    """Arrays as the bytes of a safetensors file."""
    return save({name: np.ascontiguousarray(array) for name, array in arrays.items()})  # it writes memory as it lies


def unpack_arrays(content: bytes) -> dict[str, np.ndarray]:
    """Arrays from the bytes of :func:`pack_arrays`."""
    return load(content)


def _altered(path: Path) -> ArtifactError:
    return ArtifactError(f"{path}: was altered after it was written. Delete the file: airrep makes it again.")


def chunk_rows(dimension: int) -> int:
    """Number of rows of *dimension* numbers that are held at a time."""
    return max(1, min(CHUNK, NUMBERS // max(1, dimension)))


def chunks(items: Sequence[T], size: int = CHUNK) -> Iterator[Sequence[T]]:
    """Cut examples, or other things, into chunks of at most *size*."""
    return (items[first : first + size] for first in range(0, len(items), size))


def by_chunks(
    examples: Sequence[Example], dimension: int, make: Callable[[Sequence[Example]], np.ndarray]
) -> Float32[np.ndarray, "n d"]:
    """Features of examples made chunk by chunk, so that memory beside the result does not grow with their number."""
    found = np.empty((len(examples), dimension), np.float32)
    size = chunk_rows(dimension)
    for first in range(0, len(examples), size):
        found[first : first + size] = make(examples[first : first + size])
    return found


STATE = "state.safetensors"
"""Name of the arrays in the folder of an index."""
KEY, READER = "key", "reader"
"""Names of the fingerprints of what decides the arrays, and of the LM, among the arrays; older ones lack the second."""

Arrays: TypeAlias = Mapping[str, np.ndarray]
"""Learnt arrays by name, and the fingerprint of all that decides them."""

S = TypeVar("S", bound=Settings)


class LearnsArrays(MethodAttributor[S], SlowFit):
    """A method whose :meth:`fit` learns arrays; an index keeps them, and a store lets other indexes find them."""

    made_of_learnt: ClassVar[tuple[str, ...]] = ()
    """Names of cached properties that are made of the arrays."""

    _learnt: Arrays | None = None

    @property
    @abstractmethod
    def reader(self) -> str:
        """The fingerprint of the LM that reads examples, 64 hex digits."""

    def recall_or_learn(self, folder: Path | None, key: str, learn: Callable[[], Arrays]) -> None:
        """Take the arrays that a run kept in a store under the fingerprint of all that decides them, or learn them."""
        self._learnt = recall_arrays(folder, key)
        if self._learnt is None:
            # laid out as they are when they are read back, since products round by layout on some processors
            arrays = {name: np.ascontiguousarray(array) for name, array in learn().items()}
            self._learnt = with_key(arrays, key)
            keep_arrays(folder, key, self._learnt)
        self.take_learnt(with_key(self._learnt, self.reader, READER))

    def take_learnt(self, arrays: Arrays) -> None:
        """Take arrays, and drop what was made of those of an earlier corpus."""
        self._learnt = arrays
        for cached in self.made_of_learnt:
            self.__dict__.pop(cached, None)

    @property
    def learnt_key(self) -> str:
        """The fingerprint of all that decides the arrays; another where the LM is not the one of then."""
        arrays = self._fitted()
        key, known = (arrays[name].tobytes().hex() if name in arrays else "" for name in (KEY, READER))
        return key if known in ("", self.reader) else json_digest([key, self.reader])

    def save_state(self, folder: Path) -> None:
        (folder / STATE).write_bytes(pack_arrays(self._fitted()))

    def load_state(self, folder: Path) -> None:
        self.take_learnt(unpack_arrays((folder / STATE).read_bytes()))

    def _fitted(self) -> Arrays:
        return self.check_fitted(self._learnt)


QUERY_NUMBERS = 2**29
"""Numbers of queries that are held at a time, 2 GiB; for more queries the examples pass several times."""


class ScoresByParts(LearnsArrays[S], DirectAttributor):
    """A method that learns arrays and scores examples as they pass, for as many queries at a time as memory holds."""

    @property
    @abstractmethod
    def at_once(self) -> int:
        """Queries whose numbers are held at a time."""

    @abstractmethod
    def scorer(self, queries: Sequence[Example]) -> QueryScorer:
        """Return what scores training examples for some queries."""

    def scorers(self, queries: Sequence[Example]) -> Iterator[tuple[slice, QueryScorer]]:
        self._fitted()
        size = max(1, self.at_once)
        parts = (slice(first, min(first + size, len(queries))) for first in range(0, len(queries), size))
        return ((part, self.scorer(queries[part])) for part in parts)

    def score(
        self, train: Sequence[Example], queries: Sequence[Example], on_rows: OnRows | None = None
    ) -> Float32[np.ndarray, "n q"]:
        """Influence scores; an example that was scored for a query before comes from the store."""
        found = np.zeros((len(train), len(queries)), np.float32)
        for part, score in self.scorers(queries):
            found[:, part] = score(train, on_rows if part.stop >= len(queries) else None)
        return found


def with_key(arrays: Arrays, key: str, name: str = KEY) -> Arrays:
    """Arrays with a fingerprint, hex digits, among them."""
    return {**arrays, name: np.frombuffer(bytes.fromhex(key), np.uint8)}


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
