"""Losses of preference training: of pairs, of wanted and unwanted answers, of weighed examples.

For a pair of responses c and r to one prompt, with Δ = log p − log p of the LM before the fine-tune:

* ``dpo``: −log σ(β(Δ(c) − Δ(r))) (Rafailov et al. 2023, Eq. 7); what stands in σ is the pair's margin.
* ``orpo``: −log p(c)/|c| − β log σ(log odds(c) − log odds(r)) (Hong et al. 2024, Eq. 6), the odds p/(1 − p) being those
  of the mean log likelihood of a token. No LM before is needed.
* ``kto``: 1 − σ(±β(Δ(y) − z)) of one response, + if it is wanted, − if not (Ethayarajh et al. 2024, Eq. 8). z is the
  mean Δ of mismatched prompts and responses of the optimizer step, 0 at least, and no gradient passes through it.
* ``weighted``: the loss of the response, times the example's weight; with advantages, GRPO's gradient of a policy.

A step lowers the mean over its examples, but for log likelihoods, which are a mean over all response tokens of the
step, as in a fine-tune on responses. So do trl's trainers, but that theirs of ORPO counts the prompt's tokens too.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Literal, Self, TypeAlias

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from airrep.arrays import Rows
from airrep.lm.attention import PackedDocuments
from airrep.lm.documents import PAIRED, Documents
from airrep.lm.settings import LossName
from airrep.shapes import Float, Float64


@dataclass(frozen=True, eq=False)
class Preference:
    """A loss of preferences, and what it needs to know of some documents beside their tokens."""

    loss: LossName
    beta: float
    factors: Float64[np.ndarray, " n"]
    """As of :func:`factor_of`."""
    reference: Float64[np.ndarray, "n 2"] | None = None
    """Log likelihoods of both responses under the LM before the fine-tune; None: those that the LM gives now."""
    drift: float = 0.0
    """z of KTO."""

    def take(self, rows: Rows) -> Self:
        """That of some documents."""
        reference = None if self.reference is None else self.reference[rows]
        return replace(self, factors=self.factors[rows], reference=reference)

    def reads(self, batch: PackedDocuments) -> Float[Tensor, " count"]:
        """1 for each document that has what the loss reads, 0 for those whose response alone is asked about."""
        factors = torch.from_numpy(np.isfinite(self.factors)).to(batch.ids.device)
        if self.loss not in PAIRED:
            return factors.float()
        return torch.bincount(batch.owners, batch.sides.float(), len(factors)).gt(0).float()

    def of(self, each: Float[Tensor, " r"], batch: PackedDocuments) -> Float[Tensor, " count"]:
        """The part of each document's loss that is no log likelihood; *each* are losses of its response tokens."""
        sums, tokens = side_sums(each, batch, len(self.factors))
        factors = torch.from_numpy(np.nan_to_num(self.factors)).to(sums)
        if self.loss == "orpo":
            means = sums / tokens.clamp(min=1)
            odds = means - torch.log(-torch.expm1(means.clamp(max=-1e-7)))
            return -self.beta * functional.logsigmoid(odds[:, 0] - odds[:, 1])
        before = sums.detach() if self.reference is None else torch.from_numpy(self.reference).to(sums)
        gains = sums - before
        if self.loss == "dpo":
            return -functional.logsigmoid(self.beta * (gains[:, 0] - gains[:, 1]))
        if self.loss == "kto":
            return 1 - torch.sigmoid(factors * self.beta * (gains[:, 0] - self.drift))
        return torch.zeros_like(factors)

    def shares(self, device: Any) -> Float[Tensor, " count"]:
        """How much of each document's negative log likelihood, a token's mean, is in its loss."""
        plain = {"orpo": np.ones_like(self.factors), "weighted": np.nan_to_num(self.factors)}
        return torch.from_numpy(plain.get(self.loss, np.zeros_like(self.factors))).float().to(device)

    def whole(
        self, each: Float[Tensor, " r"], batch: PackedDocuments, reduction: Literal["mean", "sum"] = "mean"
    ) -> Float[Tensor, " count"]:
        """The loss of each document by itself; of one that lacks what the loss reads, that of its response.

        The latter is the mean, or sum, over tokens.
        """
        sums, tokens = side_sums(each, batch, len(self.factors))
        mean = -sums[:, 0] / tokens[:, 0]
        response = -sums[:, 0] if reduction == "sum" else mean
        if self.loss == "weighted":  # a weight is the example's, not a part of what is asked about
            return response
        own = self.of(each, batch) + self.shares(each.device) * mean
        return torch.where(self.reads(batch) > 0, own, response)


def side_sums(
    each: Float[Tensor, " r"], batch: PackedDocuments, count: int
) -> tuple[Float[Tensor, "count 2"], Float[Tensor, "count 2"]]:
    """Log likelihood of both responses of each document, and their tokens."""
    place = 2 * batch.owners + batch.sides
    sums = each.new_zeros(2 * count).index_add(0, place, -each)
    return sums.view(count, 2), torch.bincount(place, minlength=2 * count).view(count, 2).to(each)


def drift_of(now: Float64[np.ndarray, "n 2"], before: Float64[np.ndarray, "n 2"]) -> float:
    """z of KTO: the mean gain of mismatched responses, 0 at least."""
    return max(0.0, float((now - before)[:, 0].mean()))


def mismatched(documents: Documents) -> Documents:
    """Each prompt with the response of the document before, the first with that of the last."""
    count = len(documents)
    found = []
    for row in range(count):
        start, before = int(documents.starts[row]), (row - 1) % count
        response = documents.sequence(before)[documents.starts[before] :]
        found.append((np.concatenate([documents.sequence(row)[:start], response]), start))
    return Documents.of(found)


Refer: TypeAlias = Callable[[Documents], Float64[np.ndarray, "n 2"]]
"""Log likelihoods of both responses of each document under the LM before the fine-tune."""
