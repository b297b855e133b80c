"""The machine in neutral words."""

import socket

import numpy as np

from airrep.runtime.metering import describe_machine, memory_bytes, peak_memory


def test_a_machine_is_cores_processor_and_memory_without_its_name() -> None:
    text = describe_machine()
    assert "cores of" in text
    assert "GiB memory" in text
    assert socket.gethostname() not in text
    assert "(R)" not in text


def test_peak_memory_covers_what_is_held_and_is_less_than_there_is() -> None:
    held = np.ones(2**22, np.float64)
    peak, total = peak_memory(), memory_bytes()
    assert peak is not None
    assert total is not None
    assert held.nbytes < peak < total
