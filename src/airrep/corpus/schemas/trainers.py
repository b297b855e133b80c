"""How each supported trainer reads rows: the texts joined, the tokens learned."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Literal, NamedTuple, get_args

from airrep.corpus.schemas.conversations import Message, Pair, chat_of_pair
from airrep.corpus.schemas.values import MARKS, is_learnt
from airrep.errors import ConfigError, near

TrainerName = Literal["trl", "axolotl", "llamafactory", "ms-swift", "open-instruct"]
"""Supported trainers (docs/trainers.md)."""

JOINED: Mapping[str, Any] = MappingProxyType({"form": "joined"})
"""Chat of prompt and completion in trl: one text without a chat template, closed by the end-of-text token."""
BARE: Mapping[str, Any] = MappingProxyType({"form": "bare"})
"""Chat of a text that is used unchanged: no template, no end-of-text token."""


class Trainer(NamedTuple):
    """Differences between trainers in how they read rows."""

    between: str = "\n\n"
    """Text between an instruction and its input."""
    preamble: tuple[str, str, str] | None = None
    """Texts before an instruction with an input, before one without, and after either; None uses a chat template."""
    turns: Literal["last", "all"] = "last"
    """Turns of a conversation that become examples by default."""
    whole: bool = False
    """True if the trainer learns all tokens of a list of messages, not only the answers."""
    literal: bool = False
    """True if the trainer reads no ``system`` or ``history`` beside its own fields, and finds no speakers in texts."""
    marks: tuple[str, ...] = MARKS
    """Keys of a message, such as ``weight``, by which this trainer excludes the message from training."""
    bare: bool = False
    """True if the trainer learns an answer's words and the end of its turn, but no other token of the template."""
    max_tokens: int | None = None
    """Default length limit of a row, in tokens; None: the LM's own limit."""
    cut: Literal["prompt", "end", "shares", "drop"] = "prompt"
    """How a longer row is cut: at the front of its "prompt", at its "end", at the ends of prompt and answer in
    proportion to their lengths ("shares"); or the row is left out ("drop")."""

    def asked(self, instruction: object, extra: str | None, response: object) -> Pair:
        """Return the pair of an instruction, with its input *extra* if any, and a response."""
        text = instruction if extra is None else f"{instruction}{self.between}{extra}"
        if self.preamble is None:
            return Pair(text, response)
        with_input, without, behind = self.preamble
        prompt = f"{without if extra is None else with_input}{text}{behind}"
        return Pair(text, response, chat={**JOINED, "prompt": prompt})

    def heeding(self, message: Message) -> Message:
        """Return a message with ``learnt`` set by this trainer's own marks only."""
        given = message.given or {}
        of_parts = ("content",) if "train" in self.marks else ()
        marked = {name: given[name] for name in (*self.marks, *of_parts) if name in given}
        return message if message.learnt else message._replace(learnt=is_learnt(0, marked))

    def of_messages(self, pair: Pair) -> Pair:
        """Mark all messages of a pair as learnt if the trainer learns whole conversations."""
        if not self.whole or "form" in (chat := chat_of_pair(pair)):
            return pair
        return pair._replace(chat={**chat, "learn": "all"})

    def marked(self, pair: Pair) -> Pair:
        """Mark a pair with a chat template as learnt in its words only, if the trainer does so (``bare``)."""
        if not self.bare or not pair.prompt:
            return pair
        chat = chat_of_pair(pair)
        return pair if "form" in chat else pair._replace(chat={**chat, "learn": "words"})


DEFAULT = Trainer()
"""The settings if no trainer is named."""
_TASK = "Below is an instruction that describes a task"
_ANSWER = "Write a response that appropriately completes the request.\n\n### Instruction:\n"
_ALPACA = (
    f"{_TASK}, paired with an input that provides further context. {_ANSWER}",
    f"{_TASK}. {_ANSWER}",
    "\n\n### Response:\n",
)
"""The prompt format that Alpaca was trained with."""
TRAINERS: Mapping[TrainerName, Trainer] = MappingProxyType(
    {
        "trl": Trainer(marks=(), whole=True, literal=True, max_tokens=1024, cut="end"),
        "axolotl": Trainer("\n\n### Input:\n", _ALPACA, turns="all", bare=True, cut="drop"),
        "llamafactory": Trainer("\n", turns="all", marks=(), max_tokens=2048, cut="shares"),
        "ms-swift": Trainer("\n", turns="all", marks=("loss", "loss_scale"), cut="drop"),
        "open-instruct": Trainer(turns="all", marks=(), cut="end"),
    }
)


def trainer_of(name: str | None) -> Trainer:
    """Return the settings of a trainer by its name, :data:`DEFAULT` for None; ConfigError for an unknown name."""
    if name is None:
        return DEFAULT
    if name not in (known := get_args(TrainerName)):
        raise ConfigError(f"trained_with {name!r}: expected {', '.join(known)}. {near(name, known)}")
    return TRAINERS[name]  # type: ignore[index]
