"""Attention of packed documents."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch.nn import functional
from worlds.small_world import make_corpus
from worlds.tiny_lms import some_examples, tiny_lm

from airrep.encoder.load import load_encoder
from airrep.lm.model import load_lm
from airrep.lm.settings import LmSettings


def test_no_attention_asks_cudnn_which_plans_each_shape_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real, asked = functional.scaled_dot_product_attention, []

    def noted(*tensors: Any, **how: Any) -> Any:
        asked.append(torch.backends.cuda.cudnn_sdp_enabled())
        return real(*tensors, **how)

    monkeypatch.setattr(functional, "scaled_dot_product_attention", noted)
    before = torch.backends.cuda.cudnn_sdp_enabled()
    tiny_lm(tmp_path / "lm")
    lm = load_lm(LmSettings(lm=str(tmp_path / "lm"), device="cpu"))
    lm.losses(lm.tokenise(some_examples(3)))
    load_encoder("default").encode(list(make_corpus(3)))
    assert asked
    assert not any(asked)
    assert torch.backends.cuda.cudnn_sdp_enabled() == before
