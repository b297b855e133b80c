"""`make plain` runs without the processor's newer instruction sets: they are really held back."""

import os
import re
import subprocess
import sys
from pathlib import Path

from worlds.plain_processor import held_back

PROGRAM = """
import numpy as np
import torch
from numpy._core._multiarray_umath import __cpu_dispatch__, __cpu_features__
from threadpoolctl import threadpool_info

np.ones((4, 4)) @ np.ones((4, 4))
print(torch.backends.cpu.get_cpu_capability())
print(*[name for name in __cpu_dispatch__ if name.startswith(("AVX512", "X86_V4")) and __cpu_features__[name]])
print(*{one["architecture"] for one in threadpool_info() if one["internal_api"] == "openblas"})
"""


def test_newer_instruction_sets_are_held_back() -> None:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", PROGRAM], env=os.environ | held_back(), capture_output=True, text=True
    )
    assert done.stderr == ""
    torch_has, numpy_has, openblas_has = done.stdout.split("\n")[:3]
    assert (torch_has, numpy_has) == ("AVX2", "")
    assert openblas_has in ("Haswell", "")


def test_what_is_left_out_of_plain_is_there() -> None:
    """A renamed file would be run again, and nobody would see it."""
    tests = Path(__file__).parents[1]
    told = (tests.parent / "Makefile").read_text("utf-8").split("NOT_COMPUTING :=")[1].split("plain:")[0]
    named = re.findall(r"[\w/]+/[\w.]+", told.split("--ignore=tests/,")[1])
    assert len(named) > 10
    assert not [name for name in named if not (tests / name).exists()]
