"""Attribution by stacks of earlier versions: one pool over summed scores."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from scipy import sparse

from airrep.arrays import Features, MixedFeatures
from airrep.attributors.base import Attributor, OnRows, SeveralMethods
from airrep.attributors.methods import make_attributor
from airrep.attributors.recipes import LEARNT
from airrep.attributors.settings import StackSettings
from airrep.corpus.corpus import Example
from airrep.errors import ConfigError
from airrep.runtime.artifacts.checks import check_sizes
from airrep.runtime.artifacts.digests import json_digest
from airrep.runtime.artifacts.manifests import read_manifest
from airrep.runtime.artifacts.urls import fetched
from airrep.scoring.pooling import Pool


@dataclass(frozen=True)
class Member:
    """One method of a stack, by name, with all of its settings."""

    method: str
    settings: Mapping[str, Any]
    weight: float = 1.0
    """Its share of the stack's scores, in deviations; the shares of all members sum to 1."""
    deviation: float = 1.0
    """Standard deviation of its scores over the training examples, for one query."""
    norm: float = 1.0
    """Root of the mean squared norm of its training features."""

    @property
    def on_train(self) -> float:
        """Factor of its training features, which gives those of all members norms near 1."""
        return 1 / self.norm

    @property
    def on_queries(self) -> float:
        """Factor of its query features, which takes back that of the training features."""
        return self.weight / self.deviation * self.norm


class StackAttributor(SeveralMethods[StackSettings]):
    """s(x, z) = t Σ_k w_k s_k(x, z) / σ_k over several methods k, as one pair of feature maps.

    φ is the members' features side by side, times constants, so that all that airrep does with one method it does
    with a stack. Weights w, deviations σ, the pool and the multiple t were learnt from labels by earlier versions of
    `airrep stack`, which learns channels now: such indexes and stacks still open.
    Members of weight 0 are left out.
    """

    name = "stack"
    pool: ClassVar[Pool] = "sum"

    def __init__(self, settings: StackSettings | None = None) -> None:
        if settings is None:
            raise ConfigError(
                "stack: needs an old stack's folder. `airrep stack` learns channels now: use --method channels."
            )
        super().__init__(settings)

    @property
    def own_pool(self) -> Pool:
        """The pool that ranked the labels best."""
        pool: Pool = self._manifest["pool"]
        return pool

    @property
    def fingerprint(self) -> str:
        known = {name: self._manifest[name] for name in ("members", "multiple", "pool")}
        return json_digest({"method": self.name, **known, "attributors": [one.fingerprint for one in self.parts]})

    @property
    def caution(self) -> str:
        found = [] if self._manifest["report"]["better"] else [self._manifest["report"]["sentence"]]
        return " ".join(dict.fromkeys(filter(None, (*found, *(one.caution for one in self.parts)))))

    @cached_property
    def _manifest(self) -> Mapping[str, Any]:
        folder = fetched(self._settings.stack)
        manifest = read_manifest(folder, LEARNT)
        if "members" not in manifest:
            raise ConfigError(f"{folder}: is a sum of channels. Use --method channels --set channels={folder}.")
        check_sizes(folder, manifest["files"])
        return manifest

    @cached_property
    def members(self) -> tuple[Member, ...]:
        """The methods whose weight is above 0."""
        members = (Member(**member) for member in self._manifest["members"])
        return tuple(member for member in members if member.weight > 0)

    @cached_property
    def parts(self) -> tuple[Attributor, ...]:
        return tuple(make_attributor(member.method, member.settings) for member in self.members)

    def encode_train(self, examples: Sequence[Example], on_rows: OnRows | None = None) -> Features:
        parts = [one.encode_train(examples, done) for one, done in self.in_turn(on_rows)]
        return beside(parts, [member.on_train for member in self.members])

    def encode_queries(self, examples: Sequence[Example], on_rows: OnRows | None = None) -> Features:
        parts = [one.encode_queries(examples, done) for one, done in self.in_turn(on_rows)]
        return beside(parts, [member.on_queries * self._manifest["multiple"] for member in self.members])


def beside(parts: Sequence[Features], factors: Sequence[float]) -> Features:
    """Features side by side, ``(rows, Σ d_k)`` float32, each part times its factor: CSR where one of them is."""
    if any(isinstance(part, MixedFeatures) for part in parts):
        raise ConfigError("stack: has channels as a member; expected methods. Stack the methods themselves.")
    scaled = [
        part * np.float32(factor)
        for part, factor in zip(parts, factors, strict=True)
        if not isinstance(part, MixedFeatures)
    ]
    dense = [part for part in scaled if isinstance(part, np.ndarray)]
    if len(dense) == len(scaled):
        return np.concatenate(dense, axis=1)
    joined = sparse.csr_array(sparse.hstack([sparse.csr_array(part) for part in scaled], format="csr"))
    joined.sort_indices()
    return joined.astype(np.float32)
