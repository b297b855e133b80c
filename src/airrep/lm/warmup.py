"""Make and open warm-ups: LMs fine-tuned on a sample of a corpus."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from safetensors import SafetensorError

from airrep.arrays import Rows
from airrep.corpus.corpus import Corpus
from airrep.corpus.inputs import CorpusLike, as_corpus
from airrep.corpus.schemas.conversations import holds_turns
from airrep.errors import LM, ArtifactError, ConfigError, DataError, many, need
from airrep.lm.files import WARM_UP, copied_files, warm_up_manifest, write_lm
from airrep.lm.folders.forms import CONFIG, Checkpoint, LmFiles, read_config, trainer_checkpoints, weights_digest
from airrep.lm.settings import FineTuneSettings, LmSettings
from airrep.runtime.artifacts import fetched, real_path, seal, versions
from airrep.runtime.devices import resolve_device, resolve_precision
from airrep.runtime.publishing import writing
from airrep.runtime.seeding import stream, stream_seed
from airrep.runtime.stage import Stage
from airrep.shapes import Float64

if TYPE_CHECKING:
    from airrep.lm.model import TargetLM
    from airrep.lm.network import FineTuneReport, OnStep, StepDone

_ADAPTER, _CHECKPOINTS, _LOSSES = "adapter", "checkpoints", "losses.npy"
_SHAPE = ("model_type", "hidden_size", "num_hidden_layers", "n_embd", "n_layer")  # fine-tuning keeps these


@dataclass(frozen=True)
class Warmup:
    """A finished warm-up."""

    path: Path
    """Folder of the fine-tuned LM."""
    manifest: Mapping[str, Any]
    """Record of the request, the base LM and the checkpoints."""

    @property
    def base(self) -> Mapping[str, str]:
        """The LM before fine-tuning: its ``name``, ``fingerprint``, and ``files``, a digest of its files."""
        return self.manifest["base"]

    @property
    def fine_tune(self) -> FineTuneSettings:
        """Settings of the fine-tune."""
        return FineTuneSettings.of(self.manifest["request"]["fine_tune"], str(self.path))

    @property
    def adapter(self) -> Path | None:
        """Folder of the adapters and Adam's moments; None if all weights were trained."""
        return self.path / _ADAPTER if self.fine_tune.lora_rank is not None else None

    @property
    def checkpoints(self) -> tuple[Checkpoint, ...]:
        """Checkpoints in the order of training; the last has the LM's final weights."""
        return tuple(Checkpoint(self.path / entry["file"], entry["rate"]) for entry in self.manifest["checkpoints"])

    @property
    def loss_per_step(self) -> Float64[np.ndarray, " steps"]:
        """Loss of each step's examples before the step, mean nats per response token."""
        return np.load(self.path / _LOSSES, allow_pickle=False)


def open_warmup(folder: str | Path) -> Warmup | None:
    """Open the warm-up in a folder; None if the folder does not hold a warm-up (ArtifactError: it was altered)."""
    path = fetched(folder, loose=True)
    manifest = warm_up_manifest(path)
    return None if manifest is None else Warmup(path, manifest)


def check_after(before: LmFiles, after: LmFiles, template: str | None = None) -> str:
    """Check that *after* is *before* after a warm-up by airrep or any trainer, as far as the files show.

    Return a one-line caution, or an empty text. *template* is the template that both LMs are read with, None if unset.
    """
    if weights_digest(before.gguf or before.folder) == weights_digest(after.gguf or after.folder):
        raise ConfigError(
            f"warmed {after.name}: has the same weights as lm {before.name}, so it was not warmed up. "
            f"Run: airrep warmup DATA --lm {before.name} --out DIR"
        )
    earlier, made = open_warmup(before.folder), open_warmup(after.folder)
    if earlier is not None and earlier.base["files"] == after.digest():
        raise ConfigError(
            f"warmed {after.name}: is the LM before the warm-up fine-tune, and lm {before.name} is the LM after it. "
            f"Swap the two: --lm {after.name} --warmed {before.name}"
        )
    shapes = [{name: read_config(one.weights / CONFIG).get(name) for name in _SHAPE} for one in (before, after)]
    other = next((name for name in _SHAPE if shapes[0][name] != shapes[1][name]), None)
    if other is not None:
        raise ConfigError(
            f"warmed {after.name}: has {other} {shapes[1][other]}, but lm {before.name} has {shapes[0][other]}, so "
            f"they are different LMs. Run: airrep warmup DATA --lm {before.name} --out DIR"
        )
    if made is not None and made.base["files"] != before.digest():
        return (
            f"warmed {after.name}: is a warm-up of {made.base['name']}, whose files differ from those of "
            f"{before.name}. If the two are different LMs, run: airrep warmup DATA --lm {before.name} --out DIR"
        )
    own = None if made is None else made.manifest["request"]["reading"]["template"]
    if template is None and own is not None:
        return (
            f"warmed {after.name}: was trained with the template {own!r}, but the lm is read without it. "
            f"Set it for both: --set template={own!r}"
        )
    return ""


def checkpoints_of(lm: "TargetLM") -> tuple[Checkpoint, ...]:
    """Return the checkpoints that an LM's warm-up kept, or that a trainer wrote into or beside its folder."""
    warmup = open_warmup(lm.files.folder)
    found = trainer_checkpoints(lm.files.folder) if warmup is None else warmup.checkpoints
    if not found:
        raise ConfigError(
            f"lm {lm.name}: has no checkpoints. Run `airrep warmup --set checkpoints=4`, give a trainer's output with "
            "folders checkpoint-STEP, or use checkpoints=final."
        )
    return found


def warm_up(
    corpus: CorpusLike,
    out: str | Path,
    lm: LmSettings | Mapping[str, Any] | str | Path,
    fine_tune: FineTuneSettings | Mapping[str, Any] | None = None,
    *,
    count: int | None = None,
    seed: int = 0,
    checkpoints: int = 0,
    replace: bool = False,
    on_step: "OnStep | None" = None,
) -> Warmup:
    """Fine-tune an LM on a random sample of a corpus and write it as an LM.

    An existing warm-up that was made in the same way is returned as it is; an interrupted one starts again.

    Args:
        corpus: the data to train on.
        out: the directory to make.
        lm: the LM to fine-tune.
        fine_tune: settings of the fine-tune; the paper's label fine-tune if None.
        count: examples, drawn without repeats; None takes all.
        seed: decides the sample, the order of the examples, and the adapters' first weights.
        checkpoints: number of checkpoints to keep, each of all weights, at equal distances; the last one at the end.
        replace: replace an existing warm-up that differs.
        on_step: called after each step.

    Raises:
        ConfigError: the LM is not found, *count* or *checkpoints* is too large, or a setting does not fit.
        DataError: the LM cannot read an example.
        TrainingError: the loss is not finite, or memory is short.
        MissingExtraError: *fine_tune* asks for adapters, but the package peft is missing.
        ArtifactError: *out* holds something else, another process writes there, or *out* cannot be written.

    Example:
        >>> warm = airrep.warm_up(train, "runs/warm", "MODEL", {"epochs": 1}, count=8)
        >>> warm.path.name
        'warm'
    """
    path, chosen = real_path(out), FineTuneSettings.given(fine_tune, "fine_tune")
    need("airrep.warm_up", "lm", *LM)
    from airrep.lm.model import load_lm

    corpus, lm = as_corpus(corpus, "corpus"), LmSettings.named(lm).before()
    rows = sample_rows(corpus, count, seed)
    marks = _marks(chosen.steps(len(rows)), checkpoints)
    request = _request(corpus, lm, chosen, {"count": count, "seed": seed, "checkpoints": checkpoints})
    stage = Stage(path, WARM_UP, "a warm-up made", request, replace)
    if stage.finished() is None:
        with stage.making() as partial, _writing_weights(path):
            model = load_lm(lm)
            copied_files(model.files)  # before the work, which ends with copying them
            writer = _CheckpointWriter(model, partial, marks, on_step)
            report = _train(model, corpus.take(rows), chosen, seed, writer)
            write_lm(model.model, model.files, partial)
            np.save(partial / _LOSSES, np.array(report.loss_per_step, np.float64))
            seal(partial, WARM_UP, _description(writer, report, request))
    made = open_warmup(path)
    assert made is not None
    return made


def sample_rows(corpus: Corpus, count: int | None, seed: int) -> Rows:
    """Rows that a warm-up trains on, ascending."""
    total = len(corpus)
    wanted = total if count is None else count
    if not 1 <= wanted <= total:
        raise ConfigError(f"count is {wanted:,}. Give a number from 1 to {total:,}, the number of examples.")
    if count is None:
        return np.arange(total)
    return np.sort(stream(seed, "warm-up", "sample").choice(total, count, replace=False))


def _marks(steps: int, checkpoints: int) -> tuple[int, ...]:
    """Steps, counted from 1, after which the weights are kept."""
    if not 0 <= checkpoints <= steps:
        raise ConfigError(f"checkpoints is {checkpoints}. Give a number from 0 to {steps}, the number of steps.")
    return tuple(round(steps * number / checkpoints) for number in range(1, checkpoints + 1))


def _request(
    corpus: Corpus, lm: LmSettings, fine_tune: FineTuneSettings, draw: Mapping[str, int | None]
) -> dict[str, Any]:
    return {
        "corpus": corpus.fingerprint,
        # A digest of the files, so that a finished warm-up is found without loading the LM.
        "lm": lm.find().digest(lm.trust_remote_code),
        "reading": lm.model_dump(include={"max_tokens", "cut", "template", "loss", "beta"}),
        "precision": resolve_precision(lm.precision, resolve_device(lm.device)),
        "fine_tune": fine_tune.model_dump(mode="json"),
        **draw,
        **_rendering(corpus, lm),
    }


def _rendering(corpus: Corpus, lm: LmSettings) -> dict[str, str]:
    """Return how the LM reads prompts of several messages; see :meth:`Chat.rendering`.

    The tokenizer is loaded only for a corpus that has conversations, which few have.
    """
    conversations = (example for example in corpus if holds_turns(example.prompt))
    first = next(conversations, None)
    if first is None:
        return {}
    from airrep.lm.model import load_chat

    return load_chat(lm).rendering(chain([first], conversations))


@contextmanager
def _writing_weights(path: Path) -> Iterator[None]:
    """Report a failed write in one line; safetensors raises an error of its own."""
    try:
        with writing(path):
            yield
    except SafetensorError as error:
        raise ArtifactError(
            f"{path}: weights cannot be written: {error}. Remove the cause of this error, then run the command again."
        ) from error


class _CheckpointWriter:
    """Writes checkpoints and adapters while a fine-tune runs."""

    def __init__(self, lm: "TargetLM", folder: Path, marks: Sequence[int], on_step: "OnStep | None") -> None:
        self.lm = lm
        self._folder = folder
        self._marks = marks
        self._on_step = on_step
        self._rates: list[float] = []
        self.checkpoints: list[dict[str, Any]] = []

    def __call__(self, done: "StepDone") -> None:
        self._rates.append(done.rate)
        if done.step in self._marks:
            self._write(done.step)
        # Adam's moments end with the fine-tune, so adapters are saved in its last step.
        if done.step == done.steps and hasattr(self.lm.model, "peft_config"):
            from airrep.lm.lora import save_adapters

            save_adapters(self.lm.model, done.optimizer, self._folder / _ADAPTER, self.lm.name)
        if self._on_step is not None:
            self._on_step(done)

    def _write(self, step: int) -> None:
        from safetensors.torch import save_file

        from airrep.lm.lora import whole_weights

        file = f"{_CHECKPOINTS}/step-{step:06}.safetensors"
        (self._folder / _CHECKPOINTS).mkdir(exist_ok=True)
        weights = {name: weight.cpu().contiguous() for name, weight in whole_weights(self.lm.model).items()}
        save_file(weights, self._folder / file, metadata={"format": "pt"})
        self.checkpoints.append({"file": file, "step": step, "rate": float(np.mean(self._rates))})
        self._rates.clear()


def _train(
    lm: "TargetLM", examples: Corpus, fine_tune: FineTuneSettings, seed: int, writer: _CheckpointWriter
) -> "FineTuneReport":
    lm.check_learnable(examples, "warm-up")
    try:
        documents = lm.tokenise(examples)
    except DataError as error:  # it names one example only; count them all
        refused = lm.unusable(examples)
        raise DataError(
            f"warm-up: the LM {lm.name} cannot use {len(refused):,} of {many(len(examples), 'example')}. The first: "
            f"{refused[min(refused)]} Remove these examples from the data."
        ) from error
    return lm.fine_tune(documents, fine_tune, stream_seed(seed, "warm-up"), writer)


def _description(writer: _CheckpointWriter, report: "FineTuneReport", request: Mapping[str, Any]) -> dict[str, Any]:
    lm, losses = writer.lm, report.loss_per_step
    base = {"name": lm.name, "fingerprint": lm.fingerprint, "files": request["lm"]}
    base |= lm.settings.model_dump(include={"merged"})
    return {
        "request": dict(request),
        "base": base,
        "reading": lm.reading,
        "steps": report.steps,
        "checkpoints": writer.checkpoints,
        "device": lm.execution.device,
        "packages": versions("torch", "transformers", "numpy"),
        "provenance": {
            "lm": base["name"],
            "corpus": request["corpus"][:12],
            "examples": "all" if request["count"] is None else f"{request['count']:,}",
            "seed": request["seed"],
            "fine-tuning": ", ".join(f"{name}={value}" for name, value in request["fine_tune"].items()),
            "loss": f"{losses[0]:.4f} → {losses[-1]:.4f} nats per response token, steps: {report.steps:,}",
            "checkpoints": len(writer.checkpoints),
        },
    }
