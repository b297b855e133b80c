"""Documents of a pack cover every token once; what the code of an LM raises is one line."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn import functional
from worlds.small_world import make_corpus
from worlds.tiny_lms import some_examples, tiny_lm

from airrep.encoder.load import load_encoder
from airrep.errors import ConfigError
from airrep.lm.attention import PackedDocuments, spans_of
from airrep.lm.documents import Documents
from airrep.lm.model import load_lm
from airrep.lm.settings import LmSettings
from airrep.runtime.packing import pack


def test_what_the_code_of_an_lm_raises_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from transformers.models.llama.modeling_llama import LlamaMLP

    def fails(*_: Any) -> None:
        raise RuntimeError("shapes do not fit.\nMore.")

    monkeypatch.setattr(LlamaMLP, "forward", fails)
    told = r"^lm .*: a LlamaForCausalLM cannot be run: RuntimeError: shapes do not fit\. "
    with pytest.raises(ConfigError, match=told):
        load_lm(LmSettings(lm=tiny_lm(tmp_path), device="cpu", precision="float32"))


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
