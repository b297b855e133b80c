"""Take pictures of the page's marked words, its map, and the notebook widget: light, dark and on a phone.

Usage: python docs/pictures.py INDEX     with the index that `airrep demo` makes

For the marked words, it asks the question of README.md, opens the first example, and chooses a word of the answer. It
needs chromium and what the tests need.
"""

import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from explorer.test_notebook import jupyterlab
from worlds.browser import browser_page, served

import airrep
from airrep.explorer.explorer import Explorer

FIGURES = Path(__file__).parent / "figures"
PROMPT, RESPONSE, WORD = "Can I eat zucchini raw?", "No, zucchini should be cooked before eating.", "cooked"
LOOKS = {
    "light": {"viewport": {"width": 1100, "height": 900}},
    "dark": {"viewport": {"width": 1100, "height": 900}, "color_scheme": "dark"},
    "phone": {"viewport": {"width": 390, "height": 844}, "device_scale_factor": 2, "is_mobile": True},
}

if __name__ == "__main__":
    with served(Explorer(airrep.open(sys.argv[1]))) as place:
        for name, looks in LOOKS.items():
            with browser_page(reduced_motion="reduce", **looks) as page:
                page.goto(place)
                page.fill("#prompt", PROMPT)
                page.fill("#response", RESPONSE)
                page.click("button.main")
                page.click(".hit .open >> nth=0")
                page.click("text=Word by word")
                page.locator(".by-word button.word", has_text=WORD).first.click()
                page.locator(".by-word").scroll_into_view_if_needed()
                page.screenshot(path=FIGURES / f"words-{name}.png")
            with browser_page(reduced_motion="reduce", **looks) as page:
                page.set_default_timeout(120_000)  # the first look computes the map
                page.goto(place)
                page.click("text=see all of them on a map")
                page.wait_for_selector(".map-labels span")
                page.locator("canvas.map").scroll_into_view_if_needed()
                page.screenshot(path=FIGURES / f"map-{name}.png")
    for name in LOOKS:
        theme = "JupyterLab Dark" if name == "dark" else "JupyterLab Light"
        with tempfile.TemporaryDirectory() as folder:
            (Path(folder) / "index").symlink_to(Path(sys.argv[1]).resolve())
            with jupyterlab(Path(folder), theme) as address, browser_page(**LOOKS["light"]) as page:
                page.set_default_timeout(120_000)
                page.goto(address)
                page.locator(".jp-Cell .cm-content").first.click()
                page.keyboard.press("Control+Enter")
                page.locator(".airrep [data-field='Prompt']").fill(PROMPT)
                page.fill(".airrep [data-field='Response']", RESPONSE)
                page.click(".airrep button.main")
                page.wait_for_selector(".airrep .hit")
                if name == "phone":  # a window that narrow; JupyterLab keeps some of it for its bars
                    page.set_viewport_size({"width": 520, "height": 1100})
                page.screenshot(path=FIGURES / f"widget-{name}.png")
