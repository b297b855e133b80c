"""Labels from losses, and the ranking loss against a double loop."""

import math
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from reference import ranking_loss as oracle
from torch.overrides import TorchFunctionMode

from airrep.errors import ConfigError, DataError
from airrep.evaluation.statistics.labels import Scale, normalise_losses
from airrep.training import ranking_loss as ranking
from airrep.training.ranking_loss import count_pairs, ranking_loss

NAN = math.nan


def make_pair(
    seed: int, q: int, m: int, missing: float = 0.0, dtype: torch.dtype = torch.float64
) -> list[torch.Tensor]:
    """Scores and labels with ties, and some labels missing."""
    generator = torch.Generator().manual_seed(seed)
    scores = torch.randn(q, m, generator=generator, dtype=dtype) * 3
    labels = (torch.randn(q, m, generator=generator, dtype=dtype) * 20).round() / 7
    labels[torch.rand(q, m, generator=generator) < missing] = NAN
    return [scores, labels]


@given(
    seed=st.integers(0, 10**6),
    shape=st.tuples(st.integers(1, 5), st.integers(2, 23)),
    missing=st.sampled_from([0.0, 0.3]),
    t_min=st.sampled_from([0.0, 0.1, 1.0]),
    t_max=st.sampled_from([1.0, 5.0, math.inf]),
    block=st.sampled_from([1, 30, 200, 2**16]),
)
@settings(max_examples=40, deadline=None)
def test_the_loss_and_its_gradient_are_those_of_a_double_loop(
    seed: int, shape: tuple[int, int], missing: float, t_min: float, t_max: float, block: int
) -> None:
    scores, labels = make_pair(seed, *shape, missing)
    total, count, gradient = oracle.ranking_loss(scores.tolist(), labels.tolist(), t_min, t_max)
    scores.requires_grad_()
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(ranking.PAIRS, "cpu", block)
        loss = ranking_loss(scores, labels, t_min, t_max, "sum")
        assert count_pairs(labels, t_min) == count
    loss.backward()
    assert loss.item() == pytest.approx(total, rel=1e-12, abs=1e-12)
    np.testing.assert_allclose(scores.grad, gradient, rtol=1e-11, atol=1e-11)


def test_the_mean_is_over_the_counted_pairs_of_all_queries() -> None:
    scores, labels = make_pair(1, 6, 17, missing=0.2)
    total, count, _ = oracle.ranking_loss(scores.tolist(), labels.tolist())
    assert ranking_loss(scores, labels).item() == pytest.approx(total / count, rel=1e-12)


def test_autograd_agrees_with_the_closed_form_gradient() -> None:
    scores, labels = make_pair(2, 3, 9, missing=0.1)
    for reduction in ("mean", "sum"):
        assert torch.autograd.gradcheck(
            lambda f, by=reduction: ranking_loss(f, labels, reduction=by), (scores.requires_grad_(),)
        )


def test_sums_of_parts_over_their_pairs_are_the_mean_of_the_whole() -> None:
    scores, labels = make_pair(3, 10, 12)
    parts = [ranking_loss(scores[i : i + 3], labels[i : i + 3], reduction="sum") for i in range(0, 10, 3)]
    pairs = sum(count_pairs(labels[i : i + 3]) for i in range(0, 10, 3))
    assert (sum(parts) / pairs).item() == pytest.approx(ranking_loss(scores, labels).item(), rel=1e-12)


def test_the_order_of_queries_and_subsets_does_not_matter() -> None:
    scores, labels = make_pair(4, 7, 15, missing=0.1)
    rows, columns = torch.randperm(7), torch.randperm(15)
    moved = ranking_loss(scores[rows][:, columns], labels[rows][:, columns])
    assert moved.item() == pytest.approx(ranking_loss(scores, labels).item(), rel=1e-12)


def test_scores_in_the_order_of_the_labels_lose_less_than_others() -> None:
    _, labels = make_pair(5, 8, 20)
    right, none, wrong = (ranking_loss(factor * labels, labels).item() for factor in (3.0, 0.0, -3.0))
    assert right < none < wrong
    one_pair = ranking_loss(torch.zeros(1, 2), torch.tensor([[2.0, 0.0]]))
    assert one_pair.item() == pytest.approx(2 * math.log(2))


def test_small_gaps_do_not_count_and_wide_ones_weigh_no_more_than_the_greatest() -> None:
    labels = torch.tensor([[0.0, 0.05, 20.0]], dtype=torch.float64)
    scores = torch.zeros(1, 3, dtype=torch.float64)
    assert count_pairs(labels) == 2
    assert ranking_loss(scores, labels).item() == pytest.approx(5 * math.log(2))
    assert count_pairs(torch.tensor([[1.0, 1.0, 1.5]]), t_min=0.0) == 2


def test_a_missing_label_hides_its_score_whatever_it_is() -> None:
    scores, labels = make_pair(6, 3, 8)
    labels[:, 2] = NAN
    expected = ranking_loss(scores, labels).item()
    scores[:, 2] = NAN
    scores.requires_grad_()
    loss = ranking_loss(scores, labels)
    loss.backward()
    assert loss.item() == expected
    assert scores.grad is not None
    assert torch.isfinite(scores.grad).all()
    assert (scores.grad[:, 2] == 0).all()


def test_no_gradient_goes_to_the_labels() -> None:
    scores, labels = make_pair(7, 2, 5)
    labels.requires_grad_()
    loss = ranking_loss(scores.requires_grad_(), labels)
    loss.backward()
    assert labels.grad is None


def test_great_differences_do_not_overflow() -> None:
    labels = torch.tensor([[1.0, 0.0]])
    scores = torch.tensor([[-1e6, 1e6]], requires_grad=True)
    loss = ranking_loss(scores, labels)
    loss.backward()
    assert loss.item() == pytest.approx(2e6)
    assert scores.grad is not None
    assert scores.grad.tolist() == [[-1.0, 1.0]]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_narrow_scores_give_a_loss_of_their_type(dtype: torch.dtype) -> None:
    scores, labels = make_pair(8, 40, 30)
    narrow = scores.to(dtype).requires_grad_()
    exact = narrow.detach().double().requires_grad_()
    loss, wide = ranking_loss(narrow, labels.float()), ranking_loss(exact, labels.float().double())
    loss.backward()
    wide.backward()
    assert loss.dtype == dtype
    assert loss.item() == pytest.approx(wide.item(), rel=1e-6 if dtype == torch.float32 else 4e-3)
    assert narrow.grad is not None
    assert exact.grad is not None
    error = (narrow.grad.double() - exact.grad).norm() / exact.grad.norm()
    assert error < (1e-5 if dtype == torch.float32 else 1e-2)


class Largest(TorchFunctionMode):
    """Remember the largest tensor that was made."""

    size = 0

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        made = func(*args, **(kwargs or {}))
        if isinstance(made, torch.Tensor):
            self.size = max(self.size, made.numel())
        return made


@pytest.mark.parametrize(("q", "m"), [(4, 700), (3000, 16), (1, 3000)])
def test_memory_is_that_of_one_block_of_pairs(q: int, m: int) -> None:
    scores, labels = make_pair(9, q, m, dtype=torch.float32)
    with Largest() as seen:
        ranking_loss(scores.requires_grad_(), labels).backward()
    assert 2**14 < seen.size <= max(2**16, q * m)


def test_nothing_to_learn_from_is_an_error_but_a_sum_of_nothing_is_zero() -> None:
    scores, flat = torch.zeros(2, 3, requires_grad=True), torch.ones(2, 3)
    with pytest.raises(DataError, match=r"no query has two subsets whose labels .* differ by t_min=0\.1"):
        ranking_loss(scores, flat)
    with pytest.raises(DataError, match="no query has two subsets whose labels"):
        ranking_loss(scores, torch.full((2, 3), NAN))
    with pytest.raises(DataError, match="no query has two subsets whose labels"):
        ranking_loss(torch.zeros(0, 0), torch.zeros(0, 0))
    nothing = ranking_loss(scores, flat, reduction="sum")
    nothing.backward()
    assert nothing.item() == 0
    assert scores.grad is not None
    assert not scores.grad.any()


@pytest.mark.parametrize(
    ("labels", "options", "error", "message"),
    [
        (torch.zeros(2, 4), {}, DataError, r"scores have shape \(2, 3\) and labels \(2, 4\)"),
        (torch.full((2, 3), math.inf), {}, DataError, "a label is infinite"),
        (torch.zeros(2, 3), {"t_min": -1.0}, ConfigError, r"t_min=-1\.0 and t_max=5\.0 must satisfy 0 ≤ t_min ≤ t_max"),
        (torch.zeros(2, 3), {"t_min": 2.0, "t_max": 1.0}, ConfigError, "must satisfy 0 ≤ t_min ≤ t_max"),
        (torch.zeros(2, 3), {"t_max": NAN}, ConfigError, "must satisfy 0 ≤ t_min ≤ t_max"),
    ],
)
def test_bad_arguments_of_the_loss_are_refused(
    labels: torch.Tensor, options: dict[str, float], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message) as caught:
        ranking_loss(torch.zeros(2, 3), labels, **options)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("scale", ["std", "var"])
def test_labels_are_those_of_the_equation(scale: Scale) -> None:
    losses = np.random.default_rng(0).normal(3, 0.4, (6, 11))
    losses[2, 4] = NAN
    made = normalise_losses(losses, scale)
    expected = [oracle.labels_of_query(row.tolist(), scale) for row in losses]
    np.testing.assert_allclose(made.labels, expected, rtol=1e-6)
    assert (made.labels.dtype, made.dropped, made.kept.tolist()) == (np.float32, 0, [True] * 6)


def test_labels_have_mean_0_and_deviation_1_and_the_least_loss_the_greatest_label() -> None:
    losses = np.random.default_rng(1).normal(3, 0.4, (5, 40)).astype(np.float32)
    labels = normalise_losses(losses).labels
    np.testing.assert_allclose(labels.mean(axis=1), 0, atol=1e-6)
    np.testing.assert_allclose(labels.std(axis=1), 1, rtol=1e-5)
    assert (labels.argmax(axis=1) == losses.argmin(axis=1)).all()


@given(
    losses=hnp.arrays(np.float64, (3, 6), elements=st.integers(-100, 100), unique=True),
    shift=st.integers(-5, 5),
    factor=st.sampled_from([0.5, 2.0, 4.0]),
)
@settings(max_examples=30, deadline=None)
def test_labels_do_not_see_the_level_or_scale_of_losses(losses: np.ndarray, shift: int, factor: float) -> None:
    np.testing.assert_allclose(
        normalise_losses(losses * factor + shift).labels, normalise_losses(losses).labels, atol=1e-6
    )
    halved = normalise_losses(losses * 2, "var").labels * 2
    np.testing.assert_allclose(halved, normalise_losses(losses, "var").labels, rtol=1e-5)


def test_a_query_whose_loss_does_not_vary_is_left_out_and_counted() -> None:
    losses = np.array([[1.0, 2.0, 3.0], [2.5, 2.5, 2.5], [2.5, 2.5 * (1 + 2**-22), 2.5], [0, 0, 0], [NAN, 1, NAN]])
    made = normalise_losses(losses)
    assert (made.kept.tolist(), made.dropped) == ([True, False, False, False, False], 4)
    assert np.isnan(made.labels[1:]).all()
    assert np.isfinite(made.labels[0]).all()


def test_losses_that_differ_by_more_than_rounding_are_kept() -> None:
    losses = np.array([[2.5, 2.5 + 1e-5, 2.5 - 1e-5]], np.float32)
    assert normalise_losses(losses).dropped == 0


@pytest.mark.parametrize(
    ("losses", "message"),
    [
        (np.full((2, 3), NAN), r"losses: all are missing \(NaN\)"),
        (np.ones((2, 3)), "no query's loss varies over the subsets"),
        (np.array([[1.0], [2.0]]), "losses: fewer than two subsets have losses"),
        (np.array([[1.0, NAN], [2.0, NAN]]), "losses: fewer than two subsets have losses"),
        (np.ones((2, 0)), "losses: fewer than two subsets have losses"),
        (np.array([[1.0, math.inf]]), "losses: a loss is infinite"),
        (np.ones(3), r"losses: have shape \(3,\); must be a matrix"),
    ],
)
def test_losses_without_a_signal_are_refused(losses: np.ndarray, message: str) -> None:
    with pytest.raises(DataError, match=message) as caught:
        normalise_losses(losses)
    assert "\n" not in str(caught.value)
