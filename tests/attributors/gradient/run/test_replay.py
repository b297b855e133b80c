"""A fine-tune followed back: against torch's own run, and finite differences of data weights in float64."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from reference import gradients as reference
from worlds.double_lms import executed, listed, plain, wide
from worlds.small_world import make_corpus
from worlds.tiny_lms import tiny_lm

from airrep.attributors.gradient.run.metagradient import Replay
from airrep.errors import ConfigError
from airrep.lm.model import TargetLM, load_lm
from airrep.lm.network import order_of
from airrep.lm.settings import FineTuneSettings, LmSettings

TRAIN, QUERIES, SEED = make_corpus(7), make_corpus(2, "q"), 3
SMOOTH = {"batch_examples": 3, "learning_rate": 0.02, "epsilon": 1e-3}
RUNS: dict[str, dict[str, Any]] = {
    "plain": {"clip": None},
    "clipped": {"clip": 0.05},
    "scheduled": {"schedule": "cosine", "warmup_steps": 2, "weight_decay": 0.3, "betas": (0.6, 0.8), "epochs": 3},
}


def tuning(**changes: Any) -> FineTuneSettings:
    return FineTuneSettings.of({**SMOOTH, **changes})


def reference_run(
    model: Any, lm: TargetLM, chosen: FineTuneSettings, members: np.ndarray, guests: Sequence[np.ndarray]
) -> Callable[[np.ndarray], np.ndarray]:
    """Losses of the queries after a fine-tune on *members* by torch's optimizer, by the weights of all examples.

    *guests* join the examples of each step. They count so many times that it is once an epoch over draws of the step.
    """
    documents, asked = listed(lm.tokenise(TRAIN)), listed(lm.tokenise(QUERIES))
    start = {name: each.detach().clone() for name, each in model.named_parameters()}
    orders = [members[rows] for rows in order_of(len(members), chosen, SEED)]

    def losses(weights: np.ndarray) -> np.ndarray:
        with torch.no_grad():
            for name, each in model.named_parameters():
                each.copy_(start[name])
        optimizer = torch.optim.AdamW(
            model.parameters(), betas=chosen.betas, eps=chosen.epsilon, weight_decay=chosen.weight_decay
        )
        for step, rows in enumerate(orders):
            optimizer.param_groups[0]["lr"] = chosen.rate_at(step, len(orders))
            sums = [weights[row] * reference.value(model, documents[row], "loss", "sum") for row in rows]
            times = len(orders) * len(rows) / len(members)
            joined = (weights[row] * reference.value(model, documents[row], "loss", "sum") for row in guests[step])
            sums.extend(times * each for each in joined)
            tokens = sum(len(documents[row][0]) - documents[row][1] for row in rows)
            (torch.stack(sums).sum() / tokens).backward()
            if chosen.clip is not None:
                torch.nn.utils.clip_grad_norm_(model.parameters(), chosen.clip)
            optimizer.step()
            optimizer.zero_grad()
        with torch.no_grad():
            return np.array([float(reference.value(model, each, "loss", "mean")) for each in asked])

    return losses


@pytest.mark.parametrize(("run", "members"), [*((run, [*range(7)]) for run in RUNS), ("clipped", [0, 2, 3, 6])])
def test_influence_is_the_slope_of_a_loss_by_an_examples_weight(tmp_path: Path, run: str, members: list[int]) -> None:
    lm = executed(wide(tiny_lm(tmp_path, "gpt2")), batch_tokens=40)  # other kinds' norms are of float32 throughout
    chosen, rows, step = tuning(**RUNS[run]), np.array(members), 1e-4
    replay = Replay(lm, lm.tokenise(TRAIN), chosen, SEED, rows)
    assert sorted(np.concatenate([rows, *replay._guests])) == [*range(len(TRAIN))]
    losses = reference_run(plain(lm), lm, chosen, rows, replay._guests)
    slopes = np.empty((len(TRAIN), len(QUERIES)))
    for row in range(len(TRAIN)):
        more, less = (np.isin(np.arange(len(TRAIN)), members).astype(float) for _ in range(2))
        more[row], less[row] = more[row] + step, less[row] - step
        slopes[row] = (losses(more) - losses(less)) / (2 * step)
    before = [each.clone() for each in lm.model.parameters()]
    found = replay.influence(lm.tokenise(QUERIES))
    assert np.abs(slopes).max() > 1e-3
    np.testing.assert_allclose(found, -slopes, atol=1e-6 * np.abs(slopes).max())
    assert all(map(torch.equal, before, lm.model.parameters()))


@pytest.mark.parametrize(
    ("kind", "changes"), [("llama", {}), ("gpt2", {"lora_rank": 2, "learning_rate": 0.01}), ("gpt2", {"epochs": 1})]
)
def test_it_does_the_fine_tune_itself(tmp_path: Path, kind: str, changes: dict[str, Any]) -> None:
    lm = load_lm(LmSettings(lm=tiny_lm(tmp_path, kind), precision="float32", device="cpu"))
    chosen, train = tuning(weight_decay=0.0, **changes), lm.tokenise(TRAIN)
    ends: list[list[torch.Tensor]] = []

    class Noted(Replay):
        def _backward(self, parameters: list[torch.Tensor], states: Any) -> Any:
            ends.append([each.detach().clone() for each in parameters])
            return super()._backward(parameters, states)

    Noted(lm, train, chosen, SEED).influence(lm.tokenise(QUERIES))
    told: list[list[torch.Tensor]] = []

    def note(_done: Any) -> None:
        told[:] = [[each.detach().clone() for each in lm.model.parameters() if each.requires_grad]]

    lm.fine_tune(train, chosen, SEED, note)
    for one, other in zip(ends[0], told[0], strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)


def test_parts_of_an_answer_add_up(tmp_path: Path) -> None:
    lm = load_lm(LmSettings(lm=tiny_lm(tmp_path), precision="float32", device="cpu"))
    whole, cut = QUERIES[0], len(QUERIES[0].response) // 2
    parts = [replace(whole, span=((0, cut),)), replace(whole, span=((cut, len(whole.response)),)), whole]
    one, other, both = Replay(lm, lm.tokenise(TRAIN), tuning(), SEED).influence(lm.tokenise(parts)).T
    np.testing.assert_allclose(one + other, both, atol=1e-5 * np.abs(both).max())


def test_code_without_a_second_derivative_is_named(tmp_path: Path) -> None:
    class Once(torch.autograd.Function):
        @staticmethod
        def forward(_ctx: Any, values: torch.Tensor) -> torch.Tensor:
            return values * 1.0

        @staticmethod
        @torch.autograd.function.once_differentiable
        def backward(_ctx: Any, gradients: torch.Tensor) -> torch.Tensor:
            return gradients

    lm = load_lm(LmSettings(lm=tiny_lm(tmp_path), precision="float32", device="cpu"))
    lm.model.lm_head.register_forward_hook(lambda _module, _inputs, outputs: Once.apply(outputs))
    with pytest.raises(ConfigError, match=r"^lm .*: cannot be differentiated twice: .*\. Use another method\.$"):
        Replay(lm, lm.tokenise(TRAIN), tuning(), SEED).influence(lm.tokenise(QUERIES))
