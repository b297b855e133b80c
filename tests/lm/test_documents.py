"""Documents and packed batches hold every token once."""

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st

from airrep.lm.attention import PackedDocuments, spans_of
from airrep.lm.documents import Documents
from airrep.runtime.packing import pack

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
