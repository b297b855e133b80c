"""LMs are packed only where that changes no token's loss; others are read one document at a time."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn import functional
from transformers import AutoConfig, AutoModelForCausalLM
from transformers.utils import logging
from worlds.small_world import make_corpus
from worlds.tiny_lms import some_examples, tiny_lm, tiny_tokenizer

from airrep.encoder.load import load_encoder
from airrep.errors import ConfigError
from airrep.lm.attention import PackedDocuments, spans_of
from airrep.lm.documents import Documents
from airrep.lm.model import TargetLM, load_lm
from airrep.lm.settings import LmSettings
from airrep.runtime.packing import pack

COMMON = {"vocab_size": 280, "hidden_size": 16, "num_hidden_layers": 2, "pad_token_id": 0}
COMMON |= {"bos_token_id": 1, "eos_token_id": 2, "tie_word_embeddings": False}
HEADS = {"num_attention_heads": 2, "num_key_value_heads": 1, "intermediate_size": 24, "max_position_embeddings": 128}
DELTA = {"linear_num_value_heads": 2, "linear_num_key_heads": 1, "linear_key_head_dim": 8, "linear_value_head_dim": 8}
APART: dict[str, dict[str, Any]] = {
    "qwen3_5_text": {**HEADS, **DELTA, "head_dim": 8, "layer_types": ["linear_attention", "full_attention"]},
    "lfm2": {**HEADS, "layer_types": ["conv", "full_attention"]},
    "mamba": {"state_size": 4, "time_step_rank": 2},
    "phimoe": {**HEADS, "num_local_experts": 2, "num_experts_per_tok": 2, "sliding_window": 16},
    "doge": {**HEADS, "sliding_window": 16},
    "bloom": {"n_head": 2},
    "mpt": {"d_model": 16, "n_heads": 2, "n_layers": 2, "max_seq_len": 128},
    "gpt_neo": {"num_heads": 2, "num_layers": 2, "attention_types": [[["global", "local"], 1]], "window_size": 16},
    "falcon": {"num_attention_heads": 2, "alibi": True},
}
"""Some keep a state over tokens, others have a window that attention is not told of, or no attention but their own."""
TOGETHER: dict[str, dict[str, Any]] = {
    "llama": HEADS,
    "gemma2": {**HEADS, "head_dim": 8, "sliding_window": 16, "attn_logit_softcapping": None},
    "cohere": {**HEADS, "logit_scale": 0.25},
    "granite": {**HEADS, "logits_scaling": 4.0},
}


def load(folder: Path, kind: str, seed: int = 0) -> tuple[TargetLM, Any]:
    """An LM of weights large enough that each token tells, and that of transformers."""
    logging.disable_progress_bar()
    settings = {**COMMON, **(APART | TOGETHER)[kind]}
    with torch.random.fork_rng(), torch.no_grad():
        torch.manual_seed(seed)
        plain = AutoModelForCausalLM.from_config(AutoConfig.for_model(kind, **settings)).eval()
        for weight in plain.parameters():
            if weight.dim() > 1:
                weight.copy_(torch.randn_like(weight) * 0.2)
    plain.save_pretrained(folder)
    tiny_tokenizer().save_pretrained(folder)
    return load_lm(LmSettings(lm=str(folder), device="cpu", precision="float32")), plain


def some_documents() -> Documents:
    """Documents shorter and longer than a window."""
    rng = np.random.default_rng(1)
    return Documents.of((rng.integers(8, 250, length), start) for length, start in ((70, 20), (45, 1), (12, 4), (5, 1)))


def plain_losses(plain: Any, documents: Documents, row: int) -> torch.Tensor:
    """What transformers gives each response token of one document alone."""
    ids, start = torch.from_numpy(documents.sequence(row)), int(documents.starts[row])
    logits = plain(input_ids=ids[None], use_cache=False).logits[0, start - 1 : -1]
    return functional.cross_entropy(logits, ids[start:], reduction="none")


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize("kind", [*APART, *TOGETHER])
def test_each_token_has_the_loss_that_its_document_has_alone(kind: str, seed: int, tmp_path: Path) -> None:
    lm, plain = load(tmp_path, kind, seed)
    documents = some_documents()
    with torch.no_grad():
        for row, found in enumerate(lm.token_losses(documents)):
            np.testing.assert_allclose(found, plain_losses(plain, documents, row), atol=1e-3)
    assert (lm.execution.batch_tokens > 1) == (kind in TOGETHER)


def test_what_the_code_of_an_lm_raises_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from transformers.models.llama.modeling_llama import LlamaMLP

    def fails(*_: Any) -> None:
        raise RuntimeError("shapes do not fit.\nMore.")

    monkeypatch.setattr(LlamaMLP, "forward", fails)
    with pytest.raises(
        ConfigError, match=r"^lm .*: a LlamaForCausalLM cannot be run: RuntimeError: shapes do not fit\. "
    ):
        load(tmp_path, "llama")


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


lists = st.lists(st.lists(st.integers(0, 99), min_size=2, max_size=9), min_size=1, max_size=12)


def make(sequences: list[list[int]]) -> Documents:
    """Documents whose responses start in the middle."""
    return Documents.of((ids, len(ids) // 2) for ids in sequences)


@given(lists)
def test_documents_give_back_what_they_were_made_of(sequences: list[list[int]]) -> None:
    documents = make(sequences)
    assert [documents.sequence(row).tolist() for row in range(len(documents))] == sequences
    assert (documents.lengths - documents.response_lengths).tolist() == [len(ids) // 2 for ids in sequences]
    order = list(range(len(sequences)))[::-1]
    taken = documents.take([*order, 0])
    assert [taken.sequence(row).tolist() for row in range(len(taken))] == [*sequences[::-1], sequences[0]]


@given(lists, st.integers(1, 40), st.sampled_from([0, 5, 100]))
def test_each_response_token_is_predicted_once_from_the_token_before_it(
    sequences: list[list[int]], batch_tokens: int, padding: int
) -> None:
    documents = make(sequences)
    found: dict[int, list[int]] = {}
    for batch in pack(documents.lengths, batch_tokens):
        packed = PackedDocuments.from_batch(documents, batch, padding=padding)
        for place, target, owner in zip(packed.predictors, packed.targets, packed.owners, strict=True):
            assert int(packed.ids[0, place + 1]) == target
            assert int(packed.positions[0, place]) + 1 == int(packed.positions[0, place + 1])
            found.setdefault(int(batch.rows[owner]), []).append(int(target))
    assert found == {row: ids[len(ids) // 2 :] for row, ids in enumerate(sequences)}


@given(st.lists(st.integers(1, 30), min_size=1, max_size=20), st.integers(0, 400))
def test_spans_cover_every_token_once_and_padding_lies_behind_documents(lengths: list[int], padding: int) -> None:
    ordered = np.array(sorted(lengths, reverse=True), np.int64)
    spans = spans_of(ordered, padding=padding)
    assert sum(span.tokens for span in spans) == sum(lengths)
    assert sum(span.sequences for span in spans) == len(lengths)
    first = 0
    for span in spans:
        own = ordered[first : first + span.sequences]
        assert span.longest == own[0]
        assert span.sequences * span.longest - span.tokens <= padding
        if span.pad is None or span.keep is None:
            assert set(own) == {span.longest}
        else:
            assert torch.equal(span.pad[span.keep], torch.arange(span.tokens))
            table = np.zeros(span.sequences * span.longest, bool)
            table[span.keep.numpy()] = True
            assert (table.reshape(span.sequences, -1).sum(1) == own).all()
            assert (np.diff(table.reshape(span.sequences, -1).astype(int), axis=1) <= 0).all()
        first += span.sequences


def test_no_documents_are_documents() -> None:
    assert len(Documents.of([])) == 0
    assert Documents.of([]).lengths.shape == (0,)
