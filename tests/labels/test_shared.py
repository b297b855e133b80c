"""Labels that several machines make together at a URL."""

from pathlib import Path
from typing import Any

import fsspec
import pytest
from worlds.toy_farm import ToyWorld, begun, farm, make_plan, visible

from airrep.errors import ArtifactError
from airrep.labels.labels import Labels
from airrep.labels.plan import open_plan
from airrep.runtime.artifacts.manifests import MANIFEST
from airrep.runtime.remote.outputs import Mirror
from airrep.runtime.remote.storage import Storage

URL = "memory://corp/labels"


class Machines:
    """Machines with a cache each, and one storage."""

    def __init__(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self._tmp_path, self._monkeypatch = tmp_path, monkeypatch

    def on(self, name: str) -> None:
        """Go on at another machine."""
        self._monkeypatch.setenv("AIRREP_CACHE", str(self._tmp_path / name))

    def label(self, name: str, **options: Any) -> Labels:
        """Run the farm on a machine."""
        self.on(name)
        world = ToyWorld(log=str(self._tmp_path / f"log-{name}"))
        return farm(open_plan("memory://corp/plan"), URL, world, **options)

    def begun(self, name: str) -> int:
        """Fine-tunes that a machine began."""
        path = self._tmp_path / f"log-{name}"
        return len(begun(path)) if path.exists() else 0


@pytest.fixture
def machines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    found = Machines(tmp_path, monkeypatch)
    found.on("first")
    make_plan("memory://corp/plan")  # type: ignore[arg-type]
    yield found
    fsspec.filesystem("memory").rm("/corp", recursive=True)


def names() -> set[str]:
    return set(Storage(URL).below())


def test_labels_at_a_url_have_the_bytes_of_those_in_a_folder(machines: Machines, tmp_path: Path) -> None:
    made = machines.label("first", seeds=2)
    here = farm(open_plan("memory://corp/plan"), tmp_path / "here", seeds=2)
    assert made.complete
    machines.on("reader")
    opened = Labels(URL)
    opened.verify()
    assert opened.fingerprint == here.fingerprint
    there = {name for name in names() if not name.startswith("times")}
    assert there == {name for name in visible(here.path) if not name.startswith("times")}


def test_parts_on_several_machines_meet_at_the_url(machines: Machines, tmp_path: Path) -> None:
    for number in (1, 2):
        made = machines.label(f"machine {number}", part=f"{number}/3")
        assert not made.complete
        assert MANIFEST not in names()
    machines.on("reader")
    assert not Labels(URL).complete, "unfinished ones can be looked at"
    assert machines.label("machine 3", part="3/3").complete
    here = farm(open_plan("memory://corp/plan"), tmp_path / "here")
    assert Labels(URL).fingerprint == here.fingerprint
    assert not any(name.startswith("results/") for name in names())
    assert machines.label("machine 1", part="1/3").complete, "the first one finds them finished"
    assert Labels(URL).fingerprint == here.fingerprint
    assert not any(name.startswith("results/") for name in names())


def test_a_machine_that_goes_leaves_its_fine_tunes(machines: Machines, monkeypatch: pytest.MonkeyPatch) -> None:
    push, sent = Mirror.push, []

    def gone(self: Mirror, given: Any = None) -> None:
        push(self, given)
        sent.extend(given or ())
        if len(sent) == 5:
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Mirror, "push", gone)
        with pytest.raises(KeyboardInterrupt):
            machines.label("first")
    assert len([name for name in names() if name.startswith("results/")]) == 5
    assert machines.label("second").complete
    assert machines.begun("first") + machines.begun("second") == 10, "no fine-tune is done twice"


def test_other_labels_and_other_files_are_refused(machines: Machines) -> None:
    machines.label("first")
    machines.on("second")
    with pytest.raises(ArtifactError, match="holds labels made with another fine_tune"):
        farm(open_plan("memory://corp/plan"), URL, fine_tune={"epochs": 3})
    fsspec.filesystem("memory").pipe("/corp/data/a.jsonl", b"{}")
    with pytest.raises(ArtifactError, match=r"^memory://corp/data: holds files that airrep did not publish"):
        farm(open_plan("memory://corp/plan"), "memory://corp/data")
    assert set(Storage("memory://corp/data").below()) == {"a.jsonl"}
