"""Methods that learn arrays from a corpus, and keep them in the store."""

from abc import abstractmethod
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import ClassVar, TypeAlias, TypeVar

import numpy as np

from airrep.attributors.base import MethodAttributor, SlowFit
from airrep.attributors.gradient.store import keep_arrays, pack_arrays, recall_arrays, unpack_arrays
from airrep.runtime.artifacts.digests import json_digest
from airrep.runtime.settings import Settings

STATE = "state.safetensors"
"""Name of the arrays in the folder of an index."""
KEY, READER = "key", "reader"
"""Names of the fingerprints of what decides the arrays, and of the LM, among the arrays; older ones lack the second."""

Arrays: TypeAlias = Mapping[str, np.ndarray]
"""What is learnt, by name, and the fingerprint of all that decides it."""

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
        """The fingerprint of all that decides the arrays; another where the LM is not the one that they were learnt of.

        Raises:
            NotFittedError: as for :meth:`encode_train`.
        """
        arrays = self._fitted()
        key, known = (arrays[name].tobytes().hex() if name in arrays else "" for name in (KEY, READER))
        return key if known in ("", self.reader) else json_digest([key, self.reader])

    def save_state(self, folder: Path) -> None:
        (folder / STATE).write_bytes(pack_arrays(self._fitted()))

    def load_state(self, folder: Path) -> None:
        self.take_learnt(unpack_arrays((folder / STATE).read_bytes()))

    def _fitted(self) -> Arrays:
        return self.check_fitted(self._learnt)


def with_key(arrays: Arrays, key: str, name: str = KEY) -> Arrays:
    """Arrays with a fingerprint, hex digits, among them."""
    return {**arrays, name: np.frombuffer(bytes.fromhex(key), np.uint8)}
