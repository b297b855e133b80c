"""Rows of numbers kept on disk, found again by text.

A store is a directory of immutable blocks, one folder of them for each recipe. A block is one ``.npy`` file named by
the checksum of its bytes: for each example the hash of its texts, and its row. It does not matter which run or which
index asked for them first; two that write at once do each other no harm.
"""

import hashlib
import io
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
from jaxtyping import Float32
from safetensors.numpy import load, save

from airrep.artifacts import write_file
from airrep.corpus import Example
from airrep.errors import ArtifactError

CHUNK = 512
"""Examples computed at a time, which is what an interruption can lose."""

CACHE = "AIRREP_CACHE"
"""Environment variable: where things are kept that can be made again; ``~/.cache/airrep`` without it."""

OFF = "none"

Compute = Callable[[Sequence[Example]], Float32[np.ndarray, "n d"]]


def store_folder(setting: str | None) -> Path | None:
    """Where gradients are kept: the folder that was asked for, or the user's cache; None for ``"none"``."""
    if setting == OFF:
        return None
    if setting is not None:
        return Path(setting)
    return Path(os.environ.get(CACHE) or Path.home() / ".cache" / "airrep") / "gradients"


class GradientStore:
    """Rows of one recipe, ``(n, d)`` float32.

    Args:
        folder: of all recipes; None: nothing is kept.
        key: of the recipe: equal keys promise equal rows.
        dimension: numbers in a row.
    """

    def __init__(self, folder: Path | None, key: str, dimension: int) -> None:
        self._folder = None if folder is None else folder / key[:32]
        self._dimension = dimension
        self._found: dict[str, tuple[Path, int]] = {}
        self._blocks: dict[Path, np.ndarray] = {}
        self._known: set[Path] = set()

    def rows(
        self, examples: Sequence[Example], compute: Compute, on_rows: Callable[[int], None] | None = None
    ) -> Float32[np.ndarray, "n d"]:
        """Rows of examples, in order; those that are not there are computed and kept, chunk by chunk.

        Args:
            examples: any number; equal texts are computed once.
            compute: makes the rows of some examples.
            on_rows: told how many more are done.

        Raises:
            ArtifactError: a block was altered, or one cannot be written.
        """
        keys = [example.content_hash for example in examples]
        self._look()
        unique = dict(zip(keys, examples, strict=True))
        missing = [key for key in unique if key not in self._found]
        fresh: dict[str, np.ndarray] = {}
        tell = on_rows or (lambda _: None)
        tell(len(examples) - len(missing))
        for first in range(0, len(missing), CHUNK):
            chunk = missing[first : first + CHUNK]
            made = compute([unique[key] for key in chunk]).astype(np.float32)
            if self._folder is None:
                fresh |= dict(zip(chunk, made, strict=True))
            else:
                self._keep(chunk, made)
            tell(len(chunk))
        found = np.empty((len(keys), self._dimension), np.float32)
        for row, key in enumerate(keys):
            found[row] = fresh[key] if key in fresh else self._read(key)
        return found

    def _look(self) -> None:
        """Note what blocks have come since the last time."""
        if self._folder is None or not self._folder.is_dir():
            return
        for path in sorted(self._folder.glob("*.npy")):
            if path not in self._known:
                self._note(path)

    def _note(self, path: Path) -> None:
        block = self._open(path)
        self._known.add(path)
        self._blocks[path] = block
        self._found |= {key.decode(): (path, row) for row, key in enumerate(block["key"].tolist())}

    def _open(self, path: Path) -> np.ndarray:
        """Map a block, whose bytes are checked first.

        Raises:
            ArtifactError: it was altered.
        """
        with path.open("rb") as stream:
            found = hashlib.file_digest(stream, "sha256").hexdigest()
        if found[:32] != path.stem:
            raise _altered(path)
        block: np.ndarray = np.load(path, mmap_mode="r", allow_pickle=False)
        return block

    def _keep(self, keys: Sequence[str], rows: Float32[np.ndarray, "n d"]) -> None:
        assert self._folder is not None
        block = np.empty(len(keys), dtype=[("key", f"S{len(keys[0])}"), ("row", "<f4", (self._dimension,))])
        block["key"], block["row"] = [key.encode() for key in keys], rows
        stream = io.BytesIO()
        np.save(stream, block, allow_pickle=False)
        content = stream.getvalue()
        path = self._folder / f"{hashlib.sha256(content).hexdigest()[:32]}.npy"
        self._folder.mkdir(parents=True, exist_ok=True)
        write_file(path, content)
        self._note(path)

    def _read(self, key: str) -> np.ndarray:
        path, row = self._found[key]
        values: np.ndarray = self._blocks[path]["row"][row]
        return values


def keep_arrays(folder: Path | None, key: str, arrays: Mapping[str, np.ndarray]) -> None:
    """Keep what was learnt from gradients, under the fingerprint of all that decides it."""
    if folder is not None:
        content = pack_arrays(arrays)
        folder.mkdir(parents=True, exist_ok=True)
        write_file(folder / f"{key[:32]}-{hashlib.sha256(content).hexdigest()[:32]}.safetensors", content)


def recall_arrays(folder: Path | None, key: str) -> dict[str, np.ndarray] | None:
    """What :func:`keep_arrays` kept under a fingerprint; None if nothing.

    Raises:
        ArtifactError: it was altered.
    """
    kept = [] if folder is None else sorted(folder.glob(f"{key[:32]}-*.safetensors"))
    if not kept:
        return None
    content = kept[0].read_bytes()
    if not kept[0].stem.endswith(hashlib.sha256(content).hexdigest()[:32]):
        raise _altered(kept[0])
    return unpack_arrays(content)


def pack_arrays(arrays: Mapping[str, np.ndarray]) -> bytes:
    """Arrays as the bytes of a safetensors file."""
    return save({name: np.ascontiguousarray(array) for name, array in arrays.items()})  # it writes memory as it lies


def unpack_arrays(content: bytes) -> dict[str, np.ndarray]:
    """What :func:`pack_arrays` packed."""
    return load(content)


def array_digest(array: np.ndarray) -> str:
    """sha256 of an array's numbers, 64 hex digits."""
    return hashlib.sha256(array.tobytes()).hexdigest()


def _altered(path: Path) -> ArtifactError:
    return ArtifactError(f"{path}: was altered after it was written. Delete it: it is made again.")


def chunks(examples: Sequence[Example], size: int = CHUNK) -> Iterator[Sequence[Example]]:
    """Cut examples into chunks of at most *size*."""
    return (examples[first : first + size] for first in range(0, len(examples), size))
