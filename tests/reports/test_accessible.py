"""Report pages in a browser: no barrier that axe-core knows, no scrolling sideways."""

from pathlib import Path

import pytest
from worlds.browser import SIZES, barriers, browser_page, needs_chromium
from worlds.made_evaluations import made_evaluation
from worlds.small_world import make_corpus

import airrep
from airrep.answers.together import top_of_set
from airrep.reports.evaluations import write_evaluation_report

pytestmark = [needs_chromium, pytest.mark.slow]


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """One page of each kind."""
    folder = tmp_path_factory.mktemp("pages")
    queries = make_corpus(4, "q")
    index = airrep.build_index(make_corpus(60), folder / "index", "ngram")
    asked = [index.top(queries, k=3, why=True), index.group_scores(queries, by="source")]
    asked.append(index.what_if(queries, remove=[0, 1]))
    better = [airrep.Example(query.prompt, "rather this") for query in queries]
    answers = [top_of_set(index, queries, better=better), airrep.clean(index, queries)]
    answers += [airrep.audit(index, queries), airrep.mix(index, queries)]
    runs = [made_evaluation(names=("airrep", "logra"), tags={"role": role, "size": "10"}) for role in ("one", "two")]
    runs.append(made_evaluation("classify", names=("airrep", "logra")))
    return [
        airrep.write_report(asked, folder / "results.html"),
        airrep.write_report(answers, folder / "answers.html"),
        write_evaluation_report(runs, folder / "evaluations.html", curves=["size"]),
    ]


@pytest.mark.parametrize("size", SIZES)
def test_no_report_has_a_barrier(size: dict[str, int], pages: list[Path]) -> None:
    with browser_page(viewport=size, bypass_csp=True) as page:
        for path in pages:
            page.goto(path.as_uri())
            for folded in page.locator("details").all():
                folded.evaluate("part => part.open = true")
            assert barriers(page) == [], path.name
