"""Trainers' ways of reading rows: the texts they join, the tokens they learn."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Literal, NamedTuple, get_args

from airrep.corpus.schemas.conversations import Message, Pair, chat_of_pair
from airrep.corpus.schemas.values import MARKS, is_learnt
from airrep.errors import ConfigError, near

TrainerName = Literal["trl", "axolotl", "llamafactory", "ms-swift", "open-instruct"]
"""Trainers whose reading is known (docs/trainers.md)."""

JOINED: Mapping[str, Any] = MappingProxyType({"form": "joined"})
"""Chat of a prompt and completion that trl reads: one text, without a chat template, closed by the end of text."""
BARE: Mapping[str, Any] = MappingProxyType({"form": "bare"})
"""Chat of a text that has its own beginning and end; nothing is added."""


class Trainer(NamedTuple):
    """A trainer's way of reading rows, as far as trainers differ."""

    between: str = "\n\n"
    """Text between an instruction and its input."""
    preamble: tuple[str, str, str] | None = None
    """Text before an instruction that has an input, before one that has none, and behind; None: a chat template."""
    turns: Literal["last", "all"] = "last"
    """Turns of a conversation that are examples by default."""
    whole: bool = False
    """True if the trainer learns all tokens of a list of messages, not the answers alone."""
    marks: tuple[str, ...] = MARKS
    """Marks of turns that it heeds."""
    bare: bool = False
    """True if the trainer learns an answer's words and the end of its turn, but nothing else of the template."""
    max_tokens: int | None = None
    """Longest row in tokens, where nobody says it; None: as long as the LM reads."""
    cut: Literal["prompt", "end", "shares", "drop"] = "prompt"
    """Part to cut of a longer row: the front of its prompt, the end, or the ends of prompt and answer by their
    lengths; or the whole row."""

    def asked(self, instruction: object, extra: str | None, response: object) -> Pair:
        """The pair of an instruction, which may have an input, and its response."""
        text = instruction if extra is None else f"{instruction}{self.between}{extra}"
        if self.preamble is None:
            return Pair(text, response)
        with_input, without, behind = self.preamble
        prompt = f"{without if extra is None else with_input}{text}{behind}"
        return Pair(text, response, chat={**JOINED, "prompt": prompt})

    def heeding(self, message: Message) -> Message:
        """A message that is learnt or not as the marks say that this trainer heeds."""
        given = message.given or {}
        of_parts = ("content",) if "train" in self.marks else ()
        marked = {name: given[name] for name in (*self.marks, *of_parts) if name in given}
        return message if message.learnt else message._replace(learnt=is_learnt(0, marked))

    def of_messages(self, pair: Pair) -> Pair:
        """A pair of a list of messages, of which all may be learnt."""
        return pair if not self.whole else pair._replace(chat={**chat_of_pair(pair), "learn": "all"})

    def marked(self, pair: Pair) -> Pair:
        """A pair that a chat template is for, with where its learnt part ends."""
        if not self.bare or not pair.prompt:
            return pair
        chat = chat_of_pair(pair)
        return pair if "form" in chat else pair._replace(chat={**chat, "learn": "words"})


DEFAULT = Trainer()
"""The way of reading if no trainer is named."""
_TASK = "Below is an instruction that describes a task"
_ANSWER = "Write a response that appropriately completes the request.\n\n### Instruction:\n"
_ALPACA = (
    f"{_TASK}, paired with an input that provides further context. {_ANSWER}",
    f"{_TASK}. {_ANSWER}",
    "\n\n### Response:\n",
)
"""The form that Alpaca was trained with."""
TRAINERS: Mapping[TrainerName, Trainer] = MappingProxyType(
    {
        "trl": Trainer(marks=(), whole=True, max_tokens=1024, cut="end"),
        "axolotl": Trainer("\n\n### Input:\n", _ALPACA, turns="all", bare=True, cut="drop"),
        "llamafactory": Trainer("\n", turns="all", marks=(), max_tokens=2048, cut="shares"),
        "ms-swift": Trainer("\n", turns="all", marks=("loss", "loss_scale"), cut="drop"),
        "open-instruct": Trainer(turns="all", marks=(), cut="end"),
    }
)


def trainer_of(name: str | None) -> Trainer:
    """Find a trainer's way of reading by its name; the default for None (ConfigError: unknown name)."""
    if name is None:
        return DEFAULT
    if name not in (known := get_args(TrainerName)):
        raise ConfigError(f"trained_with {name!r}: expected {', '.join(known)}. {near(name, known)}")
    return TRAINERS[name]  # type: ignore[index]
