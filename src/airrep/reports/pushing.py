"""Pushes an artifact to the Hugging Face Hub, with a card."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from airrep.encoder.cards import read_card
from airrep.errors import ConfigError, DataError
from airrep.evaluation.result import Evaluation
from airrep.index.encoding import without_texts
from airrep.index.rows import KIND as INDEX
from airrep.index.rows import TEXTS, IndexRows
from airrep.runtime.artifacts import MANIFEST, describe_files, fetched, read_manifest, write_manifest
from airrep.runtime.publishing import temporary_folder, writing
from airrep.runtime.remote.hub import CARD, HubPlace, Push, Pushed
from airrep.runtime.remote.places import cache, shown
from airrep.training.result import KIND as ENCODER
from airrep.training.result import render_markdown

_MARK = b"<!-- This card was made by airrep push."
_LICENCE = re.compile(r"[a-z0-9][a-z0-9.-]*")
_PURPOSES: Mapping[str, tuple[str, str]] = {
    INDEX: (
        "An airrep index of training examples",
        "airrep uses these features to find the examples, and groups of them, that made a language model answer so.",
    ),
    ENCODER: ("", ""),
    "labels": (
        "Labels for training data attribution",
        "Losses of queries after fine-tunes of a language model on random subsets, to judge attribution methods.",
    ),
    "subsets": ("Subsets for training data attribution", "Random subsets of training examples, and queries."),
    "evaluation": (
        "An evaluation of attribution methods",
        "How well attribution methods predict what training examples do to a language model.",
    ),
    "recipe": (
        "Weights of attribution channels",
        "How much weight each channel (kind of feature) of an airrep index gets, learnt from labels.",
    ),
}


def push(
    folder: str | Path,
    url: str,
    *,
    licence: str | None = None,
    texts: bool = True,
    evaluation: str | Path | None = None,
    private: bool = True,
) -> Pushed:
    """Push a finished artifact to a repository on the Hugging Face Hub, which is created if it does not exist.

    Files are pushed unchanged, except for a new card and, if needed, a new manifest. A repeated push does not send
    files again. An older version of the same kind is replaced by a commit, so its revision remains readable.

    Args:
        folder: an artifact of airrep: an index, an encoder, labels, subsets, a recipe, a result.
        url: ``hf://owner/name``, or ``hf://datasets/owner/name``.
        licence: the licence for the card, such as ``"apache-2.0"``; required.
        texts: False leaves the texts of an index out.
        evaluation: an evaluation of the artifact, for the card.
        private: True makes a new repository private; an existing repository keeps its visibility.

    Raises:
        ConfigError: no licence, not a repository, or texts cannot be left out.
        ArtifactError: the folder is unfinished, altered or not from airrep; or the Hub does not take it.
        DataError: *evaluation* did not evaluate this index.
    """
    place = HubPlace.of(url)
    if licence is None or not _LICENCE.fullmatch(licence):
        given = "no licence is given" if licence is None else f"{licence!r} is not the name of a licence"
        raise ConfigError(
            f"push {url}: {given}. Name the licence of the folder that you publish: --licence apache-2.0, cc-by-4.0, "
            "other, …"
        )
    here = fetched(folder)
    manifest = read_manifest(here, verify=True)
    judged = _judged(here, manifest, evaluation)
    parent = cache() / "outputs"
    with writing(parent):
        parent.mkdir(parents=True, exist_ok=True)
        with temporary_folder(parent) as made:
            if not texts:
                if manifest["kind"] != INDEX:
                    raise ConfigError(
                        f"push {folder}: is of kind '{manifest['kind']}', but --no-texts works only for an index. "
                        "Remove --no-texts."
                    )
                without_texts(IndexRows(here), made)
                manifest = read_manifest(made)
            (made / CARD).write_text(_card(here, manifest, place, licence, judged), encoding="utf-8")
            if CARD in manifest["files"]:
                manifest["files"] |= describe_files(made, [CARD])
                write_manifest(made, manifest["kind"], manifest)
            names = dict.fromkeys([*manifest["files"], CARD, MANIFEST])
            files = {name: made / name if (made / name).is_file() else here / name for name in names}
            known = {name: entry["sha256"] for name, entry in manifest["files"].items()}
            return Push(files, manifest["kind"], known, _MARK).to(place.url, private=private)


def local_models(folder: str | Path) -> list[str]:
    """Return local paths of models in an artifact's settings, which do not exist on other machines."""

    def named(value: Any) -> list[str]:
        below = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
        own = [value] if isinstance(value, str) and value.startswith("/") and Path(value).exists() else []
        return own + [one for part in below for one in named(part)]

    return sorted(set(named(read_manifest(fetched(folder)).get("settings"))))


def _judged(here: Path, manifest: Mapping[str, Any], evaluation: str | Path | None) -> Evaluation | None:
    """Return the evaluation for the card: the given one, or the artifact if it is an evaluation; else None."""
    if evaluation is None:
        return Evaluation.read(here) if manifest["kind"] == Evaluation.kind else None
    found = Evaluation.read(evaluation)
    if manifest["kind"] == INDEX and IndexRows(here).fingerprint not in str(found.request):
        raise DataError(
            f"{evaluation}: evaluated other indexes, not {shown(str(here))}. Give an evaluation of this index, or none."
        )
    return found


def _card(here: Path, manifest: Mapping[str, Any], place: HubPlace, licence: str, judged: Evaluation | None) -> str:
    kind = str(manifest["kind"])
    title, purpose = _PURPOSES.get(kind, (f"A result of airrep: {kind}", "A result, exactly as airrep wrote it."))
    values: dict[str, Any] = {"template": "", "view": None}
    own = ""
    if kind == ENCODER:
        card = read_card(here)
        values |= {"template": card.template, "view": ((card.training or {}).get("settings") or {}).get("view")}
        _, _, own = (here / CARD).read_text("utf-8").partition("\n# ")  # after the first heading of its own card
        title, _, own = own.partition("\n")
        purpose = "A sentence encoder for training data attribution; its own card follows below."
    text = render_markdown(
        "hub_card.md.j2",
        **values,
        licence=licence,
        library="sentence-transformers" if kind == ENCODER else "airrep",
        tag=re.sub(r"[^a-z0-9]+", "-", kind),
        title=title,
        purpose=purpose,
        kind=kind,
        texts=manifest.get(TEXTS, True),
        facts=_facts(manifest),
        url=place.url,
        name=place.name,
        command=_command(kind, place.url),
        judged=None if judged is None else _told(judged),
    )
    return text + own.replace('"this-folder"', f'"{place.url}"')


def _facts(manifest: Mapping[str, Any]) -> dict[str, Any]:
    """Return facts for the table of a card, with only the names of local paths."""
    settings = manifest.get("settings") or {}
    channels = [f"{one['name']} ({one['kind']})" for one in manifest.get("channels", ()) if "kind" in one]
    models = {name: settings.get(name) for name in ("lm", "encoder")}
    size = sum(entry["bytes"] for entry in manifest["files"].values())
    found = {
        "kind": manifest["kind"],
        "examples": f"{manifest['rows']:,}" if "rows" in manifest else None,
        "method": manifest.get("method"),
        "channels": ", ".join(channels) or None,
        **{name: Path(value).name if value and Path(value).is_absolute() else value for name, value in models.items()},
        "files": f"{len(manifest['files']):,}, {size / 1e6:,.1f} MB",
        "made with": ", ".join(f"{name} {number}" for name, number in manifest.get("packages", {}).items()) or None,
    }
    return {name: value for name, value in found.items() if value is not None}


def _command(kind: str, url: str) -> str:
    commands = {
        INDEX: f"airrep top {url} queries.jsonl",
        ENCODER: f"airrep index train.jsonl --encoder {url} --out index",
        "labels": f"airrep evaluate {url} INDEX --data train.jsonl",
    }
    return commands.get(kind, f"airrep show {url}")


def _told(found: Evaluation) -> dict[str, Any]:
    return {
        "measure": found.measure.upper() if found.measure in ("lds", "loo") else found.measure,
        "queries": f"{len(found.queries):,}",
        "ceiling": found.ceiling,
        "rows": found.rows,
    }
