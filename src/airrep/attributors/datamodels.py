"""Attribution by datamodels that were fitted already."""

import json
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from airrep.arrays import DenseFeatures, Rows
from airrep.attributors.base import MethodAttributor, OnRows
from airrep.attributors.settings import DatamodelsSettings
from airrep.corpus.corpus import Corpus, Example
from airrep.errors import ArtifactError, DataError
from airrep.runtime.artifacts import canonical_json, check_digests, check_sizes, fetched, json_digest, read_manifest
from airrep.scoring.pooling import Pool

KIND = "datamodels"
WEIGHTS, TRAIN, QUERIES = "weights.npy", "train_hashes.npy", "query_hashes.npy"
SHIFT = "shift.json"
LARGEST_SHIFT = 126
"""Largest exponent n for which 2⁻ⁿ is a normal float32."""


class DatamodelsAttributor(MethodAttributor[DatamodelsSettings]):
    """For each query, a linear regression of minus its loss on which examples the training subset has.

    φ_train(z) holds z's weight in the regression of each query, and φ_query(x) is 1 in x's own column. So the score
    is the weight of z for x: what z adds to the −loss of x when z is in the subset. The sum over a group is
    the prediction of the regression, less its intercept. Examples are recognised by content; others are refused.

    All training features are multiplied by one power of two, which brings the largest weight near the top of float16,
    and query features are divided by it. So small weights are not lost in an index, which stores float16.
    """

    name = "datamodels"
    pool: ClassVar[Pool] = "sum"

    def __init__(self, settings: DatamodelsSettings) -> None:
        super().__init__(settings)
        self._shift = 0
        """Exponent of the power of two; 0 before :meth:`fit`, and for older indexes, whose weights are not scaled."""

    @property
    def fingerprint(self) -> str:
        known = {"method": self.name, "files": self._manifest["files"]}
        return json_digest(known | ({"shift": self._shift} if self._shift else {}))

    @property
    def caution(self) -> str:
        manifest = self._manifest
        missing, seen = manifest["never_drawn"], manifest["train"]["examples"]
        fitted = (
            f"The weights were fitted to the measured losses of instance {manifest['instance']} (train/query split), "
            "so an LDS on these losses says nothing. On subsets left out of the fit, the LDS is "
            f"{100 * manifest['report']['lds']:+.1f} (× 100)."
        )
        absent = (
            f" Examples that were in no subset, so that their weight is 0: {missing:,} of {seen:,}." if missing else ""
        )
        return fitted + absent

    @cached_property
    def _manifest(self) -> Mapping[str, Any]:
        manifest = read_manifest(self._folder, KIND)
        check_sizes(self._folder, manifest["files"])
        return manifest

    @cached_property
    def _folder(self) -> Path:
        return fetched(self._settings.weights)

    @cached_property
    def _weights(self) -> np.ndarray:
        """``(n, q)`` float32, memory-mapped."""
        return self._load(WEIGHTS)

    @cached_property
    def _train(self) -> np.ndarray:
        """Content hashes of the rows of the weights, ascending."""
        return self._load(TRAIN)

    @cached_property
    def _queries(self) -> np.ndarray:
        """Content hashes of the columns of the weights, ascending."""
        return self._load(QUERIES)

    def fit(self, train: Corpus) -> None:
        """Check that the regressions have all training examples (DataError: one is missing), and choose the scale."""
        self._places(train, self._train, "training example", "train.jsonl")
        self._shift = shift_of(max(float(self._weights.max()), -float(self._weights.min())))

    def encode_train(self, examples: Sequence[Example], on_rows: OnRows | None = None) -> DenseFeatures:
        """The weights of each example, ``(rows, q)``, times the power of two.

        DataError: the regressions do not have an example.
        """
        rows = self._places(examples, self._train, "training example", "train.jsonl")
        if on_rows is not None:
            on_rows(len(examples))
        return np.ldexp(np.array(self._weights[rows], np.float32), self._shift)

    def encode_queries(self, examples: Sequence[Example], on_rows: OnRows | None = None) -> DenseFeatures:
        """1 over the power of two in each query's own column, ``(rows, q)``.

        DataError: the regressions have no such query.
        """
        columns = self._places(examples, self._queries, "query", "queries.jsonl")
        if on_rows is not None:
            on_rows(len(examples))
        features = np.zeros((len(examples), len(self._queries)), np.float32)
        features[np.arange(len(examples)), columns] = 2.0**-self._shift
        return features

    def save_state(self, folder: Path) -> None:
        """Write the exponent of the power of two, unless it is 0."""
        if self._shift:
            (folder / SHIFT).write_bytes(canonical_json(self._shift))

    def load_state(self, folder: Path) -> None:
        path = folder / SHIFT
        self._shift = int(json.loads(path.read_bytes())) if path.is_file() else 0

    def _places(self, examples: Sequence[Example], known: np.ndarray, what: str, file: str) -> Rows:
        """Return the index of each example's content hash in *known*, which is ascending."""
        wanted = np.array([example.content_hash.encode() for example in examples], known.dtype)
        places = np.searchsorted(known, wanted).astype(np.int64)
        unseen = np.flatnonzero(known[np.minimum(places, len(known) - 1)] != wanted)
        if len(unseen):
            raise DataError(
                f'{what} "{examples[int(unseen[0])].id}": is not among the examples that {self._folder} was trained '
                f"on. Method datamodels knows only these. Use the examples of {self._folder / file}, or another method."
            )
        return places

    def _load(self, name: str) -> np.ndarray:
        check_digests(self._folder, {name: self._manifest["files"][name]})  # each file once, when it is first needed
        try:
            found: np.ndarray = np.load(self._folder / name, mmap_mode="r", allow_pickle=False)
        except (OSError, ValueError, EOFError) as error:
            raise ArtifactError(
                f"{self._folder / name}: cannot be read as an array ({type(error).__name__}). Restore it from a copy."
            ) from error
        return found


def write_datamodels(folder: Path, weights: np.ndarray, train: np.ndarray, queries: np.ndarray) -> None:
    """Write the attributor's files: weights, ``(n, q)`` float32, and ascending content hashes of rows and columns."""
    for name, array in ((WEIGHTS, weights), (TRAIN, train), (QUERIES, queries)):
        np.save(folder / name, array, allow_pickle=False)


def shift_of(largest: float) -> int:
    """Return the exponent of the power of two that brings the largest feature near the top of float16."""
    return min(14 - int(np.frexp(largest)[1]), LARGEST_SHIFT) if largest > 0 else 0
