"""Matrices of an LM that gradient methods cannot read are named, with the share that is read."""

import re
from pathlib import Path

import pytest
from worlds.architectures import written
from worlds.small_world import make_corpus
from worlds.tiny_lms import TYPES, tiny_network

import airrep
from airrep.attributors.gradient.reading import find_sites, unread
from airrep.attributors.methods import make_attributor


@pytest.fixture(scope="module")
def jetmoe(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A mixture whose experts transformers keeps in a form of their own."""
    folder = tmp_path_factory.mktemp("jetmoe")
    written(folder, "jetmoe")
    return str(folder)


@pytest.mark.parametrize("kind", TYPES)
def test_lms_of_linear_maps_have_no_caution(kind: str) -> None:
    assert unread(tiny_network(kind), "logra") == ""


def test_matrices_that_are_not_read_are_named_with_the_share_of_the_others(jetmoe: str) -> None:
    model = airrep.load_lm(jetmoe).model
    read = {site.name: site.width_in * site.width_out for site in find_sites(model, ("all-linear",), "lm")}
    apart = ("embed", "lm_head")
    inner = {n: p for n, p in model.named_parameters() if p.dim() > 1 and not any(word in n for word in apart)}
    told, _, named = unread(model, "logra").partition("scores: ")
    assert f"{sum(read.values()) / sum(p.numel() for p in inner.values()):.0%} of the weights" in told
    left = {re.sub(r"\.\d+\.", ".*.", name) for name in inner if name.removesuffix(".weight") not in read}
    assert set(named.removesuffix(".").split(", ")) == left
    assert any("experts" in name for name in left)


def test_an_index_says_what_its_gradients_leave_out(jetmoe: str, tmp_path: Path) -> None:
    own = {"lm": jetmoe, "modules": ["all-linear"], "rank": 2, "store": "none"}
    index = airrep.build_index(make_corpus(6), tmp_path / "index", "tracin", settings=own)
    assert "linear maps alone" in index.manifest["caution"]
    assert index.top(make_corpus(2, "q"), 1).provenance.caution == index.manifest["caution"]
    channels = make_attributor("channels", {"lm": jetmoe})
    assert "linear maps alone" in channels.caution
    whole = make_attributor("ekfac", {"lm": jetmoe})
    assert whole.caution.startswith("ekfac reads linear maps alone")
