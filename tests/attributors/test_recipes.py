"""Recipes: the files that ship, their slots, settings for all channels, and names that are gone."""

import re
from pathlib import Path
from typing import Any

import pytest
from worlds.small_world import make_corpus

from airrep.attributors.methods import make_attributor
from airrep.attributors.recipes import (
    SHIPPED,
    ChannelsSettings,
    default_recipe,
    read_channels,
    recipe_of,
    recipe_text,
    shipped_recipes,
)
from airrep.attributors.settings import METHOD_SETTINGS, refuse_dropped
from airrep.errors import ConfigError
from airrep.index.building import build_index


@pytest.mark.parametrize("name", shipped_recipes())
def test_every_recipe_that_ships_can_be_read_once_its_slots_are_filled(name: str) -> None:
    channels = read_channels(name)
    reads = {one.warmed for one in channels if METHOD_SETTINGS[one.method].model_fields.get("lm") is not None}
    slots = {"lm": "some/model"} if reads else {}
    slots |= {"warmed": "other/model"} if True in reads else {}
    made = ChannelsSettings(channels=name, **slots).channels
    assert [one.title for one in made] == [one.title for one in channels]
    for one in made:
        assert one.settings.get("lm") in (None, slots.get("warmed" if one.warmed else "lm"))


@pytest.mark.parametrize("name", [name for name in shipped_recipes() if not name.startswith("papers/")])
def test_a_line_before_each_channel_says_why_its_weight_is_what_it_is(name: str) -> None:
    lines = (SHIPPED / f"{name}.yaml").read_text().splitlines()
    places = [place for place, line in enumerate(lines) if line.startswith("- method")]
    assert len(places) == len(read_channels(name))
    assert all(re.match(r"# \w.{20,}\.$", lines[place - 1]) for place in places)


def test_recipes_of_papers_are_of_the_methods_of_their_names() -> None:
    papers = [name for name in shipped_recipes() if name.startswith("papers/")]
    assert {"papers/tracin", "papers/logra"} <= set(papers)
    for name in papers:
        (channel,) = read_channels(name)
        assert f"papers/{channel.method}" == name


def test_a_slot_that_is_not_filled_is_asked_for() -> None:
    for name in ("lm", "lm-whole", "papers/logra"):
        with pytest.raises(ConfigError, match=r"--lm MODEL"):
            ChannelsSettings.of({"channels": name})
    for name in ("lm-warm", "lm-whole-warm"):
        with pytest.raises(ConfigError, match="--warmed FOLDER"):
            ChannelsSettings.of({"channels": name, "lm": "some/model"})
    with pytest.raises(ConfigError, match="recipe to lm-warm or lm-whole-warm"):
        ChannelsSettings.of({"channels": "lm-whole", "lm": "some/model", "warmed": "other/model"})


@pytest.mark.parametrize(
    ("given", "name"),
    [({}, "text"), ({"lm": "m"}, "lm"), ({"lm": "m", "warmed": "w"}, "lm-warm"), ({"lm": None}, "text")],
)
def test_the_models_that_are_given_choose_the_recipe(given: dict[str, Any], name: str) -> None:
    assert default_recipe(given) == name
    assert ChannelsSettings(**given) == ChannelsSettings(channels=name, **given)


def test_a_setting_goes_to_each_channel_whose_method_has_it() -> None:
    channels = ChannelsSettings.of({"channels": "text", "mix": 0.25, "view": "response"}).channels
    assert [one.settings.get("mix") for one in channels] == [0.25, 0.25, None]
    assert [one.settings["view"] for one in channels] == ["response"] * 3
    (paper,) = ChannelsSettings.of({"channels": "papers/logra", "lm": "m", "rank": 16}).channels
    assert (paper.settings["rank"], paper.settings["exponent"], paper.pool) == (16, 1.0, "sum")
    with pytest.raises(ConfigError, match="'rankk' is not a setting here"):
        ChannelsSettings.of({"channels": "text", "rankk": 16})


def test_a_method_and_a_recipe_are_one_too_many(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="^recipe .*: cannot be combined with method"):
        build_index(make_corpus(3), tmp_path / "index", "tfidf", recipe="text")
    with pytest.raises(ConfigError, match="^recipe txt: does not exist; .*'text'"):
        build_index(make_corpus(3), tmp_path / "index", recipe="txt")


def test_a_recipe_is_named_listed_or_a_file(tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text(recipe_text("papers/tfidf"))
    train, wanted = make_corpus(6), []
    for number, recipe in enumerate(("papers/tfidf", tmp_path / "mine.yaml", [{"method": "tfidf", "pool": "sum"}])):
        index = build_index(train, tmp_path / str(number), recipe=recipe)
        wanted.append(index.group_scores(train, by="label").scores.tolist())
    assert wanted[0] == wanted[1] == wanted[2]


def test_recipes_are_shown() -> None:
    lines = recipe_text().splitlines()
    assert [line.split()[0] for line in lines] == list(shipped_recipes())
    assert recipe_text("lm") == (SHIPPED / "lm.yaml").read_text()
    with pytest.raises(ConfigError, match="^recipe nothing: does not exist"):
        recipe_text("nothing")


@pytest.mark.parametrize(
    ("method", "settings", "told"),
    [
        ("readout", {"lm": "m"}, "--method rds"),
        ("stack", {}, "--recipe"),
        ("logra", {"lm": "m", "preset": "paper"}, "--recipe papers/logra"),
        ("logra", {"lm": "m", "curvature": "fisher"}, "--method trak"),
        ("tracin", {"lm": "m", "map_weights": "maps"}, "remove this setting"),
        ("tracin", {"lm": "m", "pool": "mean"}, "pool: sum"),
        ("ekfac", {"lm": "m", "rank": 3}, "--method logra"),
        ("ekfac", {"lm": "m", "reduction": "mean"}, "remove this setting"),
        ("trak", {"lm": "m", "objective": "loss"}, "--method dsdm"),
        ("channels", {"lm": "m", "gradients": "both"}, "lm-whole"),
        (
            "channels",
            {"channels": [{"method": "logra", "settings": {"lm": "m", "preset": "measured"}}]},
            "papers/logra",
        ),
    ],
)
def test_a_name_that_is_gone_says_what_to_type(method: str, settings: dict[str, Any], told: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(told)) as caught:
        make_attributor(method, settings)
    assert "\n" not in str(caught.value)


def test_a_setting_of_another_package_is_its_own() -> None:
    refuse_dropped("mine", {"projection": "random", "curvature": "fisher"})


@pytest.mark.parametrize(
    ("channel", "told"),
    [
        ("{method: ngram, wieght: 2}", r"'wieght' .* Did you mean 'weight'\?"),
        ("{methd: ngram}", r"'methd' .* Did you mean 'method'\?"),
        ("{method: ngrm}", r"method 'ngrm'.* Did you mean 'ngram'\?"),
        (
            "{method: ngram, settings: {ordres: [1]}}",
            r"ngram: 'ordres' is not a setting here.* Did you mean 'orders'\?",
        ),
        ("{method: ngram, weight: -1}", "weight=-1"),
        ("{method: ngram, pool: top-5}", "pool top-5: was removed.*attention"),
        ("{method: readout}", "--method rds"),
        ("ngram", "'ngram' is not a method"),
    ],
)
def test_an_error_in_a_recipe_names_the_file_and_the_channel(tmp_path: Path, channel: str, told: str) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(f"- method: tfidf\n- {channel}\n")
    with pytest.raises(ConfigError, match=f"^{re.escape(str(path))}: channel 2: .*{told}") as caught:
        build_index(make_corpus(6), tmp_path / "i", recipe=path)
    assert "\n" not in str(caught.value)


def test_an_error_of_several_channels_names_the_file(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text("- method: tfidf\n- method: tfidf\n")
    with pytest.raises(ConfigError, match=f"^{re.escape(str(path))}: .*two channels .*'tfidf'"):
        build_index(make_corpus(6), tmp_path / "i", recipe=path)


@pytest.mark.parametrize("recipe", ["lm", "lm-warm", "papers/logra"])
def test_a_recipe_of_an_lm_asked_of_an_index_without_one_is_one_plain_line(tmp_path: Path, recipe: str) -> None:
    index = build_index(make_corpus(6), tmp_path / "i")
    with pytest.raises(ConfigError, match="^recipe .*'(gradients|logra)' reads .*--lm MODEL") as caught:
        index.made_with({"channels": recipe})
    assert "\n" not in str(caught.value)
    assert "{" not in str(caught.value)
    with pytest.raises(ConfigError, match="--lm MODEL") as caught:
        build_index(make_corpus(6), tmp_path / "j", recipe=recipe)
    assert "Channel(" not in str(caught.value)


@pytest.mark.parametrize("name", shipped_recipes())
def test_channels_tell_their_recipe(name: str) -> None:
    channels = read_channels(name)
    assert recipe_of(channels) == name
    assert recipe_of([one.with_settings({"lm": "m", "tokenizer": "m"}) for one in channels]) == name
    heavier = [one.model_copy(update={"weight": one.weight + 1}) for one in channels]
    assert recipe_of(heavier).startswith("of its own (")
