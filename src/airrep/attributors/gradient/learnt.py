"""Methods that learn arrays from a corpus, and keep them in the store."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import ClassVar, TypeAlias, TypeVar

import numpy as np

from airrep.attributors.base import MethodAttributor, SlowFit
from airrep.attributors.gradient.store import keep_arrays, pack_arrays, recall_arrays, unpack_arrays
from airrep.corpus.corpus import Corpus
from airrep.runtime.seeding import stream
from airrep.runtime.settings import Settings

STATE = "state.safetensors"
"""Name of the arrays in the folder of an index."""
KEY = "key"
"""Name of the fingerprint among the arrays."""

Arrays: TypeAlias = Mapping[str, np.ndarray]
"""What is learnt, by name, and the fingerprint of all that decides it."""

S = TypeVar("S", bound=Settings)


class LearnsArrays(MethodAttributor[S], SlowFit):
    """A method whose :meth:`fit` learns arrays; an index keeps them, and a store lets other indexes find them."""

    made_of_learnt: ClassVar[tuple[str, ...]] = ()
    """Names of cached properties that are made of the arrays."""

    _learnt: Arrays | None = None

    def recall_or_learn(self, folder: Path | None, key: str, learn: Callable[[], Arrays]) -> None:
        """Take the arrays that a run kept in a store under the fingerprint of all that decides them, or learn them."""
        self._learnt = recall_arrays(folder, key)
        if self._learnt is None:
            # laid out as they are when they are read back, since products round by layout on some processors
            arrays = {name: np.ascontiguousarray(array) for name, array in learn().items()}
            self._learnt = with_key(arrays, key)
            keep_arrays(folder, key, self._learnt)
        self.take_learnt(self._learnt)

    def take_learnt(self, arrays: Arrays) -> None:
        """Take arrays, and drop what was made of those of an earlier corpus."""
        self._learnt = arrays
        for cached in self.made_of_learnt:
            self.__dict__.pop(cached, None)

    @property
    def learnt_key(self) -> str:
        """The fingerprint of all that decides the arrays; NotFittedError as for :meth:`encode_train`."""
        return self._fitted()[KEY].tobytes().hex()

    def save_state(self, folder: Path) -> None:
        (folder / STATE).write_bytes(pack_arrays(self._fitted()))

    def load_state(self, folder: Path) -> None:
        self.take_learnt(unpack_arrays((folder / STATE).read_bytes()))

    def _fitted(self) -> Arrays:
        return self.check_fitted(self._learnt)


def with_key(arrays: Arrays, key: str) -> Arrays:
    """Arrays with their fingerprint, hex digits, among them."""
    return {**arrays, KEY: np.frombuffer(bytes.fromhex(key), np.uint8)}


def sample_of(train: Corpus, size: int, seed: int) -> Corpus:
    """So many examples of a corpus, drawn by the seed, in their order there; all if there are no more."""
    rows = stream(seed, "sample").permutation(len(train))[:size]
    return train.take(np.sort(rows))
