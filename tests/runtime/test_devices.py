"""Device and precision are chosen from the machine alone."""

from pathlib import Path

import pytest
import torch

from airrep.errors import ConfigError
from airrep.runtime.devices import resolve_device, resolve_precision, team_of


def test_every_processor_has_the_same_precision(monkeypatch: pytest.MonkeyPatch) -> None:
    for flags in ("fpu avx2", "fpu avx512_bf16 amx_bf16"):  # whatever it is fast at
        monkeypatch.setattr(
            Path, "read_text", lambda self, flags=flags: f"vendor_id\t: AuthenticAMD\nflags\t: {flags}\n"
        )
        assert resolve_precision("auto", "cpu") == "float32"
    assert resolve_precision("float32", "cpu") == "float32"
    assert resolve_precision("bfloat16", "cpu") == "bfloat16"


def test_unknown_settings_are_refused() -> None:
    with pytest.raises(ConfigError, match="^precision half: is not known"):
        resolve_precision("half", "cpu")
    with pytest.raises(ConfigError, match="^device gpu: is not known"):
        resolve_device("gpu")


@pytest.mark.parametrize("device", ["mps", "xpu", "hpu", "meta", "meta:0"])
def test_devices_on_which_nothing_was_tried_are_refused(device: str) -> None:
    with pytest.raises(ConfigError, match=rf"^device {device}: is not supported; expected auto, cpu, cuda or cuda:0\."):
        resolve_device(device)


def test_a_cpu_has_no_number() -> None:
    assert resolve_device("cpu:0") == resolve_device("cpu") == "cpu"


def test_a_missing_device_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert resolve_device("auto") == "cpu"
    with pytest.raises(ConfigError, match="^device cuda: there is no CUDA device here"):
        resolve_device("cuda")


def test_a_device_of_a_number_that_is_not_there_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    assert resolve_device("cuda:1") == "cuda:1"
    with pytest.raises(ConfigError, match=r"^device cuda:2: this process sees 2 CUDA devices, numbered from 0"):
        resolve_device("cuda:2")


def test_processes_of_torchrun_do_not_share_a_named_device(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("RANK", "0")
    with pytest.raises(ConfigError, match=r"^torchrun: all 2 processes would share cuda:1\."), team_of("cuda:1"):
        pass


def test_cuda_is_taken_where_there_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert resolve_device("auto") == "cuda"
    for supported, precision in ((True, "bfloat16"), (False, "float32")):
        monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda including_emulation, s=supported: s)
        assert resolve_precision("auto", "cuda") == precision
