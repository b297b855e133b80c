"""The widget: its answers in the kernel, and a user's flow in JupyterLab, in a real browser."""

import json
import os
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from worlds.browser import CHROMIUM, needs_chromium, playwright

import airrep
from airrep.corpus.corpus import Corpus, Example
from airrep.errors import DataError

notebook = pytest.importorskip("airrep.explorer.notebook", reason="anywidget is missing", exc_type=ImportError)
HOSTILE = "<img src=x onerror=\"document.title='broken'\"> red zebra"
TOKEN = "a-token-of-the-tests"


@pytest.fixture
def index(tmp_path: Path) -> airrep.Index:
    """Of sixty examples, one of them hostile, in the folder of the notebook."""
    examples = [Example(HOSTILE if n == 7 else f"question {n}", f"the {n} cats run", id=f"e{n}") for n in range(60)]
    return airrep.build_index(Corpus.from_examples(examples), tmp_path / "index", "bm25")


def test_answers_are_those_of_the_index(index: airrep.Index) -> None:
    query = {"prompt": "question 3", "response": "the 3 cats run"}
    widget = notebook.IndexWidget(index, [query], better=["the 4 cats run"])
    told = notebook.answer(widget._explorer, "top", {"query": {"number": 0}, "count": 5})["answer"]
    (expected,) = index.top([query], 5, better=["the 4 cats run"])
    assert [hit["id"] for hit in told["hits"]] == [hit.example.id for hit in expected]
    assert [hit["score"] for hit in told["hits"]] == pytest.approx([hit.score for hit in expected])
    json.dumps(told, allow_nan=False)
    widget.rows = [3, 5]
    assert widget.basket == ["e3", "e5"]
    change = notebook.answer(widget._explorer, "what-if", {"query": query, "rows": [3, 5]})["answer"]["change"]
    assert change == pytest.approx(float(index.what_if([query], remove=[3, 5]).change[0]))
    assert "e3" in widget._repr_mimebundle_()[0]["text/html"]
    assert "run this notebook" in notebook.IndexWidget(index)._repr_html_()


@pytest.mark.parametrize(
    ("name", "asked", "told"),
    [
        ("about", {}, "about: the notebook widget"),
        ("top", {"query": {"number": 0}}, "query number 0: is not in the file"),
        ("top", {"query": {"number": 0, "prompt": "a", "response": "b"}}, "query: is given twice"),
        ("top", {"query": {"key": "k", "response": "b"}}, "query: is given twice"),
        ("top", {"query": {"prompt": "a", "response": "b"}, "folder": "elsewhere"}, "folder: Extra inputs"),
        ("top", {"query": {"prompt": "a" * 100_001, "response": "b"}}, "query.prompt: String should have at most"),
        ("rows", {"rows": [60]}, "60"),
    ],
)
def test_a_wrong_question_is_one_line(index: airrep.Index, name: str, asked: dict[str, Any], told: str) -> None:
    found = notebook.answer(notebook.IndexWidget(index)._explorer, name, asked)
    assert list(found) == ["error"]
    assert told in found["error"]
    assert "\n" not in found["error"]


def test_queries_that_are_none_are_refused(index: airrep.Index) -> None:
    with pytest.raises(DataError, match="record 1: no prompt and response"):
        notebook.IndexWidget(index, [{"prompt": "no response"}])


CELLS = [
    "from airrep.explorer.notebook import IndexWidget\nwidget = IndexWidget('index')\nwidget",
    "print('in the basket:', widget.basket)",
]


@contextmanager
def jupyterlab(folder: Path, theme: str = "JupyterLab Light") -> Iterator[str]:
    """The address of a notebook in JupyterLab, which asks nothing of its own."""
    for name, setting in (("notification", {"fetchNews": "false"}), ("themes", {"theme": theme})):
        place = folder / "settings" / "@jupyterlab" / "apputils-extension" / f"{name}.jupyterlab-settings"
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(json.dumps(setting))
    cells = [
        {"cell_type": "code", "id": f"cell-{n}", "metadata": {}, "outputs": [], "execution_count": None, "source": text}
        for n, text in enumerate(CELLS)
    ]
    kernel = {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}}
    written = {"cells": cells, "metadata": kernel, "nbformat": 4, "nbformat_minor": 5}
    (folder / "ask.ipynb").write_text(json.dumps(written))
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port = found.getsockname()[1]
    places = {name: str(folder / name) for name in ("JUPYTER_CONFIG_DIR", "JUPYTER_RUNTIME_DIR", "IPYTHONDIR")}
    places["JUPYTERLAB_SETTINGS_DIR"] = str(folder / "settings")
    flags = ("--allow-root", "--no-browser", f"--port={port}", "--ServerApp.port_retries=0", "--ServerApp.ip=127.0.0.1")
    more = (
        f"--ServerApp.root_dir={folder}",
        f"--IdentityProvider.token={TOKEN}",
        "--LabApp.extension_manager=readonly",
    )
    command = [sys.executable, "-m", "jupyterlab", *flags, *more]
    with (folder / "lab.log").open("w") as log:
        child = subprocess.Popen(command, cwd=folder, env={**os.environ, **places}, stdout=log, stderr=log)
        try:
            wait_for(f"http://127.0.0.1:{port}/api", child, folder / "lab.log")
            yield f"http://127.0.0.1:{port}/lab/tree/ask.ipynb?token={TOKEN}"
        finally:
            child.terminate()
            child.wait(30)


def wait_for(address: str, child: subprocess.Popen[bytes], log: Path) -> None:
    """Until a server answers; its log where it ends before that."""
    for _ in range(600):
        assert child.poll() is None, log.read_text()
        try:
            urllib.request.urlopen(address, timeout=5).close()
        except OSError:
            time.sleep(0.1)
        else:
            return
    raise AssertionError(log.read_text())


@pytest.mark.slow
@needs_chromium
def test_a_question_in_jupyterlab(index: airrep.Index, tmp_path: Path) -> None:
    pytest.importorskip("jupyterlab", reason="jupyterlab is missing")
    with jupyterlab(tmp_path) as address, playwright.sync_playwright() as started:
        browser = started.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 1280, "height": 1000})
        page.set_default_timeout(180_000)  # a kernel starts first
        page.goto(address)
        page.locator(".jp-Cell .cm-content").first.click()
        page.keyboard.press("Control+Enter")
        prompt = page.locator(".airrep [data-field='Prompt']")
        prompt.wait_for()
        prompt.fill("red zebra")
        page.fill(".airrep [data-field='Response']", "the 9 cats run")
        page.click(".airrep button.main")
        page.wait_for_selector(".airrep .hit")
        assert page.locator(".airrep .hit").count() == 10
        hostile = page.locator(".airrep .hit", has_text="onerror").first
        assert page.locator(".airrep .hit img").count() == 0
        assert hostile.locator("mark").count() > 0
        hostile.locator("[data-toggle]").click()
        page.wait_for_selector(".airrep .basket .change")
        assert "e7" in page.locator(".airrep .basket").inner_text()
        assert "broken" not in page.title()
        page.locator(".jp-Cell .cm-content").nth(1).click()
        page.keyboard.press("Control+Enter")
        page.wait_for_selector("text=in the basket: ['e7']")
        browser.close()
