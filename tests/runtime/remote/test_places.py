"""Names that no path can be."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import airrep
from airrep.errors import ConfigError

LONG = "x" * 5000
RECORDS = [{"prompt": f"p{number}", "response": f"r{number}"} for number in range(4)]


@pytest.mark.parametrize(
    "asked", [airrep.Index, airrep.open, airrep.read_corpus, lambda path: airrep.build_index(RECORDS, path, "ngram")]
)
def test_a_name_that_is_longer_than_a_path_is_refused_in_one_short_line(asked: Callable[[str], Any]) -> None:
    with pytest.raises(airrep.AirRepError, match="too long for a path") as caught:
        asked(LONG)
    assert len(str(caught.value)) < 300
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("method", "setting"),
    [("airrep", "encoder"), ("ngram", "tokenizer"), ("logra", "lm"), ("channels", "lm"), ("datamodels", "weights")],
)
def test_a_setting_that_is_longer_than_a_path_is_refused(tmp_path: Path, method: str, setting: str) -> None:
    with pytest.raises(ConfigError, match="too long for a path") as caught:
        airrep.build_index(RECORDS, tmp_path / "index", method, settings={setting: LONG})
    assert len(str(caught.value)) < 400
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "index").exists()
