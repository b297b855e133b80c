"""Read settings of fine-tunes from trainers' files, without running pickled code."""

import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from airrep.errors import ConfigError, need
from airrep.lm.folders.forms import ADAPTER_CONFIG, STATE, checkpoints_in, last_checkpoint, settled
from airrep.lm.settings import FineTuneSettings
from airrep.runtime.settings import LONGEST_SHOWN, read_yaml
from airrep.runtime.tracking import is_number

PICKLE = "training_args.bin"
ARGUMENTS = ("args.json", "training_args.json", PICKLE)
"""Files with all arguments, the most complete first: ms-swift's, one that a user wrote, transformers'."""
KIND = "kind of arguments"
"""Key of the class of pickled arguments."""
_TELLING = ("learning_rate", "num_epochs", "num_train_epochs")
_YAML = (".yaml", ".yml")
_MOST_BYTES, _MOST_STATE_BYTES = 2**22, 2**28


class Written(NamedTuple):
    """Contents of the files of one training; a missing part is empty."""

    path: Path
    """File of the arguments, else of the state, else of the adapters; the given path if there is none."""
    arguments: Mapping[str, Any]
    state: Mapping[str, Any]
    adapters: Mapping[str, Any]


def find_written(path: Path) -> Written:
    """Read what a trainer wrote into a folder, its last checkpoint and the folder around it; or read one file."""
    if path.is_dir():
        return _of_files(path, list(_files(path)))
    if not path.is_file():
        raise ConfigError(f"training {path}: there is no such file or folder. Name a trainer's folder or config file.")
    found = _of_files(path, [path])
    if not any(found[1:]):
        raise ConfigError(
            f"training {path}: is not a file that a trainer wrote. Give {STATE}, {PICKLE}, args.json, "
            f"{ADAPTER_CONFIG}, a YAML config of axolotl, LLaMA-Factory or trl, or the trainer's folder."
        )
    return found


def _files(folder: Path) -> Iterator[Path]:
    last, around = last_checkpoint(folder), folder in checkpoints_in(folder.parent).values()
    places = [folder, *([] if last is None else [last]), *([folder.parent] if around else [])]
    for place in places:
        yield from (place / name for name in (*ARGUMENTS, STATE, ADAPTER_CONFIG) if (place / name).is_file())
    for place in places:
        yield from sorted(file for file in place.iterdir() if file.suffix in _YAML and _holds_mapping(file))


def _holds_mapping(file: Path) -> bool:
    """True if a YAML file can be read; a trainer's folder may hold files that are not the trainer's."""
    try:
        return file.is_file() and bool(_values(file))
    except ConfigError:
        return False


def _of_files(path: Path, files: list[Path]) -> Written:
    """Read the first of each kind among some files."""
    parts: dict[str, Mapping[str, Any]] = {}
    sources: dict[str, Path] = {}
    for file in files:
        if "arguments" in parts and file.name not in (STATE, ADAPTER_CONFIG):
            continue
        values = _values(file)
        if (kind := _kind(values)) is not None and kind not in parts:
            parts[kind], sources[kind] = values, file
    kinds = Written._fields[1:]
    if "arguments" in parts and sources["arguments"].suffix in _YAML and _is_of_trl(parts["arguments"]):
        given = {name: value for name, value in parts["arguments"].items() if value is not None}
        parts["arguments"] = {**_TRL_DEFAULTS, **given}
    source = next((sources[kind] for kind in kinds if kind in sources), path)
    return Written(source, *(parts.get(kind, {}) for kind in kinds))


def _is_of_trl(said: Mapping[str, Any]) -> bool:
    others = ("base_model", "num_epochs", "stage", "finetuning_type", "tuner_type", "train_type")  # required elsewhere
    return any(name in said for name in ("use_peft", "dataset_name", "datasets")) and not any(map(said.get, others))


def _kind(values: Mapping[str, Any]) -> str | None:
    """Name the part of :class:`Written` that a file holds; None if it holds none."""
    if "log_history" in values:
        return "state"
    if "peft_type" in values:
        return "adapters"
    return "arguments" if any(name in values for name in _TELLING) or _is_of_trl(values) else None


def _values(file: Path) -> Mapping[str, Any]:
    """Read the values of a file by name; empty for files of another kind."""
    if file.suffix == ".bin":
        return _unpickled(file)
    found = None
    if file.suffix in _YAML and file.stat().st_size <= _MOST_BYTES:
        found = read_yaml(file)
    if file.suffix == ".json":
        found = _json(file)
    return found if isinstance(found, dict) else {}


def _json(file: Path) -> Any:
    try:
        return json.loads(file.read_bytes()) if file.stat().st_size <= _MOST_STATE_BYTES else None
    except (OSError, ValueError, RecursionError) as error:
        raise ConfigError(f"{file}: cannot be read as JSON ({type(error).__name__}). Restore the file.") from error


class _StandIn:
    """Stand-in for an object in a pickle: it keeps the object's values, and its class is never imported."""

    def __new__(cls, *values: Any) -> "_StandIn":
        made = super().__new__(cls)
        made.__dict__[KIND] = values
        return made


def _unpickled(file: Path) -> Mapping[str, Any]:
    """Read the values of pickled arguments.

    torch's reader of weights calls only allowed classes, and each class that the pickle names is replaced by a
    stand-in. So no code in the file, or named by it, runs.
    """
    need(str(file), "lm", "torch")
    import torch
    from torch.serialization import get_unsafe_globals_in_checkpoint, safe_globals

    try:
        if file.stat().st_size > _MOST_BYTES:
            raise ValueError("larger than 4 MiB")
        allowed: list[Any] = [
            (type(name, (_StandIn,), {}), name) for name in get_unsafe_globals_in_checkpoint(str(file))
        ]
        with safe_globals(allowed):
            found = torch.load(file, map_location="cpu", weights_only=True)
    except Exception as error:  # damaged pickles raise nearly anything
        raise ConfigError(
            f"{file}: cannot be read as training arguments ({type(error).__name__}) without running code in the file. "
            "Give another file of the trainer, or give the settings with --set."
        ) from error
    if not isinstance(found, _StandIn):
        raise ConfigError(f"{file}: does not hold training arguments. Give another file of the trainer.")
    return {name: _plain(value) for name, value in vars(found).items()} | {KIND: type(found).__name__}


def _plain(value: Any) -> Any:
    """Replace a stand-in: for a member of an enumeration by its value, for another object by a dict of its parts."""
    if not isinstance(value, _StandIn):
        return value
    parts = {name: _plain(part) for name, part in vars(value).items() if name != KIND}
    given = vars(value).get(KIND, ())
    match given:
        case [type(), str() as member]:  # Python 3.11.0 to 3.11.3 write getattr(enumeration, "LINEAR") for "linear"
            return member.lower()
    return parts if parts or len(given) != 1 else given[0]


_DEFAULTS = {
    "learning_rate": 5e-5,
    "num_train_epochs": 3,
    "per_device_train_batch_size": 8,
    "gradient_accumulation_steps": 1,
    "lr_scheduler_type": "linear",
    "warmup_steps": 0,
    "weight_decay": 0.0,
    "adam_beta1": 0.9,
    "adam_beta2": 0.999,
    "adam_epsilon": 1e-8,
    "max_grad_norm": 1.0,
    "optim": "adamw_torch",
}
"""Defaults of transformers' TrainingArguments, for entries that a YAML config leaves out; other files have all."""
_TRL_DEFAULTS = {"learning_rate": 2e-5, "lora_r": 16, "lora_alpha": 32, "lora_dropout": 0.05}
"""Defaults of trl's SFTConfig and ModelConfig that differ, for YAML configs; those of LoRA count with use_peft."""
_AXOLOTL_NAMES = {
    "num_epochs": "num_train_epochs",
    "micro_batch_size": "per_device_train_batch_size",
    "lr_scheduler": "lr_scheduler_type",
    "optimizer": "optim",
}
_AXOLOTL_DEFAULTS = {"num_train_epochs": 1, "per_device_train_batch_size": 1, "lr_scheduler_type": "cosine"}
_AXOLOTL_WARMUP = 0.03
_LEFT = (
    *("neftune_noise_alpha", "packing", "sample_packing", "neat_packing", "label_smoothing_factor", "group_by_length"),
    *("loraplus_lr_ratio", "lorap_lr_ratio", "embedding_lr", "load_in_4bit", "load_in_8bit", "quantization_bit"),
    *("quant_bits", "lr_scheduler_kwargs", "cosine_min_lr_ratio", "cosine_constant_lr_ratio", "optim_args"),
    *("use_galore", "use_apollo", "use_badam", "use_dft_loss", "train_on_inputs", "train_on_prompt", "rl", "rlhf_type"),
)
"""Settings of trainers that airrep's fine-tunes lack; they are reported if they are in use."""
_LEFT_OF_LORA = (
    *("lora_dropout", "use_dora", "peft_use_dora", "rank_pattern", "alpha_pattern", "modules_to_save"),
    *("lora_modules_to_save", "target_parameters", "lora_target_parameters", "layers_to_transform", "exclude_modules"),
)
_LENGTHS = ("max_length", "sequence_len", "cutoff_len", "max_seq_length")
_KINDS = ("TrainingArguments", "SFTConfig", "AxolotlTrainingArguments", "AxolotlSFTConfig")
"""Endings of the names of argument classes for trainings on the loss of responses."""


class LowRank(NamedTuple):
    """Low-rank adapters as a trainer sets them; scaled by alpha / √rank (rsLoRA) if *by_root*, else by alpha / rank."""

    rank: Any
    alpha: Any
    targets: Any
    by_root: bool


def as_transformers(said: Mapping[str, Any]) -> dict[str, Any]:
    """Return arguments under transformers' names, with the trainer's defaults; empty if there are no arguments."""
    given = {name: value for name, value in said.items() if value is not None}
    if not given or not ("num_epochs" in said or "base_model" in said):  # axolotl has these
        return {**_DEFAULTS, **given} if given else {}
    named = {_AXOLOTL_NAMES.get(name, name): value for name, value in given.items()}
    if "warmup_steps" not in named:
        named.setdefault("warmup_ratio", _AXOLOTL_WARMUP)
    if "batch_size" in named and "gradient_accumulation_steps" not in named:
        named |= {"per_device_train_batch_size": named["batch_size"]}
    return {**_DEFAULTS, **_AXOLOTL_DEFAULTS, **named}


def lora_of(said: Mapping[str, Any], adapters: Mapping[str, Any]) -> LowRank | None:
    """Return the low-rank adapters that were trained; None if all weights were trained, or if no file says."""
    if adapters.get("peft_type") == "LORA":
        rank, alpha, targets = (adapters.get(name) for name in ("r", "lora_alpha", "target_modules"))
        return LowRank(rank, alpha, targets, bool(adapters.get("use_rslora")))
    if not _trains_lora(said):
        return None
    factory = "finetuning_type" in said or "stage" in said
    rank = _first(said, "lora_r", "lora_rank") or 8
    alpha = said.get("lora_alpha") or (2 * int(rank) if factory else 8)
    targets = _first(said, "lora_target_modules", "lora_target", "target_modules")
    if said.get("lora_target_linear"):
        targets = None
    return LowRank(rank, alpha, targets, bool(_first(said, "use_rslora", "peft_use_rslora")))


def _trains_lora(said: Mapping[str, Any]) -> bool:
    if "finetuning_type" in said or "stage" in said:  # LLaMA-Factory
        return bool(said.get("finetuning_type", "lora") == "lora")
    if (tuner := _tuner(said)) is not None:
        return bool(tuner == "lora")
    return said.get("adapter") in ("lora", "qlora") or bool(said.get("use_peft"))  # axolotl, trl


def _tuner(said: Mapping[str, Any]) -> Any:  # ms-swift
    return _first(said, "tuner_type", "train_type")


def _first(said: Mapping[str, Any], *names: str) -> Any:
    return next((said[name] for name in names if said.get(name) is not None), None)


def unfollowed(said: Mapping[str, Any], adapters: Mapping[str, Any]) -> Iterator[str]:
    """Name the trainer's settings that airrep's fine-tunes cannot follow."""
    trained = lora_of(said, adapters) is not None
    for name in (*_LEFT, *(_LEFT_OF_LORA if trained else ())):
        value = adapters.get(name) or said.get(name)
        if value and value != "none":
            yield name if value is True else f"{name} {value}"
    if adapters.get("peft_type", "LORA") != "LORA":
        yield f"adapters of type {adapters['peft_type']} (all weights here)"
    for name, kind in (("finetuning_type", said.get("finetuning_type")), ("tuner", _tuner(said))):
        if kind not in (None, "lora", "full"):
            yield f"{name} {kind} (all weights here)"
    if said.get("stage") not in (None, "sft", "pt"):
        yield f"stage {said['stage']}"
    if said.get("train_sampling_strategy") not in (None, "random"):
        yield f"train_sampling_strategy {said['train_sampling_strategy']}"
    if said.get("completion_only_loss") is False:
        yield "completion_only_loss false"
    if said.get("assistant_only_loss"):  # trl then renders with a template of its own, which may keep earlier thoughts
        yield "the chat template that trl has for assistant_only_loss"
    if said.get("loss_type") not in (None, "nll", "chunked_nll"):
        yield f"loss_type {said['loss_type']}"
    if KIND in said and not str(said[KIND]).endswith(_KINDS):
        yield f"the loss of {str(said[KIND]).rpartition('.')[2]}"
    if (length := _first(said, *_LENGTHS)) is not None:
        yield f"a length of {length} (--set max_tokens={length})"


_SCHEDULES = {"constant": "constant", "constant_with_warmup": "constant", "linear": "linear", "cosine": "cosine"}
_ADAMW = ("adamw_torch", "adamw_hf", "adamw_apex", "adamw_anyprecision")
"""Beginnings of the names of optimizers that compute exactly AdamW."""
_CLOSE = 0.05  # of an epoch


@dataclass(frozen=True)
class TrainingRead:
    """Settings of a training, in the form of airrep's fine-tune settings."""

    path: Path
    """File or folder that they were read from."""
    values: Mapping[str, Any]
    """Fields of :class:`airrep.lm.settings.FineTuneSettings` that were read."""
    batch: str = ""
    """Parts of the batch, such as ``"4 x 4 accumulation"``; empty if unknown."""
    unfollowed: tuple[str, ...] = ()
    """The trainer's settings that airrep's fine-tunes cannot follow, by the trainer's names."""

    @property
    def fine_tune(self) -> FineTuneSettings:
        """The settings; a field that was not read has its default."""
        return FineTuneSettings.of(dict(self.values), str(self.path))

    @property
    def sentence(self) -> str:
        """The settings that were read, in one line."""
        made = f" (batch: {self.batch})" if self.batch else ""
        rest = f"; not followed: {', '.join(self.unfollowed)}" if self.unfollowed else ""
        return f"{self.fine_tune.summary}{made}, from {self.path}{rest}"


def read_training(path: str | Path) -> TrainingRead:
    """Read the settings that an LM was trained with, so that airrep's fine-tunes do the same.

    *path* is the folder of transformers' Trainer, trl, axolotl, LLaMA-Factory or ms-swift, or one of its files:
    ``training_args.bin`` (whose code is not run), ``args.json``, a YAML config, ``trainer_state.json`` or
    ``adapter_config.json``. Files in the last checkpoint count too. ConfigError: no file has the learning rate.

    Example:
        >>> from airrep.lm.trainer_records.training import read_training
        >>> read = read_training("runs/trained")
        >>> read.fine_tune.learning_rate
        0.0002
    """
    found = _translated(find_written(Path(path)))
    if "learning_rate" not in found.values:
        raise ConfigError(
            f"training {path}: does not contain the learning rate. Give {PICKLE}, {STATE} with a logged rate, "
            "args.json, or a YAML config of axolotl, LLaMA-Factory or trl; or set the rate with --set learning_rate=..."
        )
    return found


def training_beside(lm: str) -> TrainingRead | None:
    """Read the files that trainers left beside the folder of an LM; None if there are none.

    The learning rate may be missing, since adapters alone give only their rank, alpha and layers.
    """
    folder = settled(Path(lm))
    if not folder.is_dir() or not any((folder / name).is_file() for name in (*ARGUMENTS, STATE, ADAPTER_CONFIG)):
        return None
    found = _translated(find_written(folder))
    return found if found.values else None


def _translated(written: Written) -> TrainingRead:
    reader = _Reader(written)
    values = reader.logged() | reader.said() | reader.low_rank()
    left = (*reader.left, *unfollowed(written.arguments, written.adapters))
    found = TrainingRead(written.path, values, reader.batch, tuple(dict.fromkeys(left)))
    _ = found.fine_tune  # a value that cannot hold is refused here
    return found


class _Reader:
    """Translates a trainer's settings, and notes what is left out."""

    def __init__(self, written: Written) -> None:
        self._written, self._said = written, as_transformers(written.arguments)
        self.left: list[str] = []
        self.batch = ""

    def logged(self) -> dict[str, Any]:
        """Settings from the trainer's state: highest logged rate, schedule, epochs, and batch of one process."""
        state = self._written.state
        rates = _logged_rates(state)
        if not rates or max(rates.values()) <= 0:
            return {}
        found: dict[str, Any] = {"learning_rate": float(max(rates.values())), "schedule": _fall(rates, state)}
        if (epochs := self._epochs_of_state()) is not None:
            found["epochs"] = self._whole(epochs)
        if is_number(state.get("train_batch_size")):
            self.batch = "of one process and without accumulation, which trainer_state.json does not record"
            found["batch_examples"] = int(state["train_batch_size"])
        return found

    def said(self) -> dict[str, Any]:
        """Settings from the trainer's arguments."""
        if not self._said:
            return {}
        if not str(self._said["optim"]).lower().rpartition(".")[2].startswith(_ADAMW):
            self.left.append(f"optim {self._said['optim']} (AdamW here)")
        return {
            "learning_rate": self._rate(),
            "epochs": self._epochs(),
            "batch_examples": self._batch(),
            "weight_decay": self._number("weight_decay"),
            "betas": (self._number("adam_beta1"), self._number("adam_beta2")),
            "epsilon": self._number("adam_epsilon"),
            "clip": self._number("max_grad_norm") or None,
            **self._schedule(),
        }

    def _rate(self) -> float:
        """Return the arguments' rate, or the log's if that is higher: a resumed run keeps its checkpoint's rate."""
        said = self._number("learning_rate")
        logged = max(_logged_rates(self._written.state).values(), default=said)  # some rates may not be in the log
        if logged <= said or math.isclose(logged, said):
            return said
        self.left.append(f"learning_rate {said:g} ({logged:g} in the log)")
        return logged

    def low_rank(self) -> dict[str, Any]:
        """Settings of low-rank adapters; without adapters, a rank of None."""
        lora = lora_of(self._written.arguments, self._written.adapters)
        if lora is None:
            return {"lora_rank": None} if self._said else {}
        rank, alpha = self._as_number("LoRA's rank", lora.rank), self._as_number("lora_alpha", lora.alpha)
        if lora.targets is None and self._said.get("use_peft"):  # trl: peft's choice, which depends on the architecture
            self.left.append("the target modules that peft chooses (all linear maps here; --set lora_targets=NAMES)")
        scaled = alpha * rank**0.5 if lora.by_root else alpha  # ours is divided by the rank, not by its root
        return {"lora_rank": int(rank), "lora_alpha": scaled, "lora_targets": self._targets(lora.targets)}

    def _targets(self, targets: Any) -> tuple[str, ...] | None:
        names = targets.split(",") if isinstance(targets, str) else targets
        names = [str(name).strip() for name in names] if isinstance(names, list | tuple | set) else []
        if not names or names[0] in ("all", "all-linear"):
            return None
        if odd := next((name for name in names if not name.replace(".", "").replace("_", "").isalnum()), None):
            self.left.append(f"target_modules {odd} (all linear maps here)")
            return None
        return tuple(sorted(names))

    def _schedule(self) -> dict[str, Any]:
        name = str(self._said["lr_scheduler_type"]).lower().rpartition(".")[2]
        taken = _SCHEDULES.get(name, "cosine" if name.startswith("cosine") else "linear")
        if name not in _SCHEDULES:
            self.left.append(f"lr_scheduler_type {name} ({taken} here)")
        return {"schedule": taken, "warmup_ratio": 0.0 if name == "constant" else self._warmup()}

    def _warmup(self) -> float:
        """Return the share of the steps over which the rate rises; 0 if only the number of these steps is known."""
        steps, ratio = self._number("warmup_steps"), self._number("warmup_ratio") if "warmup_ratio" in self._said else 0
        if ratio or steps < 1:
            return ratio or steps
        total = self._written.state.get("max_steps") or self._said.get("max_steps") or 0
        if is_number(total) and total > steps:
            return steps / total
        self.left.append(f"warmup_steps {steps:.0f} of an unknown number of steps")
        return 0.0

    def _epochs(self) -> int:
        if self._said.get("max_steps", 0) in (0, -1):
            return self._whole(self._number("num_train_epochs"))
        known = self._epochs_of_state()
        if known is None:
            self.left.append(f"max_steps {self._said['max_steps']} (1 epoch here)")
        return self._whole(known or 1.0)

    def _epochs_of_state(self) -> float | None:
        """Return the epochs of the whole run, from the progress in its state; None if it is unknown."""
        epoch, step, steps = (self._written.state.get(name) for name in ("epoch", "global_step", "max_steps"))
        return epoch * steps / step if all(map(is_number, (epoch, step, steps))) and step and epoch else None

    def _whole(self, epochs: float) -> int:
        whole = max(1, round(epochs))
        if abs(whole - epochs) > _CLOSE:
            self.left.append(f"{epochs:.3g} epochs ({whole} here)")
        return whole

    def _batch(self) -> int:
        each, steps = self._number("per_device_train_batch_size"), self._number("gradient_accumulation_steps")
        at_once, known = self._devices()
        others = f" x {at_once} devices" if at_once > 1 else "" if known else " on one device"
        self.batch = f"{each:.0f} x {steps:.0f} accumulation{others}"
        return int(each * steps * at_once)

    def _devices(self) -> tuple[int, bool]:
        """Return the number of devices that trained at once, and True if a file gives it."""
        state = self._said.get("distributed_state")
        told = state.get("num_processes") if isinstance(state, dict) else self._said.get("global_world_size")
        return max(1, _count(told)) * max(1, _count(self._said.get("_n_gpu"))), told is not None

    def _number(self, name: str) -> float:
        return self._as_number(name, self._said[name])

    def _as_number(self, name: str, value: Any) -> float:
        """Turn a value into a number; it may be text, since YAML reads 2e-4 as text."""
        try:
            number = math.nan if isinstance(value, bool) else float(value)
        except (TypeError, ValueError, OverflowError):
            number = math.nan
        if not math.isfinite(number):
            shown = repr(value)[:LONGEST_SHOWN]
            raise ConfigError(f"{self._written.path}: {name}={shown} is not a number. Correct the file.")
        return number


def _logged_rates(state: Mapping[str, Any]) -> dict[int, float]:
    lines = state.get("log_history")
    pairs: list[tuple[Any, Any]] = [
        (line.get("step"), line.get("learning_rate"))
        for line in (lines if isinstance(lines, list) else [])
        if isinstance(line, dict)
    ]
    return {step: float(rate) for step, rate in pairs if type(step) is int and is_number(rate)}


def _fall(rates: Mapping[int, float], state: Mapping[str, Any]) -> str:
    """Return the schedule that is nearest to the logged rates, from the highest rate on."""
    steps, peak = state.get("max_steps"), max(rates.values())
    first = max(step for step, rate in rates.items() if rate == peak)
    total = max(steps if isinstance(steps, int) else 0, *rates) - first + 1

    def miss(name: Any) -> float:
        shape = FineTuneSettings(learning_rate=peak, schedule=name)
        return sum((shape.rate_at(step - first, total) - rate) ** 2 for step, rate in rates.items() if step >= first)

    return min(("constant", "linear", "cosine"), key=miss)


def _count(value: Any) -> int:
    return int(value) if is_number(value) else 1
