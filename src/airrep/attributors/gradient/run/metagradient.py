"""Attribution by following a whole fine-tune back."""

from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from airrep.arrays import Rows
from airrep.attributors.direct import QueryScorer
from airrep.attributors.gradient.run.replay import ADJOINTS, Replay
from airrep.attributors.gradient.run.warmed import ReadsWarmup
from airrep.attributors.gradient.store import QUERY_NUMBERS, ScoresByParts, ScoreStore, store_folder, with_key
from airrep.attributors.settings import MetagradientSettings
from airrep.corpus.corpus import Corpus, Example
from airrep.errors import ConfigError
from airrep.lm.documents import Documents
from airrep.lm.warmup import sample_rows
from airrep.runtime.artifacts.manifests import json_digest
from airrep.runtime.metering import OnProgress
from airrep.runtime.seeding import stream_seed
from airrep.scoring.pooling import Pool
from airrep.shapes import Float32, Float64

STEADY = 1e-6
"""AdamW's epsilon from which on the slopes of its first steps tell what larger changes do."""
KEYS = "keys"
"""Name of the examples' keys among the arrays that an index keeps."""
MEMBERS = "members"
"""Name of the rows that the fine-tune had, if it had not all."""


class MetagradientAttributor(ReadsWarmup[MetagradientSettings], ScoresByParts[MetagradientSettings]):
    """Score = −∂ℓ_x(θ_T)/∂w_z: how the query's loss behind a whole fine-tune changes with the weight of an example.

    θ_T are the weights that the warm-up's fine-tune ends with, and w_z multiplies the loss of example z in it. The
    fine-tune is done again, with its own data, order and seed, and followed back: see
    :class:`airrep.attributors.gradient.run.replay.Replay`. Where a text stands in the data several times, each of its
    rows has the mean over them.

    If the warm-up was on a sample of n of N examples (``count``), w_z is 1 for these and 0 for the others. What z does
    is the integral of the slope from 0 to 1, by the trapezoidal rule the mean of both ends. So slopes are multiplied by
    N / 2n of the sample, and by N / 2 (N − n) of the others: the mean over samples is that mean.
    """

    name = "metagradient"
    wanted = "is no warm-up of airrep; expected a fine-tune to follow. Run: airrep warmup DATA --lm MODEL --out DIR"
    units = "decrease of the query's loss (nats) for each 1 that the example's weight in the fine-tune grows by"
    reads_spans = True
    pool: ClassVar[Pool] = "sum"
    _last: tuple[tuple[str, ...], dict[str, np.ndarray]] | None = None

    @property
    def reader(self) -> str:
        return self.lm.fingerprint

    @property
    def fingerprint(self) -> str:
        return json_digest({"method": self.name, "learnt": self.learnt_key})

    @cached_property
    def caution(self) -> str:
        """Told where the first steps go by the signs of gradients, whose slope says nothing of larger changes."""
        if self.warmup.fine_tune.epsilon >= STEADY:
            return ""
        return (
            f"AdamW's epsilon is {self.warmup.fine_tune.epsilon:.0e} in the fine-tune of {self.warmup.path}: its first "
            "steps go by the signs of gradients, and scores predict worse. Run: airrep warmup DATA --lm MODEL "
            "--out DIR --set epsilon=1e-5"
        )

    @cached_property
    def folder(self) -> Path | None:
        """The directory of scores that were computed before."""
        return store_folder(None)

    @property
    def _request(self) -> dict[str, Any]:
        """Return what decides the fine-tune."""
        found: dict[str, Any] = self.warmup.manifest["request"]
        return found

    @property
    def _seed(self) -> int:
        """The seed of the fine-tune's order."""
        return stream_seed(self._request["seed"], "warm-up")

    def fit(self, train: Corpus, progress: OnProgress | None = None) -> None:  # noqa: ARG002 - nothing takes long
        """Take the data of the fine-tune, in its order.

        Raises:
            ConfigError: the fine-tune was on other data, or with a loss of preferences.
        """
        if self.lm.settings.loss != "sft":
            raise ConfigError(
                f"{self.name}: cannot follow a fine-tune with loss={self.lm.settings.loss}; expected loss=sft. Take "
                "--recipe lm"
            )
        super().fit(train)
        if self._request["corpus"] != train.fingerprint:
            raise ConfigError(
                f"{self.name}: {self.warmup.path} was fine-tuned on other data than these {len(train):,} examples; "
                "expected the same (--dry-run reads only a part of them). Run: airrep warmup DATA --lm MODEL --out DIR"
            )
        documents = self.lm.tokenise(train)
        keys = np.frombuffer(bytes.fromhex("".join(map(self.lm.key, train))), np.uint8).reshape(len(train), -1)
        arrays = {name: np.asarray(getattr(documents, name)) for name in ("ids", "offsets", "starts")}
        decisive = {"fine_tune": self._request["fine_tune"], "seed": self._request["seed"]}
        if (count := self._request["count"]) is not None:
            arrays[MEMBERS] = sample_rows(train, count, self._request["seed"])
            decisive["count"] = count
        key = json_digest({"run": decisive, "corpus": self.lm.corpus_key(train), "lm": self.lm.fingerprint})
        self.take_learnt(with_key(with_key({**arrays, KEYS: keys}, key), self.reader, "reader"))

    @property
    def at_once(self) -> int:
        weights: int = sum(each.numel() for each in self.lm.model.parameters())
        return min(QUERY_NUMBERS, self.lm.sums) // (ADJOINTS * weights)

    def scorer(self, queries: Sequence[Example]) -> QueryScorer:
        """Scores of examples for some queries (ConfigError: one was not in the fine-tune)."""
        key = json_digest({"scores": self.fingerprint, **self.execution})
        store = ScoreStore(self.folder, key, queries, self.lm.key)

        def followed(missing: Sequence[Example], chosen: Sequence[int]) -> np.ndarray:
            rows = self._followed([queries[place] for place in chosen])
            if (other := next((one for one in missing if self.lm.key(one) not in rows), None)) is not None:
                raise ConfigError(
                    f"{self.name}: example '{other.id}' was not in the fine-tune of {self.warmup.path}. "
                    "Make the warm-up again on all data, and then the index."
                )
            return np.stack([rows[self.lm.key(one)] for one in missing])

        return lambda train, on_rows=None: store.rows(train, followed, on_rows)

    def _followed(self, queries: Sequence[Example]) -> dict[str, Float32[np.ndarray, " q"]]:
        """Scores of all examples of the fine-tune by their keys; those of the last queries are remembered."""
        asked = tuple(map(self.lm.key, queries))
        if self._last is None or self._last[0] != asked:
            learnt, tuning = self._fitted(), self.warmup.fine_tune
            documents = Documents(learnt["ids"], learnt["offsets"], learnt["starts"])
            run = Replay(self.lm, documents, tuning, self._seed, learnt.get(MEMBERS))
            scores = run.influence(self.lm.tokenise(queries)) * _shares(len(documents), learnt.get(MEMBERS))
            rows: dict[str, list[int]] = {}
            for row, key in enumerate(learnt[KEYS]):
                rows.setdefault(bytes(key).hex(), []).append(row)
            self._last = asked, {key: scores[own].mean(axis=0).astype(np.float32) for key, own in rows.items()}
        return self._last[1]


def _shares(count: int, members: Rows | None) -> Float64[np.ndarray, "n 1"]:
    """Return what slopes are multiplied by, so that both ends of a weight count alike in a mean over samples."""
    inside = np.isin(np.arange(count), np.arange(count) if members is None else members)
    if inside.all():
        return np.ones((count, 1))
    shares: np.ndarray = count / 2 / np.where(inside, inside.sum(), (~inside).sum())
    return shares[:, None]
