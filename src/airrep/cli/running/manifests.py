"""Steps of artifacts without history, as far as their manifests tell."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airrep.cli.running.config import FILL_IN, WrittenStep
from airrep.cli.running.steps import Commands, Step
from airrep.errors import ConfigError
from airrep.runtime.artifacts.manifests import read_manifest
from airrep.runtime.settings import Settings

if TYPE_CHECKING:
    pass

Manifest = Mapping[str, Any]


def step_of_manifest(path: Path, commands: Commands) -> WrittenStep:
    """The step that made an artifact; options that nothing records are to be filled in.

    Raises:
        ArtifactError: nothing is there, or it is unfinished or altered.
        ConfigError: its kind tells too little.
    """
    manifest = read_manifest(path)
    command = manifest.get("provenance", {}).get("command")
    if command:
        return WrittenStep(commands.step_of_line(command))
    make = _KINDS.get(manifest["kind"])
    if make is None:
        raise ConfigError(
            f"{path}: is of kind '{manifest['kind']}', and does not record the command that made it. Make it again: "
            "this airrep records it."
        )
    step, comments = make(path, manifest)
    return WrittenStep(Step(step.command, {**step.options, "out": str(path)}), comments)


def _corpus(fingerprint: str, rows: int | None = None) -> str:
    """Words for data that must be filled in."""
    count = "" if rows is None else f"{rows:,} examples, "
    return f"{count}fingerprint {fingerprint[:12]}"


def _others(values: Mapping[str, Any], settings: type[Settings], defaults: Mapping[str, Any] | None = None) -> Any:
    """Those settings that are not the defaults."""
    fields = settings.model_fields
    plain = {name: field.get_default(call_default_factory=True) for name, field in fields.items() if name in values}
    usual = json.loads(json.dumps({**plain, **(defaults or {})}, default=_jsonable))
    return {name: value for name, value in values.items() if name not in usual or value != usual[name]}


def _jsonable(value: Any) -> Any:
    return value.model_dump(mode="json") if isinstance(value, Settings) else None


def _index(path: Path, manifest: Manifest) -> tuple[Step, dict[str, str]]:
    from airrep.attributors.methods import is_known, method_named
    from airrep.index.building import SHARD_ROWS

    name, corpora, rows = manifest["method"], manifest["corpora"], manifest["request"]["shard_rows"]
    if not is_known(name):
        raise ConfigError(
            f"{path}: was made from Python by '{name}', which airrep does not know. Make it again from Python."
        )
    method = method_named(name)
    usual = method.settings.of(dict(method.defaults)) if _needs_nothing(method) else None
    given = manifest["settings"]
    settings = (
        _others(given, method.settings, method.defaults)
        if usual is None
        else {key: value for key, value in given.items() if value != usual.model_dump(mode="json").get(key)}
    )
    options = {"data": FILL_IN, "method": name, "set": settings, "shard-rows": rows}
    if rows == SHARD_ROWS:
        del options["shard-rows"]
    if not settings:
        del options["set"]
    options |= {name.replace("_", "-"): value for name, value in manifest.get("reading", {}).get("options", {}).items()}
    appended = sum(entry["rows"] for entry in corpora[1:])
    more = f"; {appended:,} examples were appended later" if appended else ""
    return Step("index", options), {"data": _corpus(manifest["request"]["corpus"], corpora[0]["rows"]) + more}


def _needs_nothing(method: Any) -> bool:
    """Whether a method can be made without settings of the user's."""
    return all(
        name in method.defaults or not field.is_required() for name, field in method.settings.model_fields.items()
    )


def _subsets(path: Path, manifest: Manifest) -> tuple[Step, dict[str, str]]:  # noqa: ARG001
    from airrep.labels.plan import SamplingSettings

    request = manifest["request"]
    settings = _others(request["settings"], SamplingSettings)
    settings.pop("kind", None)  # --removals and --removals-by say it
    said = {name: settings.pop(name) for name in ("removals", "removals_by") if name in settings}
    options = {"data": FILL_IN, **said}
    options |= {"set": settings} if settings else {}
    comments = {"data": _corpus(request["train"])}
    if request["queries"] != request["train"]:
        options["queries"], comments["queries"] = FILL_IN, _corpus(request["queries"])
    return Step("sample", options), comments


def _labels(path: Path, manifest: Manifest) -> tuple[Step, dict[str, str]]:
    from airrep.lm.files import ALL_CHAT
    from airrep.lm.settings import FineTuneSettings

    lm, tuning = manifest["lm"], manifest["fine_tune"]
    if "epochs" not in tuning:
        raise ConfigError(f"{path}: has losses of another trainer, and does not record how. Import them again.")
    settings = _others(tuning, FineTuneSettings)
    settings |= {"max_tokens": lm.get("max_tokens"), "template": lm.get("template"), "precision": manifest["precision"]}
    settings |= {"cut": lm.get("cut")}
    settings = {name: value for name, value in settings.items() if value is not None and value != "chat"}
    if settings.get("template") == ALL_CHAT:
        settings["template"] = "chat"
    options = {
        "subsets": FILL_IN,
        "data": FILL_IN,
        "lm": lm["name"],
        "seeds": manifest["counts"]["seeds"],
        "set": settings,
    }
    comments = {
        "subsets": f"what airrep sample made; a copy is in {manifest['plan_folder']}",
        "data": _corpus(manifest["train"]),
        "lm": f"fingerprint {lm['fingerprint'][:12]}; where it lay then",
    }
    if manifest["queries"] != manifest["train"]:
        options["queries"], comments["queries"] = FILL_IN, _corpus(manifest["queries"])
    return Step("label", options), comments


def _warm_up(path: Path, manifest: Manifest) -> tuple[Step, dict[str, str]]:  # noqa: ARG001
    from airrep.lm.settings import FineTuneSettings

    request = manifest["request"]
    reading = {name: value for name, value in request["reading"].items() if value is not None}
    settings = {**_others(request["fine_tune"], FineTuneSettings), **reading, "precision": request["precision"]}
    options = {"data": FILL_IN, "lm": manifest["base"]["name"], "set": settings}
    options |= {name: request[name] for name in ("count", "seed", "checkpoints") if request[name]}
    files = f"files {manifest['base']['files'][:12]}; where it lay then"
    return Step("warmup", options), {"data": _corpus(request["corpus"]), "lm": files}


def _encoder(path: Path, manifest: Manifest) -> tuple[Step, dict[str, str]]:
    from airrep.training.settings import TrainingSettings

    request = manifest["request"]
    if "beside" in request:
        raise ConfigError(f"{path}: was trained by `airrep adapt`, and does not record the command.")
    parts = {"labels": "instances", "held-out": "held_out", "test": "test"}
    found = {option: request.get(part) or [] for option, part in parts.items()}
    options: dict[str, Any] = {option: [FILL_IN] for option, instances in found.items() if instances}
    comments = {
        option: "instances " + ", ".join(str(one["name"]) for one in instances)
        for option, instances in found.items()
        if instances
    }
    options |= {"data": [FILL_IN], "start": FILL_IN, "set": _others(request["settings"], TrainingSettings)}
    comments |= {"data": "the data of the labels", "start": f"the encoder to start from, {str(request['start'])[:12]}"}
    return Step("train", options), comments


def _datamodels(path: Path, manifest: Manifest) -> tuple[Step, dict[str, str]]:  # noqa: ARG001
    from airrep.training.linear.datamodels import RegressionSettings

    settings = _others(manifest["request"]["settings"], RegressionSettings)
    name = manifest.get("provenance", {}).get("instance", "")
    options = {"labels": FILL_IN, **({"set": settings} if settings else {})}
    return Step("datamodels", options), {"labels": f"one instance, {name}, of {manifest['request']['instance'][:12]}"}


def _asked(path: Path, manifest: Manifest) -> tuple[Step, dict[str, str]]:
    """Of top, group and what-if."""
    from airrep.index.results.provenance import HARMFUL
    from airrep.index.results.result import RESULTS

    origin, kind = manifest["provenance"], manifest["kind"]
    result = json.loads((path / RESULTS).read_bytes())
    options: dict[str, Any] = {"index": FILL_IN, "queries": FILL_IN}
    comments = {
        "index": f"of method {origin['method']}, fingerprint {origin['index'][:12]}",
        "queries": f"{len(result['queries']):,} queries; their texts are in {RESULTS}",
    }
    if kind == "top":
        options["k"] = max((len(one["hits"]) for one in result["queries"]), default=10)
        options |= {"least": True} if result.get("order") == HARMFUL else {}
        return Step(kind, options), comments
    if kind == "group":
        options["by"], comments["by"] = (
            FILL_IN,
            f"{len(result['groups']):,} groups; a field, or groups: FILE in its place",
        )
    else:
        options["remove"] = FILL_IN
        comments["remove"] = f"{result.get('removal') or 'a filter'}, {result['removed']:,} examples; or keep"
    warm = origin["temperature"]
    pool = origin["pool"] if warm is None else f"{origin['pool']}:{warm}"
    return Step(kind, {**options, **({} if origin["pool"] is None else {"pool": pool})}), comments


_KINDS: Mapping[str, Callable[[Path, Manifest], tuple[Step, dict[str, str]]]] = {
    "index": _index,
    "subsets": _subsets,
    "labels": _labels,
    "warm-up": _warm_up,
    "encoder": _encoder,
    "datamodels": _datamodels,
    "top": _asked,
    "group": _asked,
    "what-if": _asked,
}
