"""Every state of the page, on a screen and on a phone, light and dark: no barrier that axe-core knows."""

from pathlib import Path

import pytest
from worlds.browser import SIZES, barriers, browser_page, needs_chromium, served
from worlds.small_world import make_corpus

import airrep
from airrep.explorer.explorer import Explorer

pytestmark = [needs_chromium, pytest.mark.slow]


@pytest.mark.parametrize("size", SIZES)
def test_no_state_of_the_page_has_a_barrier(size: dict[str, int], tmp_path: Path) -> None:
    corpus = make_corpus(60)
    index = airrep.build_index(corpus, tmp_path / "index", "ngram")
    explorer = Explorer(index, make_corpus(5, "q"), airrep.build_index(corpus, tmp_path / "beside", "tfidf"))
    found: dict[str, list[str]] = {}
    with served(explorer) as address, browser_page(1, viewport=size, bypass_csp=True) as page:

        def look(state: str, ready: str) -> None:
            page.wait_for_selector(ready)
            page.wait_for_selector('[aria-busy="true"]', state="detached")
            found[state] = barriers(page)

        page.goto(address)
        look("start", ".welcome")
        page.goto(page.url.split("#")[0] + "#q=3")
        look("hits", ".hit")
        page.keyboard.press("j")
        page.keyboard.press("x")
        page.wait_for_selector("#basket .change")
        page.keyboard.press("y")
        page.keyboard.press("Enter")
        look("example", "#example[open] .queries")
        page.click("text=Word by word")
        look("word by word", ".by-word button.word")
        page.click(".by-word .response button.word >> nth=0")
        look("one word", '.by-word button[aria-pressed="true"]')
        page.keyboard.press("Escape")
        look("basket", "#basket .change")
        page.click("text=Side by side")
        look("side by side", "text=in both lists")
        page.locator("#results").focus()
        page.keyboard.press("g")
        look("groups", "table.groups tbody tr")
        page.keyboard.press("c")
        look("query chooser", "dialog[open]")
        page.keyboard.press("Escape")
        page.keyboard.press("?")
        look("keys", "dialog[open]")
        page.keyboard.press("Escape")
        page.locator("#filters").evaluate("filters => filters.open = true")
        page.fill("#where", "nothing == 1")
        page.keyboard.press("Enter")
        look("an error", "#where-error:not([hidden])")
        page.goto(f"{address.partition('?')[0]}api/v1/")
        look("the API", "section table")
    assert found == {state: [] for state in found}
    assert len(found) == 12
