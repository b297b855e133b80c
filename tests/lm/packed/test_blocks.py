"""Blocks of GGUF are brought to float32 as the package gguf does it."""

import numpy as np
import pytest
import torch

from airrep.lm.packed.networks import dequantize

gguf = pytest.importorskip("gguf")


@pytest.mark.parametrize("kind", ["Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "Q4_K", "Q5_K", "Q6_K"])
def test_any_bytes_are_the_numbers_that_the_library_reads(kind: str) -> None:
    known = gguf.GGMLQuantizationType[kind]
    numbers, size = gguf.GGML_QUANT_SIZES[known]
    data = np.random.default_rng(0).integers(0, 256, (50, 3 * size), dtype=np.uint8)
    with np.errstate(all="ignore"):  # scales that are no numbers
        wanted = gguf.dequantize(data, known)
    found = dequantize(torch.from_numpy(data), kind)
    assert found is not None
    assert found.shape == (50, 3 * numbers)
    np.testing.assert_array_equal(found.numpy(), wanted)


def test_other_types_are_left_to_the_library() -> None:
    assert dequantize(torch.zeros(1, 84, dtype=torch.uint8), "Q2_K") is None
