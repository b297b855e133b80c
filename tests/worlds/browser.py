"""Pages in a real browser, and what is wrong with them for those who see or type differently."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from worlds.browser_server import served

playwright = pytest.importorskip("playwright.sync_api", reason="the browser is driven by playwright, which is missing")
CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
needs_chromium = pytest.mark.skipif(CHROMIUM is None, reason="no chromium is installed (apt-get install chromium)")

SIZES = [pytest.param({"width": width, "height": 900}, id=str(width)) for width in (1280, 390)]
"""Of a screen and of a phone."""
SCHEMES = {"light": {}, "dark": {"runOnly": ["color-contrast", "link-in-text-block"]}}
"""By day, and by night, when colours alone are others: what axe-core looks at."""
REFUSED = "status of 400"
__all__ = ["CHROMIUM", "SIZES", "barriers", "browser_page", "needs_chromium", "playwright", "served"]


@contextmanager
def browser_page(refused: int = 0, **looks: Any) -> Iterator[Any]:
    """A page whose every error fails the test, but for so many questions that the server shall refuse."""
    problems: list[str] = []
    with playwright.sync_playwright() as started:
        browser = started.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        page = browser.new_page(**looks)
        page.set_default_timeout(60_000)  # a busy machine draws slowly
        page.on("pageerror", lambda error: problems.append(str(error)))
        page.on("console", lambda said: problems.append(said.text) if said.type == "error" else None)
        yield page
        browser.close()
    assert [problem for problem in problems if REFUSED not in problem] == []
    assert len(problems) == refused


def barriers(page: Any) -> list[str]:
    """What axe-core finds wrong, by day and by night: a line for each rule, with the first place."""
    axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="axe is missing")
    if not page.evaluate("'axe' in window"):
        page.evaluate(axe.Axe().axe_script)
    found: list[str] = []
    for scheme, options in SCHEMES.items():
        page.emulate_media(color_scheme=scheme, reduced_motion="reduce")  # colours are there at once
        told = page.evaluate("options => axe.run({resultTypes: ['violations'], ...options})", options)
        found += [f"{scheme} {one['impact']} {one['id']}: {one['nodes'][0]['target']}" for one in told["violations"]]
    wide = page.evaluate("document.documentElement.scrollWidth - window.innerWidth")
    return found + ["too wide"] * (wide > 0)
