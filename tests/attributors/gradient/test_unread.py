"""Matrices of an LM that gradient methods cannot read are said, with their share."""

from pathlib import Path

import pytest
import torch
from transformers import MixtralConfig, MixtralForCausalLM
from worlds.small_world import make_corpus
from worlds.tiny_lms import TYPES, VOCABULARY, tiny_network, tiny_tokenizer

import airrep
from airrep.attributors.gradient.reading import find_sites, unread
from airrep.attributors.methods import make_attributor

EXPERTS = 4


@pytest.fixture(scope="module")
def mixtral(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("mixtral")
    shape = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    with torch.random.fork_rng():
        torch.manual_seed(0)
        config = MixtralConfig(
            vocab_size=VOCABULARY, num_key_value_heads=2, num_local_experts=EXPERTS, num_experts_per_tok=2, **shape
        )
        MixtralForCausalLM(config).save_pretrained(folder)
    tiny_tokenizer().save_pretrained(folder)
    return str(folder)


@pytest.mark.parametrize("kind", TYPES)
def test_lms_of_linear_maps_have_no_caution(kind: str) -> None:
    assert unread(tiny_network(kind), "logra") == ""


def test_fused_experts_are_said_with_their_share(mixtral: str) -> None:
    model = airrep.load_lm(mixtral).model
    read = sum(site.width_in * site.width_out for site in find_sites(model, ("all-linear",), "lm"))
    apart = ("embed", "lm_head")
    whole = sum(p.numel() for name, p in model.named_parameters() if p.dim() > 1 and not any(w in name for w in apart))
    told = unread(model, "logra")
    assert f"{1 - read / whole:.0%} of the weights" in told
    assert "experts" in told.rpartition(":")[2]


def test_an_index_says_what_its_gradients_leave_out(mixtral: str, tmp_path: Path) -> None:
    own = {"lm": mixtral, "modules": ["all-linear"], "rank": 2, "store": "none"}
    index = airrep.build_index(make_corpus(6), tmp_path / "index", "tracin", settings=own)
    assert "linear maps alone" in index.manifest["caution"]
    assert index.top(make_corpus(2, "q"), 1).provenance.caution == index.manifest["caution"]
    channels = make_attributor("channels", {"lm": mixtral})
    assert "linear maps alone" in channels.caution
    whole = make_attributor("ekfac", {"lm": mixtral})
    assert whole.caution.startswith("ekfac reads linear maps alone")
