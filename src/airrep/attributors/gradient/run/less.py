"""Attribution by gradients of low-rank adapters: LESS."""

from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Literal, NamedTuple, TypeAlias

import numpy as np
import torch
from torch import Tensor

from airrep.arrays import DenseFeatures
from airrep.attributors.base import OnRows
from airrep.attributors.gradient.curvature import unit
from airrep.attributors.gradient.projection import RandomProjection
from airrep.attributors.gradient.reading import DocumentPlaces, Reader, Site, find_sites, read_gradients, unread
from airrep.attributors.gradient.run.warmed import ReadsWarmup
from airrep.attributors.gradient.store import GradientStore, by_chunks, store_folder
from airrep.attributors.settings import LessSettings
from airrep.corpus.corpus import Example, wholes
from airrep.errors import ConfigError
from airrep.lm.documents import REFERRED
from airrep.lm.folders.forms import ADAPTER, ADAPTER_CONFIG
from airrep.lm.lora import MOMENTS, file_name, load_adapters, load_moments
from airrep.lm.model import TargetLM
from airrep.lm.warmup import Warmup
from airrep.runtime.artifacts import file_digest, json_digest
from airrep.shapes import Float, Float32

Side: TypeAlias = Literal["train", "queries"]

NUMBERS = 2**24
"""Numbers of unprojected gradients that are held at a time, 64 MiB."""


class AdamMoments(NamedTuple):
    """Adam's moments of one weight tensor at the end of the warm-up, and Adam's settings."""

    first: Float[Tensor, " w"]
    second: Float[Tensor, " w"]
    betas: tuple[float, float]
    epsilon: float

    def corrected(self, gradients: Float[Tensor, "n w"]) -> Float[Tensor, "n w"]:
        """Return the direction of Adam's next step for each gradient g: m' / √(v' + ε).

        m' = β₁ m + (1 − β₁) g, v' = β₂ v + (1 − β₂) g². As in LESS's published code, moments are not divided by
        1 − βᵗ, and ε is inside the root.
        """
        moved = torch.lerp(gradients, self.first, self.betas[0])
        squared = torch.lerp(gradients.square(), self.second, self.betas[1])
        return moved / (squared + self.epsilon).sqrt_()


class LessAttributor(ReadsWarmup[LessSettings]):
    """φ_train(z) = Π Γ(∇ℓ(z)) and φ_query(x) = Π ∇ℓ(x), scaled to length 1.

    ∇ℓ is the gradient of an example's loss with respect to all weights of the adapters, Γ corrects it by Adam's moments
    (:meth:`AdamMoments.corrected`), and Π is the random projection of
    :class:`airrep.attributors.gradient.projection.RandomProjection`. An example whose gradient is zero or not finite
    has features of zero.
    """

    name = "less"
    wanted = (
        "has no low-rank adapters with Adam's moments. Make a warm-up with them: airrep warmup DATA --lm MODEL --out "
        "DIR --set lora_rank=128 --set lora_alpha=512 --set epochs=4"
    )
    reads_pairs = True
    reads_spans = True

    def __init__(self, settings: LessSettings) -> None:
        super().__init__(settings)
        self._stores: dict[Side, GradientStore] = {}

    def suits(self, warmup: Warmup) -> bool:
        return warmup.adapter is not None

    @property
    def _adapter(self) -> Path:
        assert self.warmup.adapter is not None
        return self.warmup.adapter

    def prepare(self, lm: TargetLM) -> None:
        """Load the adapters into the LM (ConfigError: they do not fit)."""
        load_adapters(lm.model, self._adapter)
        if self.warmup.manifest["reading"].get("loss") in REFERRED:
            lm.earlier = self._base

    @cached_property
    def sites(self) -> tuple[Site, ...]:
        """The small linear maps of the adapters."""
        return find_sites(self.lm.model, ("*.lora_A.*", "*.lora_B.*"), f"lm {self.lm.name}")

    @cached_property
    def caution(self) -> str:
        return unread(self.lm.model, self.name)

    @cached_property
    def _adam(self) -> Mapping[str, AdamMoments]:
        """Adam's moments by the names of the sites."""
        moments, chosen = load_moments(self._adapter), self.warmup.fine_tune
        names = {site.name: file_name(f"{site.name}.weight") for site in self.sites}
        absent = next((name for name in names.values() if name not in moments), None)
        if absent is not None:
            raise ConfigError(
                f"{self._adapter / MOMENTS}: lacks the optimizer state (Adam moments) of {absent}. Run `airrep warmup` "
                "again."
            )
        device = self.lm.execution.device
        flat = {name: [each.flatten().to(device) for each in moments[file]] for name, file in names.items()}
        return {
            name: AdamMoments(first, second, chosen.betas, chosen.epsilon) for name, (first, second) in flat.items()
        }

    @cached_property
    def _sketch(self) -> RandomProjection:
        return RandomProjection(self._settings.dimension, self._settings.seed, self.lm.execution.device)

    @cached_property
    def _recipe(self) -> dict[str, object]:
        """The fields of the fingerprint; only the precision is left out of what decides features."""
        files = {name: file_digest(self._adapter / name) for name in (ADAPTER_CONFIG, ADAPTER, MOMENTS)}
        chosen = self.warmup.fine_tune
        return {
            "method": self.name,
            "lm": self.lm.fingerprint,
            "adapter": files,
            "adam": [*chosen.betas, chosen.epsilon],
            "dimension": self._settings.dimension,
            "reduction": "mean",
            "seed": self._settings.seed,
        }

    @property
    def fingerprint(self) -> str:
        return json_digest(self._recipe)

    def encode_train(self, examples: Sequence[Example], on_rows: OnRows | None = None) -> DenseFeatures:
        return self._features("train", examples, on_rows)

    def encode_queries(self, examples: Sequence[Example], on_rows: OnRows | None = None) -> DenseFeatures:
        return self._features("queries", examples, on_rows)

    def _features(self, side: Side, examples: Sequence[Example], on_rows: OnRows | None) -> DenseFeatures:
        """Return projected gradients of length 1, from the store or computed now."""
        if side not in self._stores:
            key = json_digest({**self._recipe, **self.execution, "side": side})
            folder, dimension = store_folder(self._settings.store), self._settings.dimension
            self._stores[side] = GradientStore(folder, key, dimension, self.lm.key)
        return by_chunks(examples, self._settings.dimension, lambda part: self._unit_rows(side, part, on_rows))

    def _unit_rows(self, side: Side, examples: Sequence[Example], on_rows: OnRows | None) -> Float[np.ndarray, "n p"]:
        rows, full = self._rows(side, examples, on_rows), wholes(examples)
        return unit(rows, None if full is None else self._rows(side, full, None))

    def _rows(self, side: Side, examples: Sequence[Example], on_rows: OnRows | None) -> Float32[np.ndarray, "n p"]:
        return self._stores[side].rows(examples, lambda missing: self._compute(side, missing), on_rows)

    def _compute(self, side: Side, examples: Sequence[Example]) -> Float32[np.ndarray, "n p"]:
        documents = self.lm.tokenise(examples)
        reader = _AdapterReader(self._sketch, self._adam if side == "train" else None)
        rows = np.zeros((len(documents), self._settings.dimension), np.float32)
        for read in read_gradients(self.lm, documents, self.sites, reader):
            rows[read.rows] = reader.projected.cpu().numpy()
        rows[~np.isfinite(rows).all(axis=1)] = 0.0
        return rows


class _AdapterReader(Reader):
    """Reader that projects each document's whole gradient, site after site, a few documents at a time."""

    def __init__(self, sketch: RandomProjection, adam: Mapping[str, AdamMoments] | None) -> None:
        self._sketch = sketch
        self._adam = adam
        self._places: DocumentPlaces | None = None

    @property
    def projected(self) -> Float[Tensor, "count p"]:
        """Projections of the last batch; zeros for a document whose whole gradient is zero."""
        return torch.where(self._seen[:, None], self._sums, 0.0)

    def take(self, site: Site, kept: Tensor, gradients: Float[Tensor, "t o"], places: DocumentPlaces, /) -> None:
        if places.whole is not self._places:  # the first site of a new batch
            self._places = places.whole
            self._sums = gradients.new_zeros(places.count, self._sketch.dimension)
            self._seen = torch.zeros(places.count, dtype=torch.bool, device=gradients.device)
        inputs, outputs = places.table(kept), places.table(gradients).transpose(1, 2)
        step = max(1, NUMBERS // (site.width_in * site.width_out))
        for first in range(0, places.count, step):
            part = slice(first, first + step)
            whole = torch.bmm(outputs[part], inputs[part]).flatten(1)
            self._seen[part] |= whole.any(1)  # before Adam's moments, which would make zero gradients nonzero
            if self._adam is not None:
                whole = self._adam[site.name].corrected(whole)
            self._sums[part] += self._sketch.of(site.name, whole)
