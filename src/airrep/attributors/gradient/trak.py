"""Attribution by gradients and their raw Fisher matrix: TRAK, DsDm."""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import ClassVar, NamedTuple

import numpy as np
from scipy import linalg

from airrep.arrays import DenseFeatures
from airrep.attributors.base import OnRows, SlowFit, count_rows
from airrep.attributors.gradient.base import CheckpointAttributor, LmWeights
from airrep.attributors.gradient.curvature import damped
from airrep.attributors.gradient.reading import Objective
from airrep.attributors.gradient.store import by_chunks, chunks
from airrep.attributors.gradient.tokens import Dual
from airrep.attributors.settings import TrakSettings
from airrep.corpus.corpus import Corpus, Example
from airrep.errors import ConfigError
from airrep.runtime.artifacts import canonical_json, json_digest
from airrep.runtime.metering import OnProgress
from airrep.shapes import Float, Float64

LEARNT = "learnt.json"
FISHER_NUMBERS = 2**30
"""Most numbers in all Fisher matrices: 8 GiB in float64."""


class _Learnt(NamedTuple):
    """The inverse Fisher matrices of a training corpus."""

    inverses: tuple[Float[np.ndarray, "d d"], ...]
    """(F + λI)⁻¹ at each of the weights, times the scale."""
    scale: float
    """Factor that brings training features into the range of float16."""
    train: str
    """Fingerprint of the training corpus, as the LM reads it."""


class TrakAttributor(CheckpointAttributor[TrakSettings], SlowFit):
    """φ_train(z) = (F + λI)⁻¹ g(z) · (1 − p(z)) and φ_query(x) = g(x), with F = (1/n) Σ g gᵀ over the corpus.

    g is the projected gradient of minus the log odds of the response, log p − log(1 − p) for each of its tokens, and
    1 − p the mean over these tokens (TRAK, Eq. 13 to 16). With several checkpoints, the products and 1 − p are each
    averaged. Training features are scaled to fit float16, and query features inversely, so scores stay the same.
    """

    name = "trak"
    output_probability: ClassVar[bool] = True

    def __init__(self, settings: TrakSettings) -> None:
        super().__init__(settings)
        self._learnt: _Learnt | None = None

    @property
    def objective(self) -> Objective:
        return "margin" if self.output_probability else "loss"

    @property
    def fingerprint(self) -> str:
        own = {"damping": self.settings.damping, "output_probability": self.output_probability}
        weights = [each.name for each in self.weights]
        train = self._fitted().train
        return json_digest({"method": self.name, **self.recipe, **own, "weights": weights, "train": train})

    def fit(self, train: Corpus, progress: OnProgress | None = None) -> None:
        """Add up the Fisher matrix over the corpus; its gradients are stored on the way.

        ConfigError: there are too many features for Fisher matrices. TrainingError: all gradients are zero.
        """
        super().fit(train)
        if len(self.weights) * self.dimension**2 > FISHER_NUMBERS:
            raise ConfigError(
                f"{self.name}: the Fisher matrices of {len(self.weights) * self.dimension:,} features need more than 8 "
                "GiB. Lower rank, or name fewer modules."
            )
        squares, inverses = 0.0, []
        for weights in self.weights:
            values, vectors = linalg.eigh(self._fisher(train, weights, progress))
            values = values.clip(min=0)
            larger = damped(values, self.settings.damping)
            # the mean squared length of (F + λI)⁻¹ g over the corpus, which is the trace of F (F + λI)⁻²
            squares += float(np.sum(values / larger**2))
            inverses.append((vectors / larger) @ vectors.T)
        scale = float(1 / np.sqrt(squares))
        self._learnt = _Learnt(tuple(each * scale for each in inverses), scale, self.lm.corpus_key(train))

    def _fisher(self, train: Corpus, weights: LmWeights, progress: OnProgress | None) -> Float64[np.ndarray, "d d"]:
        total = np.zeros((self.dimension, self.dimension))
        on_rows = count_rows(len(train), progress, stage="learning from the data")
        for part in chunks(train):
            rows = self.gradients(part, weights, on_rows).rows.astype(np.float64)
            total += rows.T @ rows
        return total / len(train)

    def encode_train(self, examples: Sequence[Example], on_rows: OnRows | None = None) -> DenseFeatures:
        self._fitted()
        dimension = self.dimension * len(self.weights)
        return by_chunks(examples, dimension, lambda part: self._train_features(part, on_rows))

    def _train_features(self, examples: Sequence[Example], on_rows: OnRows | None) -> Float[np.ndarray, "n d"]:
        # in float64, since the inverse's large numbers cancel for gradients like the corpus's
        found = list(self.at_all(examples, on_rows))
        pairs = zip(found, self._fitted().inverses, strict=True)
        rows: np.ndarray = np.concatenate([g.rows.astype(np.float64) @ inverse for g, inverse in pairs], axis=1)
        if not self.output_probability:
            return rows
        doubts = np.stack([gradients.doubts for gradients in found]).mean(axis=0)
        return rows * doubts[:, None]

    def token_scales(self, examples: Sequence[Example]) -> Iterator[tuple[LmWeights, Float[np.ndarray, " n"]]]:
        scales = np.ones(len(examples))
        if self.output_probability:
            scales[1:] = np.mean([each.doubts for each in self.at_all(examples[1:], None)], axis=0)
        scales[0] = 1 / (self._fitted().scale * len(self.weights))
        for weights in self.weights:
            yield weights, scales

    def dual(self, weights: LmWeights) -> Dual:
        inverse = self._fitted().inverses[self.weights.index(weights)]
        return lambda rows: rows @ inverse

    def encode_queries(self, examples: Sequence[Example], on_rows: OnRows | None = None) -> DenseFeatures:
        scale = self._fitted().scale
        rows = np.concatenate([gradients.rows for gradients in self.at_all(examples, on_rows)], axis=1)
        return (rows / (scale * len(self.weights))).astype(np.float32)

    def save_state(self, folder: Path) -> None:
        learnt = self._fitted()
        for number, inverse in enumerate(learnt.inverses):
            np.save(folder / f"inverse-{number}.npy", inverse)
        (folder / LEARNT).write_bytes(canonical_json({"scale": learnt.scale, "train": learnt.train}))

    def load_state(self, folder: Path) -> None:
        learnt = json.loads((folder / LEARNT).read_bytes())
        paths = [folder / f"inverse-{number}.npy" for number in range(len(self.weights))]
        inverses = tuple(np.load(path, allow_pickle=False) for path in paths)
        self._learnt = _Learnt(inverses, learnt["scale"], learnt["train"])

    def _fitted(self) -> _Learnt:
        return self.check_fitted(self._learnt)


class DsdmAttributor(TrakAttributor):
    """TRAK with gradients of the loss and without the output probability, as the AirRep paper runs DsDm."""

    name = "dsdm"
    output_probability = False
