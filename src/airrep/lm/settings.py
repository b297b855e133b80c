"""Settings of the target LM and of its fine-tuning."""

import math
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar, Literal, Self, TypeAlias

from pydantic import Field, field_validator, model_validator

from airrep.errors import UnknownSettingError, many
from airrep.lm.folders.forms import LmFiles, find_lm, meant, settled_name
from airrep.runtime.remote.hub import pinned
from airrep.runtime.settings import Settings

LossName: TypeAlias = Literal["sft", "dpo", "orpo", "kto", "weighted"]
"""Names of losses; ``sft`` is the cross-entropy of the response."""
_FIELD = re.compile(r"\{prompt\}|\{response\}")


class LmReading(Settings):
    """Settings of how a target LM reads examples."""

    base: str | None = Field(default=None, min_length=1)
    """The LM under the adapters: a folder or a Hub id. None takes the one that the adapters name."""
    merged: bool | None = None
    """Merge adapters into their base; false leaves them out. None merges them, but commands that want the LM before
    fine-tuning, such as `airrep index`, leave them out and refuse a folder that a trainer wrote. true takes any LM as
    it is, fine-tuned or not."""
    max_tokens: int | None = Field(default=None, ge=8)
    """Longest example, in tokens; airrep cuts longer ones. None takes the LM's positions, at most 2048."""
    cut: Literal["prompt", "end", "shares", "drop"] | None = None
    """Shortens an example that is too long. None or 'prompt' cuts the front of its prompt, never its response.
    'end' cuts the end, as trl does, and refuses an example that has no response left. 'shares' cuts the ends of prompt
    and response, or of the longer one, by their lengths, as LLaMA-Factory does. 'drop' refuses the example."""
    template: str | None = None
    """Turns an example into text. With None, a text, and a prompt with a completion, stay as they are; other rows use
    the LM's chat template, or plain text if the LM has none. 'chat' uses the chat template for all rows with a prompt;
    'plain' uses plain text. Or give a text with {prompt} and {response}."""
    batch_tokens: int | None = Field(default=None, ge=1)
    """Tokens in one packed micro-batch; fewer need less memory. None takes a number that suits the device."""
    memory: str | None = None
    """Most memory of the process that reads the LM, such as 8GB. airrep works in smaller parts to fit, and stops at
    once if even these do not fit. Not for fine-tuning."""


class LmSettings(LmReading):
    """The target LM, and how it reads and computes."""

    added: ClassVar[tuple[str, ...]] = ("base", "merged", "cut", "memory", "loss", "beta")

    lm: str = Field(min_length=1)
    """The target LM: a folder, or owner/name on the Hub. The folder holds a Hugging Face causal LM, adapters that peft
    wrote, or a trainer's checkpoints, of which airrep takes the last."""
    loss: LossName = "sft"
    """Loss of the fine-tune. sft is the loss of responses. dpo and orpo need pairs, read with --preferences pairs. kto
    needs answers labelled true or false. weighted is sft times an advantage or reward, which may be negative."""
    beta: float = Field(default=0.1, gt=0, allow_inf_nan=False)
    """β of dpo, orpo and kto: how much a preference counts."""
    precision: Literal["auto", "float32", "bfloat16"] = "auto"
    """auto, float32 or bfloat16, for matrix products; weights stay float32. auto takes bfloat16 on CUDA devices that
    have it."""
    device: str = "auto"
    """auto, cpu, cuda or cuda:N."""
    checkpointing: bool = False
    """Recompute activations in the backward pass. This is a third slower and needs much less memory."""
    trust_remote_code: bool = False
    """Run the program code that some models bring. Without this, airrep refuses such models. Read the code first."""

    @classmethod
    def named(cls, lm: "Self | Mapping[str, Any] | str | Path") -> Self:
        """Return the settings of an LM, given as a folder, a Hub id, a mapping or settings; raises as :meth:`of`."""
        return cls.of({"lm": str(lm)}) if isinstance(lm, str | Path) else cls.given(lm)

    def before(self) -> Self:
        """Settings of the LM before its fine-tuning; see :func:`airrep.lm.folders.forms.meant`."""
        merged = meant(self.lm, self.merged, self.base, self.trust_remote_code)
        return self if merged == self.merged else self.model_copy(update={"merged": merged})

    def find(self) -> LmFiles:
        """The files of the LM; see :func:`airrep.lm.folders.forms.find_lm`."""
        return find_lm(self.lm, self.trust_remote_code, self.base, self.merged)

    @field_validator("memory")
    @classmethod
    def _amount(cls, memory: str | None) -> str | None:
        if memory is not None and memory_bytes(memory) is None:
            raise ValueError("the amount of memory must be a number with MB or GB, such as 8GB")
        return memory

    @field_validator("base")
    @classmethod
    def _whole_base(cls, base: str | None) -> str | None:
        return base if base is None else str(Path(base).resolve()) if Path(base).is_dir() else pinned(base)

    @field_validator("template")
    @classmethod
    def _both_fields(cls, template: str | None) -> str | None:
        """Check that a template of one's own holds {prompt} and then {response}, once each."""
        if template not in (None, "chat", "plain") and _FIELD.findall(str(template)) != ["{prompt}", "{response}"]:
            raise ValueError(
                "the template must be None, 'chat', 'plain', or a text with {prompt} and then {response}, once each"
            )
        return template

    # an absolute path, so that workers elsewhere find it
    _settled = field_validator("lm")(settled_name)


def memory_bytes(amount: str) -> int | None:
    """Bytes of an amount such as 8GB or 500 MiB; None for any other text."""
    found = re.fullmatch(r"(\d{1,6}(?:\.\d+)?) ?([MG])(i?)B", amount)
    if found is None:
        return None
    step, power = 1024 if found[3] else 1000, 2 if found[2] == "M" else 3
    return int(float(found[1]) * step**power) or None


def split_lm_settings(values: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Split one mapping into settings of the LM, without its name, and settings of the fine-tuning."""
    reading, tuning = (set(kind.model_fields) - {"lm"} for kind in (LmSettings, FineTuneSettings))
    unknown = next((name for name in values if name not in reading | tuning), None)
    if unknown is not None:
        raise UnknownSettingError("settings", unknown, reading | tuning)
    first, second = ({name: value for name, value in values.items() if name in kind} for kind in (reading, tuning))
    return first, second


class FineTuneSettings(Settings):
    """Settings of the target LM's fine-tune; the defaults are the paper's where it names a value."""

    added: ClassVar[tuple[str, ...]] = ("warmup_ratio",)

    epochs: int = Field(default=2, ge=1)
    """Passes over the training examples, each in its own order."""
    batch_examples: int = Field(default=32, ge=1)
    """Examples in one optimizer step; the last step of an epoch may have fewer."""
    learning_rate: float = Field(default=2e-5, gt=0, allow_inf_nan=False)
    """AdamW's learning rate (after warm-up)."""
    weight_decay: float = Field(default=0.01, ge=0, allow_inf_nan=False)
    """AdamW's decoupled weight decay, for all weights."""
    betas: tuple[float, float] = (0.9, 0.999)
    """AdamW's decay rates of the first and second moment."""
    epsilon: float = Field(default=1e-8, gt=0, allow_inf_nan=False)
    """AdamW's constant in the denominator."""
    schedule: Literal["constant", "linear", "cosine"] = "constant"
    """Learning rate after warm-up: constant, or falling to 0 after the last step (linear, or half a cosine)."""
    warmup_steps: int = Field(default=0, ge=0)
    """Steps over which the learning rate rises from 0."""
    warmup_ratio: float = Field(default=0.0, ge=0, lt=1)
    """Share of all steps over which the learning rate rises from 0, rounded down; used if warmup_steps is 0."""
    clip: float | None = Field(default=1.0, gt=0)
    """Largest gradient norm; longer gradients are scaled down to it. None sets no limit."""
    lora_rank: int | None = Field(default=None, ge=1)
    """Rank of LoRA adapters, small matrices trained in place of the weights (extra peft). None trains all weights."""
    lora_alpha: float = Field(default=32.0, gt=0, allow_inf_nan=False)
    """Scale of LoRA adapters, which are multiplied by alpha / rank."""
    lora_targets: tuple[str, ...] | None = None
    """Names of the linear maps that get adapters; None adapts all but the output layer."""

    @model_validator(mode="after")
    def _betas_hold(self) -> Self:
        if not all(0 <= beta < 1 for beta in self.betas):
            raise ValueError(f"betas={self.betas}: both numbers must be at least 0 and less than 1")
        return self

    def steps(self, count: int) -> int:
        """Return the number of optimizer steps of a fine-tune on *count* examples."""
        return self.epochs * math.ceil(count / self.batch_examples)

    def rate_at(self, step: int, steps: int) -> float:
        """Return the learning rate of a *step*, counted from 0, of a fine-tune with *steps* steps."""
        rising = self.warmup_steps or int(self.warmup_ratio * steps)
        if step < rising:
            return self.learning_rate * step / rising
        if self.schedule == "constant":
            return self.learning_rate
        left = (steps - step) / max(1, steps - rising)
        return self.learning_rate * (left if self.schedule == "linear" else (1 - math.cos(math.pi * left)) / 2)

    @property
    def summary(self) -> str:
        """The fine-tune in one line: its rate, length, batch, schedule and weights."""
        rising = many(self.warmup_steps, "step") if self.warmup_steps else f"{self.warmup_ratio:.2g} of the steps"
        parts = [
            f"learning_rate {self.learning_rate:.3g}",
            f"{many(self.epochs, 'epoch')}",
            f"batch {self.batch_examples}",
            self.schedule + (f" after a warm-up of {rising}" if self.warmup_steps or self.warmup_ratio else ""),
            "all weights" if self.lora_rank is None else f"LoRA r {self.lora_rank}, alpha {self.lora_alpha:.3g}",
        ]
        return ", ".join([*parts, *([] if self.lora_targets is None else [f"of {', '.join(self.lora_targets)}"])])
