"""Methods that read gradients find planted facts; methods that read words cannot."""

from dataclasses import replace
from pathlib import Path

import pytest
from worlds.planted_world import BLIND, CHANCE_BY_ANSWER, METHODS, find, plant

SOUGHT = 0.9
BY_CHANCE = 1.5 * CHANCE_BY_ANSWER
"""Words are blind, but may be lucky."""


def test_tracin_and_logra_find_the_facts_where_tfidf_and_dsir_are_at_chance(tmp_path: Path) -> None:
    world = plant(tmp_path, seed=0)
    found = {name: find(world, name, tmp_path / "runs") for name in ("tracin", "logra", *BLIND)}
    assert min(found["tracin"], found["logra"]) >= SOUGHT, found
    assert max(found[name] for name in BLIND) <= BY_CHANCE, found


@pytest.mark.slow
def test_every_gradient_method_finds_the_facts(tmp_path: Path) -> None:
    pytest.importorskip("peft")
    world = plant(tmp_path, seed=1, adapters=True)
    few = replace(world, queries=world.queries.take(range(20)))  # a query takes a third of a second of solving
    found = {name: find(few if name == "influence" else world, name, tmp_path / "runs") for name in (*METHODS, *BLIND)}
    assert min(found[name] for name in METHODS) >= SOUGHT, found
    assert max(found[name] for name in BLIND) <= BY_CHANCE, found
