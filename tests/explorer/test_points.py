"""The map as the server tells it, and as a browser shows it."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from worlds.browser import SIZES, barriers, browser_page, needs_chromium, served
from worlds.commands import Run, done
from worlds.topics import WORDS, topics

import airrep
from airrep.errors import ConfigError
from airrep.explorer import questions, requests
from airrep.explorer.explorer import Explorer
from airrep.explorer.points import MapRequest, points

QUERY = {"prompt": "Tell me of garlic.", "response": "garlic soup"}


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> airrep.Index:
    pytest.importorskip("sklearn")
    made = airrep.build_index(topics(), tmp_path_factory.mktemp("map") / "index")
    return made.delete(["stars3"])


def read(told: bytes) -> tuple[dict[str, Any], np.ndarray, np.ndarray, np.ndarray]:
    length = int.from_bytes(told[:4], "little")
    header, rest = json.loads(told[4 : 4 + length]), told[4 + length :]
    assert (4 + length) % 8 == 0
    n = header["count"]
    assert len(rest) == 16 * n
    places, rows, values = np.split(np.frombuffer(rest, "<u4"), [2 * n, 3 * n])
    return header, places.view("<f4").reshape(n, 2), rows, values.view("<f4")


def test_points_are_those_that_count_with_their_values(index: airrep.Index) -> None:
    explorer = Explorer(index)
    header, spots, rows, values = read(points(explorer, MapRequest(color="source")))
    assert sorted(rows.tolist()) == np.flatnonzero(index.live).tolist()
    sources = index.values("source")
    assert [header["names"][int(value)]["name"] for value in values] == [sources[row] for row in rows]
    assert [one["count"] for one in header["names"]] == [40, 40, 39]
    assert np.array_equal(spots, explorer.indexes[0].layout().places[rows])
    some = MapRequest(color="cluster", where="source == 'stars'", facets={"source": ["stars", "money"]})
    header, _, rows, _ = read(points(explorer, some))
    assert {sources[row] for row in rows} == {"stars"}
    assert sum(one["count"] for one in header["names"]) == len(rows) == 39
    names = explorer.facets.facet("cluster").names
    told = questions.groups(explorer, requests.GroupRequest(query=requests.QueryRef(**QUERY), by="cluster"))
    assert {one["value"] for one in told["groups"]} <= set(names)
    chosen = requests.Filters(facets={"cluster": [names[0]]})
    assert questions.count(explorer, chosen)["matching"] == max(one["size"] for one in told["groups"])
    with pytest.raises(ConfigError, match="'nothing': cannot be shown here"):
        points(explorer, MapRequest(color="nothing"))


def test_scores_are_in_deviations_the_strongest_last(index: airrep.Index) -> None:
    asked = MapRequest(color="score", query=requests.QueryRef(**QUERY))
    _, _, rows, values = read(points(Explorer(index), asked))
    scores = index.scores([airrep.Example(**QUERY)])[0][rows].astype(np.float64)
    assert values == pytest.approx((scores - scores.mean()) / scores.std(), abs=1e-3)
    assert (np.diff(np.abs(values)) >= -1e-4).all()
    with pytest.raises(ConfigError, match="color=score needs a query"):
        points(Explorer(index), MapRequest(color="score"))
    with pytest.raises(ConfigError, match="color=influence needs a file of queries"):
        points(Explorer(index), MapRequest(color="influence"))


def test_influence_is_the_mean_of_the_deviations_of_all_queries(index: airrep.Index) -> None:
    queries = [
        airrep.Example(**QUERY),
        airrep.Example("Tell me of the moon.", "moon light"),
        airrep.Example("a", "sum"),
    ]
    explorer = Explorer(index, tuple(queries))
    some = MapRequest(color="influence", facets={"source": ["stars", "money"]})
    header, _, rows, values = read(points(explorer, some))
    assert {index.values("source")[row] for row in rows} == {"stars", "money"}
    scores = index.scores(queries)[:, rows].astype(np.float64)
    deviations = (scores - scores.mean(axis=1, keepdims=True)) / scores.std(axis=1, keepdims=True)
    assert values == pytest.approx(deviations.mean(axis=0), abs=1e-3)
    assert "names" not in header


def test_groups_of_the_command_line_may_be_clusters(index: airrep.Index, run: Run) -> None:
    asked = ("--prompt", QUERY["prompt"], "--response", QUERY["response"])
    ran = done(run("group", str(index.path), *asked, "--by", "cluster", "--json"))
    told = json.loads(ran.out)
    assert sum(one["size"] for one in told["groups"]) == len(index)
    best = int(np.argmax(told["queries"][0]["scores"]))
    assert any(word in told["groups"][best]["name"] for word in WORDS["cooking"])


@pytest.fixture
def address(index: airrep.Index) -> Iterator[str]:
    with served(
        Explorer(index, (airrep.Example(**QUERY), airrep.Example("Tell me of the moon.", "moon light")))
    ) as place:
        yield place


@needs_chromium
def test_a_map_is_drawn_pointed_at_and_taken_from(address: str) -> None:
    with browser_page(viewport={"width": 1280, "height": 1200}) as page:
        page.goto(address)
        page.click("text=see all of them on a map")
        page.wait_for_selector(".map-legend li")
        assert page.locator("#status").inner_text() == "119 examples"
        page.wait_for_selector(".map-labels span")
        drawn = """() => { const c = document.querySelector("canvas.map"), gl = c.getContext("webgl");
            const px = new Uint8Array(4 * c.width * c.height); gl.readPixels(0, 0, c.width, c.height, gl.RGBA, gl.UNSIGNED_BYTE, px);
            return px.filter((value, place) => place % 4 === 3 && value > 0).length; }"""  # noqa: E501
        assert page.evaluate(drawn) > 500
        box = page.locator("canvas.map").bounding_box()
        left, top = box["x"] + 4, box["y"] + 4
        page.click("text=Lasso")
        page.mouse.move(left, top)
        page.mouse.down()
        for x, y in ((box["width"] - 8, 0), (box["width"] - 8, box["height"] - 8), (0, box["height"] - 8)):
            page.mouse.move(left + x, top + y)
        page.mouse.up()
        page.wait_for_selector("text=119 ticked examples")
        page.click("#basket button >> text=Clear")
        page.click("text=Lasso")
        page.locator(".map-legend button").first.click()
        page.wait_for_selector(".facet input:checked")
        assert "view=map" in page.url
        page.fill("#prompt", QUERY["prompt"])
        page.fill("#response", QUERY["response"])
        page.click("button.main")
        page.select_option("#map-color", "score")
        page.wait_for_selector(".map-legend p")
        assert page.locator(".map-labels span").count() == 0
        page.select_option("#map-color", "influence")
        page.wait_for_selector("text=the file's queries")


@needs_chromium
@pytest.mark.slow
@pytest.mark.parametrize("size", SIZES)
def test_a_map_has_no_barrier(size: dict[str, int], address: str) -> None:
    with browser_page(viewport=size, bypass_csp=True) as page:
        page.goto(address)
        page.click("text=see all of them on a map")
        page.wait_for_selector(".map-labels span")
        assert barriers(page) == []


@needs_chromium
def test_names_at_the_edge_move_inwards(address: str) -> None:
    with browser_page(viewport={"width": 320, "height": 900}) as page:
        page.goto(address)
        page.click("text=see all of them on a map")
        page.wait_for_selector(".map-labels span")
        largest = page.locator(".map-labels span", has_text="1. ")
        page.focus("canvas.map")
        for _ in range(20):
            if not largest.count():
                break
            stage, label = page.locator(".map-stage").bounding_box(), largest.bounding_box()
            assert label["x"] >= stage["x"] - 1
            seen = label["x"] - stage["x"]
            page.keyboard.press("ArrowRight")
            page.evaluate("() => new Promise(drawn => requestAnimationFrame(() => requestAnimationFrame(drawn)))")
        assert seen < 12  # it stayed until its middle had left, the whole name beside the edge


@needs_chromium
def test_an_index_without_vectors_says_so(tmp_path: Path) -> None:
    with served(Explorer(airrep.build_index(topics(4), tmp_path / "index", "tfidf"))) as place:
        with browser_page(1) as page:
            page.goto(place)
            page.click("text=see all of them on a map")
            page.wait_for_selector("#alert:not([hidden])")
            assert "has no embeddings" in page.locator("#alert").inner_text()
