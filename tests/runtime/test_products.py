"""Products by oneDNN are torch's own to rounding, and are left to torch where oneDNN cannot make them."""

import pytest
import torch

from airrep.runtime import devices
from airrep.runtime.devices import LEAST_COLUMNS, ROW_STEP, linear, multiply, takes_onednn

ROWS = [0, 1, ROW_STEP - 1, ROW_STEP, ROW_STEP + 1, 3 * ROW_STEP]
WIDTHS = [(1, 1), (384, 1), (384, LEAST_COLUMNS), (17, LEAST_COLUMNS + 1), (384, 104), (0, LEAST_COLUMNS)]


@pytest.fixture(params=["oneDNN", "torch"])
def library(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """The library that multiplies."""
    if request.param == "torch":
        monkeypatch.setattr(devices, "has_onednn", lambda: False)
    elif not devices.has_onednn():
        pytest.skip("torch has no oneDNN here")
    return str(request.param)


def numbers(*shape: int) -> torch.Tensor:
    """Random numbers, the same each time."""
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape)))


@pytest.mark.parametrize("rows", ROWS)
@pytest.mark.parametrize(("inner", "outer"), WIDTHS)
def test_products_are_those_in_float64_to_rounding(library: str, rows: int, inner: int, outer: int) -> None:
    x, weight, bias = numbers(rows, inner), numbers(outer, inner), numbers(outer)
    out = torch.full((rows, outer), torch.nan)
    exact = x.double() @ weight.double().T
    assert multiply(x, weight, out) is out
    torch.testing.assert_close(out.double(), exact, rtol=0, atol=1e-4)
    torch.testing.assert_close(linear(x, weight, bias).double(), exact + bias, rtol=0, atol=1e-4)


def test_views_are_multiplied_as_they_lie(library: str) -> None:
    x, weight = numbers(100, 4 * ROW_STEP).T[: 2 * ROW_STEP], numbers(20, 200)[:, ::2]
    room = torch.zeros(2 * ROW_STEP, 50)
    multiply(x, weight, room[:, 10:30])
    torch.testing.assert_close(room[:, 10:30], x @ weight.T, rtol=0, atol=1e-4)
    assert not room[:, :10].any()
    assert not room[:, 30:].any()


@pytest.mark.parametrize("value", [torch.inf, torch.nan, 1e38])
def test_numbers_that_are_not_finite_stay_in_their_row(library: str, value: float) -> None:
    x, weight = numbers(ROW_STEP, 40), numbers(LEAST_COLUMNS, 40)
    plain = multiply(x, weight, torch.empty(ROW_STEP, LEAST_COLUMNS)).clone()
    x[3, 5], x[3, 6] = value, value
    found = multiply(x, weight * 10, torch.empty(ROW_STEP, LEAST_COLUMNS))
    assert not found[3].isfinite().all()
    others = torch.arange(ROW_STEP) != 3
    torch.testing.assert_close(found[others], plain[others] * 10, rtol=0, atol=1e-3)


def test_gradients_and_other_types_are_left_to_torch(library: str) -> None:
    x, weight, bias = numbers(ROW_STEP, 40), numbers(LEAST_COLUMNS, 40).requires_grad_(), numbers(LEAST_COLUMNS)
    linear(x, weight, bias).sum().backward()
    assert weight.grad is not None
    torch.testing.assert_close(weight.grad, x.sum(0).expand(LEAST_COLUMNS, -1))
    assert not takes_onednn(x, weight)
    assert not takes_onednn(x.double(), weight.detach().double())
    with torch.autocast("cpu", torch.bfloat16):
        assert not takes_onednn(x, weight.detach())
    with torch.inference_mode():
        assert takes_onednn(x, weight) == (library == "oneDNN")
