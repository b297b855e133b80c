"""Influence of removing groups, against models fitted again without them."""

from typing import NamedTuple

import numpy as np
import pytest
from reference.group_influence import effect_of_removal, fit_logistic, fit_ridge

from airrep.errors import DataError
from airrep.scoring.groups import Groups
from airrep.scoring.orders import newton_step, removal_effect
from airrep.scoring.pooling import Pooling

N, D, PENALTY = 120, 5, 3.0
GROUPS = [list(range(1)), list(range(10, 22)), list(range(30, 66))]
NAMED = Groups.from_lists({f"g{j}": members for j, members in enumerate(GROUPS)})
SIZES = NAMED.sizes
ORDERS = tuple(Pooling("order", k) for k in range(1, 9))
LIMIT = Pooling("order")
PAPER = Pooling("order", 2, constants="paper")


class Fitted(NamedTuple):
    """A model at its minimum, seen in coordinates where the mean Hessian is the identity."""

    half: np.ndarray
    """H^(-1/2)."""
    gradients: np.ndarray
    """``(n, d)`` φ of each example."""
    curvatures: list[np.ndarray]
    """A of each group."""
    changes: np.ndarray
    """``(g, d)`` what fitting again without each group does to θ."""

    def product(self, vectors: np.ndarray) -> np.ndarray:
        return np.array([a @ v for a, v in zip(self.curvatures, vectors, strict=True)])

    def told(self, pooling: Pooling) -> np.ndarray:
        """What influence says of the changes."""
        total = np.array([self.gradients[members].sum(axis=0) for members in GROUPS])
        return removal_effect(total, self.product, NAMED, N, pooling) @ self.half

    def error(self, pooling: Pooling) -> np.ndarray:
        """Of each group's change, as a part of its length, both in the metric H."""
        metric = np.linalg.inv(self.half)
        wrong = np.linalg.norm((self.told(pooling) - self.changes) @ metric, axis=1)
        return wrong / np.linalg.norm(self.changes @ metric, axis=1)

    def factors(self) -> np.ndarray:
        """The greatest |eigenvalue| of (A − mI) / (n−m) of each group."""
        pairs = zip(self.curvatures, SIZES, strict=True)
        return np.array([np.abs((np.linalg.eigvalsh(a) - m) / (N - m)).max() for a, m in pairs])


def inverse_root(hessian: np.ndarray) -> np.ndarray:
    values, vectors = np.linalg.eigh(hessian)
    return vectors / np.sqrt(values) @ vectors.T


def inputs_and_noise(seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    generator = np.random.default_rng(seed)
    inputs = generator.normal(size=(N, D)) * np.linspace(0.4, 2, D)
    return inputs, inputs @ generator.normal(size=D), generator.normal(size=N)


def rest_of(members: list[int]) -> np.ndarray:
    return np.setdiff1d(np.arange(N), members)


def ridge(shared: bool = False) -> Fitted:
    """Ridge regression; with *shared*, each example brings its part of the penalty and takes it along."""
    inputs, signal, noise = inputs_and_noise(1)
    targets = signal + noise
    theta = fit_ridge(inputs, targets, PENALTY)
    half = inverse_root((inputs.T @ inputs + PENALTY * np.eye(D)) / N)
    gradients = (inputs @ theta - targets)[:, None] * inputs + (PENALTY / N * theta if shared else 0)
    own = PENALTY / N * np.eye(D) if shared else np.zeros((D, D))
    return Fitted(
        half,
        gradients @ half,
        [half @ (inputs[members].T @ inputs[members] + len(members) * own) @ half for members in GROUPS],
        np.array(
            [
                fit_ridge(inputs[rest], targets[rest], PENALTY * len(rest) / N if shared else PENALTY) - theta
                for rest in map(rest_of, GROUPS)
            ]
        ),
    )


def logistic() -> Fitted:
    inputs, signal, noise = inputs_and_noise(2)
    labels = np.where(signal + 3 * noise > 0, 1.0, -1.0)
    theta = fit_logistic(inputs, labels, PENALTY)
    p = 1 / (1 + np.exp(labels * (inputs @ theta)))
    weights = p * (1 - p)
    half = inverse_root(((inputs.T * weights) @ inputs + PENALTY * np.eye(D)) / N)
    return Fitted(
        half,
        -(labels * p)[:, None] * inputs @ half,
        [half @ (inputs[members].T * weights[members]) @ inputs[members] @ half for members in GROUPS],
        np.array([fit_logistic(inputs[rest], labels[rest], PENALTY) - theta for rest in map(rest_of, GROUPS)]),
    )


@pytest.mark.parametrize("shared", [False, True])
def test_for_ridge_regression_the_limit_is_fitting_again(shared: bool) -> None:
    model = ridge(shared)
    np.testing.assert_allclose(model.told(LIMIT), model.changes, rtol=0, atol=1e-10 * np.abs(model.changes).max())


def test_for_ridge_regression_the_error_shrinks_by_the_spectral_factor_with_each_order() -> None:
    model = ridge()
    errors, factors = np.array([model.error(pooling) for pooling in ORDERS]), model.factors()
    assert (factors < 1).all()
    assert (errors[0] <= factors + 1e-12).all()
    assert (errors[1:] <= errors[:-1] * factors + 1e-12).all()


def test_the_error_of_order_k_is_the_k_th_power_of_its_operator() -> None:
    model = ridge()
    metric = np.linalg.inv(model.half)
    for pooling in ORDERS[:3]:
        left = (model.changes - model.told(pooling)) @ metric
        for a, m, change, wrong in zip(model.curvatures, SIZES, model.changes @ metric, left, strict=True):
            power = np.linalg.matrix_power((a - m * np.eye(D)) / (N - m), pooling.k or 0)
            np.testing.assert_allclose(wrong, power @ change, atol=1e-12)


def test_order_2_has_the_exact_coefficients() -> None:
    """(n−2m)/(n−m)² of Σφ, and 1/(n−m)² of A Σφ."""
    model = ridge()
    told = model.told(Pooling("order", 2)) @ np.linalg.inv(model.half)
    for a, m, members, found in zip(model.curvatures, SIZES, GROUPS, told, strict=True):
        b = model.gradients[members].sum(axis=0)
        np.testing.assert_allclose(found, (N - 2 * m) / (N - m) ** 2 * b + a @ b / (N - m) ** 2, rtol=1e-10)


def test_the_printed_constants_are_far_from_fitting_again() -> None:
    """n/(n−m) of Σφ, and m/(n−m)² of A Σφ: about n times too much, and another direction."""
    model = ridge()
    told = model.told(PAPER) @ np.linalg.inv(model.half)
    for a, m, members, found in zip(model.curvatures, SIZES, GROUPS, told, strict=True):
        b = model.gradients[members].sum(axis=0)
        np.testing.assert_allclose(found, N / (N - m) * b + m / (N - m) ** 2 * (a @ b), rtol=1e-10)
    assert (model.error(Pooling("order", 2)) < 0.1).all()
    assert (model.error(PAPER) > 50).all()
    np.testing.assert_array_equal(model.told(Pooling("order", 1, constants="paper")), model.told(ORDERS[0]))


def test_even_rescaled_the_printed_order_2_is_no_better_than_order_1() -> None:
    """Scaled to the best length, order 2 nears the change's direction; as printed, it stays with order 1's."""
    model = ridge()
    metric = np.linalg.inv(model.half)

    def angles(pooling: Pooling) -> np.ndarray:
        told, change = model.told(pooling) @ metric, model.changes @ metric
        cosine = (told * change).sum(axis=1) / np.linalg.norm(told, axis=1) / np.linalg.norm(change, axis=1)
        return np.asarray(np.arccos(np.clip(cosine, -1, 1)))[1:]

    exact, printed, first = (angles(pooling) for pooling in (ORDERS[1], PAPER, ORDERS[0]))
    assert (exact < 0.5 * printed).all()
    assert (printed > 0.5 * first).all()


def test_for_logistic_regression_the_limit_is_close_and_better_than_order_1() -> None:
    model = logistic()
    limit, first = model.error(LIMIT), model.error(ORDERS[0])
    assert (limit < 0.12).all()
    assert (limit < 0.75 * first).all()


def test_scores_are_what_the_loss_of_queries_rises_by() -> None:
    """Other queries, not linearised: their real losses, of a model fitted again without the group."""
    model, queries = logistic(), np.random.default_rng(4).normal(size=(50, D))
    inputs, signal, noise = inputs_and_noise(2)
    theta = fit_logistic(inputs, np.where(signal + 3 * noise > 0, 1.0, -1.0), PENALTY)
    margins = queries @ theta
    scores = (-1 / (1 + np.exp(margins)))[:, None] * (queries @ model.told(LIMIT).T)
    after = np.log1p(np.exp(-queries @ (theta + model.changes).T))
    rises = after - np.log1p(np.exp(-margins))[:, None]
    for score, rise in zip(scores.T, rises.T, strict=True):
        assert np.corrcoef(score, rise)[0, 1] > 0.98
        assert np.abs(score - rise).max() < 0.25 * np.abs(rise).max()


def test_an_example_helps_itself() -> None:
    """Fitted again without it, its loss is higher: the score is above 0."""
    model = ridge()
    told = model.told(LIMIT) @ np.linalg.inv(model.half)
    assert told[0] @ model.gradients[0] > 0


def test_outer_products_of_gradients_stand_for_hessians() -> None:
    features = 0.3 * np.random.default_rng(3).normal(size=(N, D))
    total = np.array([features[members].sum(axis=0) for members in GROUPS])

    def product(vectors: np.ndarray) -> np.ndarray:
        return np.array([features[s].T @ (features[s] @ v) for s, v in zip(GROUPS, vectors, strict=True)])

    for pooling in (*ORDERS, LIMIT):
        expected = [effect_of_removal(features, members, N, pooling.k) for members in GROUPS]
        np.testing.assert_allclose(removal_effect(total, product, NAMED, N, pooling), expected, rtol=1e-9)


def test_the_limit_needs_few_products() -> None:
    """Conjugate gradients end after as many products as A has different eigenvalues and one."""
    model, calls = ridge(), []

    def product(vectors: np.ndarray) -> np.ndarray:
        calls.append(len(vectors))
        return model.product(vectors)

    newton_step(np.array([model.gradients[members].sum(axis=0) for members in GROUPS]), product, N, NAMED.names)
    assert len(calls) <= D + 2


def test_a_limit_that_is_no_minimum_is_refused() -> None:
    total = np.ones((2, 2))
    with pytest.raises(DataError, match="order-inf .*'bad' .* no minimum"):
        newton_step(total, lambda vectors: vectors * np.array([[1.0, 2.0], [1.0, 11.0]]), 10, ("good", "bad"))
    with pytest.raises(DataError, match="order-inf .*'bad' .* no minimum"):
        newton_step(total, lambda vectors: vectors * np.array([[1.0], [10.0]]), 10, ("good", "bad"))


def test_too_many_steps_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("airrep.scoring.orders.STEPS", 1)
    with pytest.raises(DataError, match="order-inf .* did not converge .*'bad'"):
        newton_step(np.ones((2, 2)), lambda vectors: vectors * np.array([[1.0, 1.0], [1.0, 5.0]]), 10, ("good", "bad"))
