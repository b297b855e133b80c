"""Plans as tables."""

from worlds.made_evaluations import PLAN

from airrep.planning.plan import Plan
from airrep.reports.other_tables import plan_tables


def test_a_plan_gives_costs_crossovers_and_what_real_runs_took() -> None:
    costs, crossovers, real = plan_tables(Plan.model_validate(PLAN))
    assert costs.columns[3] == "100,000 examples"
    airrep = costs.lines[0]
    assert [cell.text for cell in airrep.cells] == ["25 h", "9.6 ms", "25.3 h", "1.14 KiB", "1.12 GiB"]
    assert airrep.cells[1].under == "[8.64 ms, 11 ms]"
    assert [(line.head.text, line.cells[0].text) for line in crossovers.lines] == [
        ("logra", "261,750"),
        ("less", "175,744"),
        ("gte", "never"),
    ]
    assert [cell.text for cell in real.lines[0].cells] == ["17.5 min", "18.3 min", "× 0.95"]
    assert "2 cores, 8 GB. Language model: models/small (135 million parameters)." in costs.caption
    assert costs.commands == (PLAN["command"],)


def test_a_bare_plan_has_its_costs_alone() -> None:
    bare = {
        "measure": "plan",
        "methods": [{"name": "a", "fixed_seconds": 0, "seconds_per_example": 1, "interval": [1, 1]}],
    }
    (costs,) = plan_tables(Plan.model_validate(bare))
    assert [cell.text for cell in costs.lines[0].cells] == ["0 s", "1 s", "–", "–"]


def test_what_stands_against_a_crossover_is_said() -> None:
    why = {"method": "logra", "examples": None, "interval": None, "why": "the encoder is not cheaper"}
    _, crossovers = plan_tables(Plan.model_validate({**PLAN, "crossovers": [why], "last_real": []}))
    assert (crossovers.lines[0].cells[0].text, crossovers.lines[0].cells[0].under) == ("never", why["why"])
