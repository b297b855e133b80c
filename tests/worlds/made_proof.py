"""A proof without a fine-tune."""

from collections.abc import Sequence

import airrep
from airrep.answers.proof.result import Effect, Effects, NamedRow, ProofResult, Proved
from airrep.corpus.corpus import Example


def made_proof(index: airrep.Index, queries: Sequence[Example]) -> ProofResult:
    """Effects of one row on some answers."""
    effect = Effect(0.4, 0.3, 0.5)
    effects = Effects(effect, effect, effect)
    answers = tuple(Proved(query, query, 2.0, 1.0, effects, effects) for query in queries)
    rows = (NamedRow(0, index.example(0)),)
    numbers = {"before": 2.0, "after": 1.0, "repeats": 6, "context": 500, "examples": 60}
    told = {"lm": "LM", "fine_tune": {}, "cautions": (), "provenance": index.provenance()}
    return ProofResult("These rows taught it.", "taught", rows, answers, effects, effects, **numbers, **told)
