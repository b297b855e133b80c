"""Proofs as artifacts, pages and JSON."""

from dataclasses import replace
from pathlib import Path

import airrep
from airrep.answers.proof import Effect, Effects, NamedRow, ProofResult, Proved
from airrep.answers.reading import read_result
from airrep.corpus.corpus import Example
from airrep.index.results.result import Provenance

EFFECTS = Effects(Effect(0.41, 0.3, 0.52), Effect(0.02, -0.05, 0.09), Effect(0.39, 0.2, 0.6))


def _made() -> ProofResult:
    row = NamedRow(3, Example("p", "<b>evil</b>", "e3", source="web", metadata={"n": 1}))
    asked = Proved(Example("p", "bad", "q"), Example("p", "good", "g"), 3.0, 2.0, EFFECTS, EFFECTS)
    return ProofResult(
        sentence="Without this row <i>it</i> rises.",
        verdict="taught",
        rows=(row,),
        queries=(asked, replace(asked, contrast=None)),
        loss=EFFECTS,
        contrast=None,
        before=3.0,
        after=2.0,
        repeats=6,
        context=500,
        examples=1000,
        lm="tiny",
        fine_tune={"epochs": 2},
        cautions=("one <u>caution</u>",),
        provenance=Provenance("tfidf", "f" * 64),
    )


def test_a_proof_is_read_back_and_shown(tmp_path: Path) -> None:
    made = _made()
    assert read_result(made.save(tmp_path / "proof")) == made
    assert made.to_dict()["loss"]["difference"] == {"value": 0.39, "low": 0.2, "high": 0.6}
    page = airrep.write_report([made], tmp_path / "page.html").read_text()
    assert "What these rows taught, by fine-tunes" in page
    assert "+0.390 (+0.200 to +0.600)" in page
    assert "not proof of it" not in page
    assert "losses after fine-tunes, not scores" in page
    for bad in ("<b>evil", "<i>it", "<u>caution"):
        assert bad not in page
    assert "&lt;i&gt;it" in made._repr_html_()
    assert [row["number"] for row in made.to_dicts()] == ["loss", "contrast", "loss"]
    assert made.to_dicts()[0]["difference"] == 0.39
