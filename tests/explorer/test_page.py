"""The page in a browser: the flows of a user, at desktop and phone width."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from worlds.browser import CHROMIUM, browser_page, needs_chromium, playwright, served

import airrep
from airrep.corpus.corpus import Corpus, Example
from airrep.explorer.explorer import Explorer

pytestmark = needs_chromium
HOSTILE = "<img src=x onerror=\"document.title='broken'\"> 😀 \x1b[31m red zebra"


@pytest.fixture
def address(tmp_path: Path) -> Iterator[str]:
    """The address, with its token, of a page about two indexes of hostile texts."""
    examples = [
        Example(HOSTILE if n == 7 else f"question {n}", f"the {n} cats run", id=f"e{n}", source=f"<b>{n % 2}</b>")
        for n in range(60)
    ]
    corpus = Corpus.from_examples(examples)
    index = airrep.build_index(corpus, tmp_path / "index", "bm25")
    explorer = Explorer(index, corpus[:5], airrep.build_index(corpus, tmp_path / "beside", "tfidf"))
    with served(explorer) as place:
        yield place


def test_a_question_from_the_first_word_to_the_list(address: str, tmp_path: Path) -> None:
    with browser_page(viewport={"width": 1300, "height": 900}) as page:
        page.goto(address)
        page.wait_for_selector(".welcome")
        assert "token" not in page.url
        page.keyboard.press("/")
        page.keyboard.type("red zebra")
        page.fill("#response", "the 9 cats run")
        page.keyboard.press("Control+Enter")
        page.wait_for_selector(".hit.active")
        assert page.locator(".column").count() == 2
        hostile = page.locator(".hit", has_text="onerror").first
        assert "␛[31m" in hostile.locator(".prompt .text").inner_text()
        assert page.locator(".hit img").count() == 0
        assert "broken" not in page.title()
        assert page.locator("#asked mark").count() > 0

        first = int(page.locator(".hit.active").get_attribute("data-row"))
        page.keyboard.press("x")
        page.wait_for_selector("#basket .change")
        page.keyboard.press("y")
        page.keyboard.press("j")
        page.keyboard.press("n")
        second = int(page.locator(".hit.active").get_attribute("data-row"))
        with page.expect_download() as download:
            page.click("text=Download the list")
        download.value.save_as(tmp_path / "list.jsonl")
        lines = map(json.loads, (tmp_path / "list.jsonl").read_text().splitlines())
        assert {line["id"]: line["decision"] for line in lines} == {f"e{first}": "keep", f"e{second}": "drop"}

        for key in ("k", "j", "Enter"):  # Enter alone would press the button that has the focus
            page.keyboard.press(key)
        page.wait_for_selector("#example[open] .queries")
        assert page.locator("#example-title").inner_text() == f"e{second}"
        shown = page.url
        page.keyboard.press("Escape")
        page.goto("about:blank")
        page.goto(shown)
        page.wait_for_selector("#example[open] .queries")
        page.wait_for_selector("#basket .change")
        assert page.locator("#basket .decisions").inner_text().startswith("1 to keep, 1 to drop")


def test_a_word_of_the_answer_lights_up_the_words_that_it_comes_from(address: str) -> None:
    with browser_page() as page:
        page.goto(address)
        page.fill("#prompt", "zebra 😀")
        page.fill("#response", "red cats run red")
        page.click("text=Ask")
        page.click(".hit .open >> nth=0")
        page.click("text=Word by word")
        words = page.locator(".by-word .asked-words .response button.word")
        words.first.wait_for()
        assert words.all_text_contents() == ["red", "cats", "run", "red"]
        assert (
            page.locator(".by-word .prompt").nth(1).inner_text()
            == page.locator("#example .text.whole").first.inner_text()
        )
        had = page.locator(".by-word .response span.word:not(.w0)")
        assert set(had.all_text_contents()) >= {"cats", "run"}
        words.nth(1).click()
        assert had.all_text_contents() == ["cats"]
        assert words.nth(1).get_attribute("aria-pressed") == "true"
        assert float(had.first.get_attribute("title").replace("+", "")) > 0
        words.nth(1).click()
        assert set(had.all_text_contents()) >= {"cats", "run"}


def test_what_is_asked_before_the_page_is_ready_is_shown_when_it_is(address: str) -> None:
    with browser_page() as page:
        held: list[Any] = []
        page.route("**/about", lambda route: held.append(route))
        page.goto(address)
        page.fill("#prompt", "question 9")
        page.fill("#response", "the 9 cats run")
        page.click("text=Ask")
        page.click("#help")  # the page answers meanwhile
        page.keyboard.press("Escape")
        assert page.locator(".hit").count() == 0
        held.pop().continue_()
        page.wait_for_selector(".hit")
        assert page.locator("#asked .response .text").inner_text() == "the 9 cats run"


def test_a_better_answer_a_proof_and_the_sum(address: str) -> None:
    with browser_page(viewport={"width": 1300, "height": 900}) as page:
        page.goto(address)
        page.wait_for_selector(".summary ol li")
        page.fill("#prompt", "question 9")
        page.fill("#response", "the 9 cats run")
        page.fill("#better", "the 8 dogs sleep")
        page.keyboard.press("Control+Enter")
        page.wait_for_selector(".hit.active")
        assert page.locator(".column h2").all_inner_texts() == ["Teaches the answer", "Teaches the better answer"]
        assert "the 8 dogs sleep" in page.locator("#asked").inner_text()
        assert page.locator(".verdict").count() == 1
        assert not page.locator(".hit .raw").first.is_visible()
        page.check("#raw")
        assert "better" in page.locator(".hit .raw").first.inner_text()
        page.keyboard.press("Escape")
        page.locator(".hit .tick input").first.check()
        page.wait_for_selector("#basket .change:has-text('better')")
        page.click("text=Prove it")
        page.wait_for_selector(".proof pre")
        assert "--better 'the 8 dogs sleep'" in page.locator(".proof pre").inner_text()
        shown = page.url
        page.goto("about:blank")
        page.goto(shown)
        page.wait_for_selector(".hit .raw >> visible=true")


def test_filters_groups_and_two_methods(address: str) -> None:
    with browser_page(1, viewport={"width": 1300, "height": 900}, color_scheme="dark") as page:
        page.goto(f"{address}#q=3")
        page.wait_for_selector(".hit")
        page.locator(".facet .value input").first.check()
        page.wait_for_selector("#status:has-text('30 examples')")
        page.fill("#where", "nothing == 1")
        page.keyboard.press("Enter")
        page.wait_for_selector("#where-error:not([hidden])")
        assert "no field" in page.locator("#where-error").inner_text()
        page.fill("#where", "")
        page.keyboard.press("Enter")
        page.wait_for_selector("#where-error", state="hidden")
        page.click("text=Side by side")
        page.wait_for_selector("text=in both lists")
        page.locator("#results").focus()
        page.keyboard.press("g")
        page.wait_for_selector("table.groups tbody tr")
        page.locator("table.groups input").first.check()
        page.wait_for_selector("#basket .change:nth-child(2)")
        page.go_back()
        page.wait_for_selector(".hit")


def test_a_phone_shows_no_wider_page(address: str) -> None:
    with browser_page(viewport={"width": 390, "height": 844}, has_touch=True) as page:
        page.goto(f"{address}#q=3")
        page.wait_for_selector(".hit")
        assert page.evaluate("document.documentElement.scrollWidth") <= 390
        page.locator(".hit .open").first.tap()
        page.wait_for_selector("#example[open] .queries")
        assert page.evaluate("document.querySelector('#example').scrollWidth") <= 390


def test_without_the_token_the_page_says_so(address: str) -> None:
    with playwright.sync_playwright() as started:
        browser = started.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        page = browser.new_page()
        page.goto(address.split("?")[0])
        page.wait_for_selector("#alert:not([hidden])")
        assert "token: is missing or wrong" in page.locator("#alert").inner_text()
        browser.close()


def hold(page: Any, question: str) -> Callable[[], None]:
    """Holds the next such question to the server; what is returned lets it go, and waits for what would be drawn."""
    held: list[Any] = []

    def meet(route: Any) -> None:
        if held:
            route.continue_()
        else:
            held.append(route)

    def release() -> None:
        held[0].continue_()
        page.wait_for_timeout(300)

    page.route(f"**/api/v1/{question}", meet)
    return release


def test_late_groups_do_not_take_the_place_of_examples(address: str) -> None:
    with browser_page(viewport={"width": 1300, "height": 900}) as page:
        page.goto(f"{address}#q=3")
        page.wait_for_selector(".hit")
        release = hold(page, "groups")
        with page.expect_request("**/api/v1/groups"):
            page.keyboard.press("g")
        page.keyboard.press("g")
        page.wait_for_selector("#status:has-text('60 examples')")
        release()
        assert page.locator("table.groups").count() == 0
        assert page.locator(".hit").count() == 40


def test_a_late_ranking_changes_neither_groups_nor_the_query(address: str) -> None:
    with browser_page(viewport={"width": 1300, "height": 900}) as page:
        page.goto(f"{address}#p=question+3&r=cats")
        page.wait_for_selector(".hit")
        release = hold(page, "top")
        with page.expect_request("**/api/v1/top"):
            page.evaluate("location.hash = 'p=question+4&r=cats'")
        page.evaluate("location.hash = 'p=question+5&r=cats&view=groups'")
        page.wait_for_selector("table.groups")
        release()
        assert page.locator("table.groups").count() == 1
        assert "question 5" in page.locator("#asked").inner_text()
        assert "p=question+5" in page.url


def test_a_late_ranking_does_not_bring_its_query_back_while_a_filter_is_read(address: str) -> None:
    with browser_page(viewport={"width": 1300, "height": 900}) as page:
        page.goto(f"{address}#p=question+3&r=cats")
        page.wait_for_selector(".hit")
        release_ranking = hold(page, "top")
        with page.expect_request("**/api/v1/top"):
            page.evaluate("location.hash = 'p=question+4&r=cats'")
        release_counts = hold(page, "count")
        with page.expect_request("**/api/v1/count"):
            page.evaluate("location.hash = 'p=question+5&r=cats&where=%22question%22+in+prompt'")
        release_ranking()
        release_counts()
        page.wait_for_selector("#status:has-text('59 examples')")
        assert "question 5" in page.locator("#asked").inner_text()


def test_more_of_a_list_is_asked_as_the_list_was(address: str) -> None:
    with browser_page(1, viewport={"width": 1300, "height": 900}) as page:
        page.goto(f"{address}#q=3")
        page.wait_for_selector(".hit")
        first = page.locator(".column").first
        release = hold(page, "top")
        with page.expect_request("**/api/v1/top"):
            page.locator(".facet .value input").first.check()
        first.get_by_text("Show 20 more").click()  # of a list that is about to go
        release()
        page.wait_for_selector("#status:has-text('30 examples')")
        assert page.locator("#content[aria-busy]").count() == 0
        assert first.locator(".hit").count() == 20

        page.fill("#where", "nothing == 1")
        page.keyboard.press("Enter")
        page.wait_for_selector("#where-error:not([hidden])")
        first.get_by_text("Show 20 more").click()
        page.wait_for_selector(".hit:nth-child(30)")


def test_marked_words_are_asked_about_alone_and_copies_are_told(address: str) -> None:
    with browser_page(viewport={"width": 1300, "height": 900}) as page:
        page.goto(address)
        page.fill("#prompt", "zebra 😀")
        page.fill("#response", "😀 I say: the 9 cats run")
        page.keyboard.press("Control+Enter")
        page.wait_for_selector(".copied q")
        assert page.locator(".copied q").all_inner_texts() == ["the 9 cats run"]
        assert page.locator("#ask-span").is_hidden()
        page.evaluate(
            """() => {
              const said = document.querySelector("#asked .response .text");
              const walker = document.createTreeWalker(said, NodeFilter.SHOW_TEXT);
              let node = walker.nextNode();
              while (!node.data.includes("cats")) node = walker.nextNode();
              const place = node.data.indexOf("cats");
              getSelection().setBaseAndExtent(node, place, node, place + 4);
            }"""
        )
        page.click("#ask-span")
        page.wait_for_selector("text=Ask about the whole response")
        page.wait_for_selector(".copied q")
        assert "s=15-19" in page.url
        assert page.evaluate("[...CSS.highlights.get('asked')].map(String)") == ["cats"]
        assert all("cats" in word for word in page.locator(".hit.active .words").all_inner_texts())
        page.reload()
        page.wait_for_selector("text=Ask about the whole response")
        page.click("text=Ask about the whole response")
        page.wait_for_selector("#span-hint")
        assert "s=" not in page.url
