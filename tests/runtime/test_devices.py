"""Device and precision are chosen from the machine alone."""

from pathlib import Path

import pytest
import torch

from airrep.errors import ConfigError
from airrep.runtime import devices
from airrep.runtime.devices import (
    LEAST_COLUMNS,
    ROW_STEP,
    linear,
    multiply,
    resolve_device,
    resolve_precision,
    takes_onednn,
    team_of,
)


def give_cards(patch: pytest.MonkeyPatch, count: int) -> None:
    """Let torch say that there are so many CUDA devices."""
    patch.setattr(torch.cuda, "is_available", lambda: count > 0)
    patch.setattr(torch.cuda, "device_count", lambda: count)


def test_every_processor_has_the_same_precision(monkeypatch: pytest.MonkeyPatch) -> None:
    for flags in ("fpu avx2", "fpu avx512_bf16 amx_bf16"):  # whatever it is fast at
        told = f"vendor_id\t: AuthenticAMD\nflags\t: {flags}\n"
        monkeypatch.setattr(Path, "read_text", lambda self, told=told: told)
        assert resolve_precision("auto", "cpu") == "float32"
    assert [resolve_precision(one, "cpu") for one in ("float32", "bfloat16")] == ["float32", "bfloat16"]
    with pytest.raises(ConfigError, match="^precision half: is not known"):
        resolve_precision("half", "cpu")


@pytest.mark.parametrize(
    ("device", "cards", "message"),
    [
        ("gpu", 0, "is not known"),
        *((one, 0, "is not supported; expected auto, cpu, cuda") for one in ("mps", "xpu", "hpu", "meta", "meta:0")),
        ("cuda", 0, "there is no CUDA device here"),
        ("cuda:2", 2, "does not exist. This process sees 2 CUDA devices"),
    ],
)
def test_impossible_devices_are_refused(device: str, cards: int, message: str, monkeypatch: pytest.MonkeyPatch) -> None:
    give_cards(monkeypatch, cards)
    with pytest.raises(ConfigError, match=rf"^device {device}: {message}"):
        resolve_device(device)


@pytest.mark.parametrize(
    ("device", "cards", "found"),
    [("auto", 0, "cpu"), ("auto", 2, "cuda"), ("cpu:0", 0, "cpu"), ("cpu", 2, "cpu"), ("cuda:1", 2, "cuda:1")],
)
def test_a_device_is_the_asked_or_best(device: str, cards: int, found: str, monkeypatch: pytest.MonkeyPatch) -> None:
    give_cards(monkeypatch, cards)
    assert resolve_device(device) == found


def test_processes_of_torchrun_do_not_share_a_named_device(monkeypatch: pytest.MonkeyPatch) -> None:
    give_cards(monkeypatch, 2)
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("RANK", "0")
    with pytest.raises(ConfigError, match=r"^torchrun: all 2 processes would share cuda:1\."), team_of("cuda:1"):
        pass


@pytest.mark.parametrize(("supported", "precision"), [(True, "bfloat16"), (False, "float32")])
def test_a_card_has_bfloat16_where_it_is_fast(supported: bool, precision: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda including_emulation: supported)
    assert resolve_precision("auto", "cuda") == precision


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
