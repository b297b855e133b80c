"""Apply the chat template to an example: tokens as the target LM reads them."""

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from airrep.corpus.corpus import Example
from airrep.corpus.schemas.conversations import RENDERING, chat_message, chat_of, holds_turns
from airrep.errors import ConfigError, DataError
from airrep.lm.documents import Documents
from airrep.lm.folders.forms import short
from airrep.lm.templates.limits import LimitError, limited

PLAIN = "Question: {prompt}\nAnswer: {response}"
"""Text of an example for an LM without a chat template; the end-of-text token follows it."""

_TODAY = "01 Jan 2025"  # some templates write the date, and losses must be the same tomorrow
_CLOCK = "{%- macro strftime_now(form) -%}" + _TODAY + "{%- endmacro -%}"
_MARK = "airrep9f2c1dresponse"
_CHUNK, _PLACED = 1024, 64
"""Examples that are tokenised together; those whose places are told are fewer, as a place takes more than a token."""
_SECONDS, _MEMORY = 5.0, 2**29
"""Limits of one use of a chat template: seconds, and bytes beyond what the process has."""
_LONGEST = 2**20
"""Characters that a template may add to a text, beside eight times its length."""
_LONGEST_TEMPLATE = 2**20
"""Characters of a template; those of today's models have some thousands."""
_FORMS = 256
"""Forms of conversations of which is kept whether the template takes them; a data set has a handful."""

Form: TypeAlias = tuple[tuple[str, bool], ...]
"""The role of each message, and whether it has content: some templates refuse an empty one."""


class Rendered(NamedTuple):
    """Text up to the response, and the response with what ends it."""

    prompt: str
    response: str


class ResponsePlaces(NamedTuple):
    """Where the tokens of a document's response stand in the example's response."""

    starts: np.ndarray
    """``(t,)`` int64: first character of each; of what comes behind the response, its number of characters."""
    stops: np.ndarray
    """``(t,)`` int64: the character after its last."""


class Chat:
    """Renders and tokenises examples for one LM.

    An example without a prompt is plain text: its tokens and the end-of-text token, after the begin-of-text token or
    what stands for it, without any template.

    Args:
        tokenizer: a tokenizer of transformers.
        name: the LM's name, for errors.
        max_tokens: longest document.
        vocabulary: number of tokens that the LM has embeddings for.
        template: None, ``"plain"``, or a text with ``{prompt}`` and ``{response}``; see :class:`LmSettings`.
    """

    def __init__(self, tokenizer: Any, name: str, max_tokens: int, vocabulary: int, template: str | None) -> None:
        self.tokenizer = tokenizer
        self.name = name
        self.max_tokens = max_tokens
        self.vocabulary = vocabulary
        self.plain = _plain_template(tokenizer, template)
        self._template = _chat_template(tokenizer, name) if self.plain is None else None
        self._begin = _begin(tokenizer) if self.plain is not None else []
        ends = [tokenizer.eos_token_id] if tokenizer.eos_token_id is not None else []
        self._end = ends if self.plain is not None else []
        self._around_text = ([tokenizer.bos_token_id] if tokenizer.bos_token_id is not None else ends, ends)
        self._check_known([self._begin + self._end, *self._around_text])
        self._taken: dict[Form, bool] = {}

    def prompt_text(self, prompt: str) -> str:
        """Text that the LM reads before it answers; none without a prompt."""
        if not prompt.strip():
            return ""
        if self.plain is None:
            return self._chat(self._asked(prompt), add_generation_prompt=True)
        return self.plain[0].replace("{prompt}", prompt)

    def render(self, example: Example) -> Rendered:
        """Text of an example, in two parts; refuses an empty response, and one that the chat template leaves out."""
        if not example.response.strip():
            raise DataError(f'example "{example.id}": its response is empty; expected text. Leave the example out.')
        if not example.prompt.strip():
            return Rendered("", example.response)
        if self.plain is not None:
            head, before, after = self.plain
            return Rendered(head.replace("{prompt}", example.prompt), before + example.response + after)
        return self._render_chat(example)

    def _render_chat(self, example: Example) -> Rendered:
        """Response = what the full text has beyond the prompt; by a marked response where the two do not fit."""
        asked = self._asked(example.prompt)
        prompt = self._chat(asked, add_generation_prompt=True)
        full = self._chat([*asked, chat_message("assistant", example.response)])
        if full.startswith(prompt) and example.response.strip() in full[len(prompt) :]:
            return Rendered(prompt, full[len(prompt) :])
        head, mark, tail = self._chat([*asked, chat_message("assistant", _MARK)]).rpartition(_MARK)
        if not mark:
            raise DataError(
                f'example "{example.id}": the chat template of {self.name} leaves its response out, so there is '
                "nothing to learn. Use template=plain."
            )
        return Rendered(head, example.response + tail)

    def _asked(self, prompt: str) -> list[dict[str, str]]:
        """The messages of a prompt; one of the user's, if the template does not take messages of such roles."""
        messages = chat_of(prompt)
        form = tuple((message["role"], bool(message["content"].strip())) for message in messages)
        if len(form) == 1 and form[0][0] == "user":
            return messages
        return messages if self._are_taken(shortest(form)) else [chat_message("user", prompt)]

    def reads_messages(self, prompt: str) -> bool:
        """Whether the LM reads a prompt as the messages that it is made of, not as one text of the user's."""
        return self.plain is None and holds_turns(prompt) and self._asked(prompt) != [chat_message("user", prompt)]

    def rendering(self, prompts: Iterable[str]) -> dict[str, str]:
        """How some of the prompts are read, where the LM's fingerprint does not tell it: as messages; else empty.

        Until prompts of several messages were given to chat templates as messages, they were one text of the user's.
        The fingerprint is the same since, so that all that was made of other prompts is found again; this tells it.
        """
        return {RENDERING: "messages"} if self.plain is None and any(map(self.reads_messages, prompts)) else {}

    def _are_taken(self, form: Form) -> bool:
        """Whether the template takes messages of this form; tried once."""
        if form not in self._taken:
            if len(self._taken) >= _FORMS:
                self._taken.clear()
            self._taken[form] = self._takes(form)
        return self._taken[form]

    def _takes(self, form: Form) -> bool:
        """Whether the template writes messages of this form, all of them, with an answer behind them and without."""
        marks = [f"{_MARK}{number}." if content else "" for number, (_, content) in enumerate(form)]
        asked = [chat_message(role, mark) for (role, _), mark in zip(form, marks, strict=True)]
        if form[-1][0] not in ("user", "tool"):
            return False
        try:
            before = self._chat(asked, add_generation_prompt=True)
            whole = self._chat([*asked, chat_message("assistant", _MARK)])
        except ConfigError:  # many refuse a system prompt, tools, or two messages of one role in a row
            return False
        # Some write the system prompt into the last message alone, and only if that is the user's.
        return all(mark in before and mark in whole for mark in marks)

    def _chat(self, messages: list[dict[str, str]], *, add_generation_prompt: bool = False) -> str:
        """Fill in the chat template, within limits; a template that asks for the date always gets the same."""
        try:
            with limited(_SECONDS, _MEMORY):
                text: str = self.tokenizer.apply_chat_template(
                    messages,
                    chat_template=self._template,
                    tokenize=False,
                    add_generation_prompt=add_generation_prompt,
                    date_string=_TODAY,
                )
        except LimitError as error:
            raise ConfigError(f"lm {self.name}: its chat template {error}. Use template=plain.") from error
        except Exception as error:  # a template is a program
            reason = short(" ".join(str(error).split()) or type(error).__name__)
            raise ConfigError(f"lm {self.name}: its chat template fails: {reason}. Use template=plain.") from error
        if not isinstance(text, str) or len(text) > _LONGEST + 8 * sum(len(part["content"]) for part in messages):
            raise ConfigError(
                f"lm {self.name}: its chat template makes {len(text):,} characters of a short text. Use template=plain."
            )
        return text

    def tokenise(self, examples: Sequence[Example]) -> Documents:
        """Token ids of each example: prompt, cut at its front to fit, then response."""
        documents: list[tuple[list[int], int]] = []
        for first in range(0, len(examples), _CHUNK):
            chunk = examples[first : first + _CHUNK]
            texts = [self.render(example) for example in chunk]
            prompts = self._ids([text.prompt for text in texts])
            wholes = self._ids([text.prompt + text.response for text in texts])
            documents += map(self._document, chunk, texts, prompts, wholes)
        return Documents.of(documents)

    def tokenise_with_places(self, examples: Sequence[Example]) -> tuple[Documents, list[ResponsePlaces]]:
        """What :meth:`tokenise` gives, and where each response token stands, in characters of the response.

        Raises:
            ConfigError: the tokenizer knows no places.
            DataError: a response is empty, or too long by itself.
        """
        if not getattr(self.tokenizer, "is_fast", False):
            raise ConfigError(
                f"lm {self.name}: its tokenizer does not tell where tokens stand. Save it with a tokenizer.json."
            )
        documents: list[tuple[list[int], int]] = []
        places: list[ResponsePlaces] = []
        for first in range(0, len(examples), _PLACED):
            chunk = examples[first : first + _PLACED]
            texts = [self.render(example) for example in chunk]
            prompts = self._ids([text.prompt for text in texts])
            wholes = self._encoded([text.prompt + text.response for text in texts])
            found = list(map(self._document, chunk, texts, prompts, wholes["input_ids"]))
            lengths = [len(ids) - start for ids, start in found]
            places += map(self._places, chunk, texts, prompts, wholes["input_ids"], wholes["offset_mapping"], lengths)
            documents += found
        return Documents.of(documents), places

    def _places(
        self,
        example: Example,
        text: Rendered,
        prompt: list[int],
        whole: list[int],
        offsets: list[tuple[int, int]],
        length: int,
    ) -> ResponsePlaces:
        """Places of the *length* response tokens, in characters of the response."""
        base = len(text.prompt)
        if whole[: len(prompt)] != prompt:
            offsets, base, prompt = self._encoded([text.response])["offset_mapping"][0], 0, []
        # a template may leave out the spaces around a response
        seen = example.response if example.response in text.response else example.response.strip()
        before, most = example.response.find(seen), len(example.response)
        base += text.response.find(seen) - before
        places = np.array(offsets[len(prompt) :], np.int64).reshape(-1, 2) - base
        places = np.where(places >= before + len(seen), most, np.clip(places, 0, most))
        ends = np.full((max(0, length - len(places)), 2), most)
        starts, stops = np.concatenate([places, ends])[-length:].T
        return ResponsePlaces(starts, stops)

    def _encoded(self, texts: list[str]) -> Any:
        """Ids of texts, and the places of each."""
        found = self.tokenizer(
            texts,
            add_special_tokens=False,
            return_attention_mask=False,
            return_offsets_mapping=True,
            verbose=False,
        )
        self._check_known(found["input_ids"])
        return found

    def prompt_ids(self, prompts: Sequence[str], room: int) -> list[list[int]]:
        """Token ids of each :meth:`prompt_text`, cut at the front to at most *room* tokens."""
        found = self._ids([self.prompt_text(prompt) for prompt in prompts])
        begins = [self._begin if prompt.strip() else self._around_text[0] for prompt in prompts]
        return [self._fit(begin + ids, room) for begin, ids in zip(begins, found, strict=True)]

    def _ids(self, texts: list[str]) -> list[list[int]]:
        encoded = self.tokenizer(texts, add_special_tokens=False, return_attention_mask=False, verbose=False)
        found: list[list[int]] = encoded["input_ids"]
        self._check_known(found)
        return found

    def _check_known(self, found: list[list[int]]) -> None:
        """Refuse tokens that the LM has no embedding for."""
        largest = max((max(ids, default=0) for ids in found), default=0)
        if largest >= self.vocabulary:
            raise ConfigError(
                f"lm {self.name}: its tokenizer has a token number {largest}, its embeddings are for "
                f"{self.vocabulary} only. Use the tokenizer that the LM was trained with."
            )

    def _document(self, example: Example, text: Rendered, prompt: list[int], whole: list[int]) -> tuple[list[int], int]:
        """Join prompt and response; the prompt's tokens are those that generation sees."""
        begin, end = (self._begin, self._end) if example.prompt.strip() else self._around_text
        starts_so = whole[: len(prompt)] == prompt  # unless a token joins the prompt's end with the response
        response = (whole[len(prompt) :] if starts_so else self._ids([text.response])[0]) + end
        most = self.max_tokens - max(1, len(begin))
        if not 0 < len(response) <= most:
            raise DataError(
                f'example "{example.id}": its response has {len(response)} tokens; expected 1 to {most}, since one '
                f"token must come before it (max_tokens is {self.max_tokens}). Raise max_tokens if the LM reads more, "
                "shorten the response, or leave the example out."
            )
        head = self._fit(begin + prompt, self.max_tokens - len(response))
        if not head:  # a tokenizer without tokens for begin and end: its first token is read, not learnt
            head, response = response[:1], response[1:]
        if not response:
            raise DataError(f'example "{example.id}": nothing comes before its response. Give it a prompt.')
        return head + response, len(head)

    def _fit(self, ids: list[int], room: int) -> list[int]:
        """Cut tokens out at the front, behind the begin-of-text token."""
        over = len(ids) - room
        first = self.tokenizer.bos_token_id
        kept = 1 if first is not None and ids[:1] == [first] and room > 1 else 0
        return ids if over <= 0 else ids[:kept] + ids[kept + over :]


def shortest(form: Form) -> Form:
    """The form of a shorter conversation that a template takes if it takes this one: without rounds that are repeated.

    What a template refuses or leaves out depends on which message is the first and the last and which follows which
    (two of the user's, a system prompt that is not in front), not on how many there are. So a round back to the same
    kind of message goes if each of its steps was seen before it, and chats of any length are tried as one.

    Example:
        >>> talk = (("user", True), ("assistant", True))
        >>> [role for role, _ in shortest(talk * 200 + talk[:1])]
        ['user', 'assistant', 'user']
    """
    kept: list[tuple[str, bool]] = []
    for one in form:
        kept.append(one)
        start = max((place for place in range(len(kept) - 1) if kept[place] == one), default=len(kept) - 1)
        if set(pairwise(kept[start:])) <= set(pairwise(kept[: start + 1])):
            del kept[start + 1 :]
    return tuple(kept)


def _plain_template(tokenizer: Any, template: str | None) -> tuple[str, str, str] | None:
    """Text with {prompt}, text before the response, text after it; None if the chat template is used.

    Spaces before the response belong to it, since tokenizers join them with the first word.
    """
    if template is None and tokenizer.chat_template is not None:
        return None
    text = PLAIN if template in (None, "plain") else template
    head, _, after = text.partition("{response}")
    return head.rstrip(" "), head[len(head.rstrip(" ")) :], after


def _begin(tokenizer: Any) -> list[int]:
    """The begin-of-text token, if the tokenizer puts one before a text."""
    first = tokenizer.bos_token_id
    return [first] if first is not None and tokenizer("a")["input_ids"][:1] == [first] else []


def _chat_template(tokenizer: Any, name: str) -> str:
    """The chat template, which gets the same date every day."""
    try:
        template: str = tokenizer.get_chat_template()
    except ValueError as error:
        raise ConfigError(f"lm {name}: has chat templates, but none named default. Use template=plain.") from error
    if not isinstance(template, str) or len(template) > _LONGEST_TEMPLATE or _takes_powers(template):
        raise ConfigError(
            f"lm {name}: its chat template is no text, has over {_LONGEST_TEMPLATE:,} characters, or takes powers of "
            "numbers, which no chat needs. Use template=plain."
        )
    return f"{_CLOCK}{template}" if "strftime_now" in template else template


def _takes_powers(template: str) -> bool:
    """Whether a template has the operator ``**``: a single step that can take hours, which no limit breaks off."""
    from jinja2 import Environment, TemplateError

    if "**" not in template:
        return False
    try:
        tokens = [value for _, kind, value in Environment(autoescape=True).lex(template) if kind != "whitespace"]
    except TemplateError:  # told when it is used
        return False
    return any(two == "**" and one not in ("(", ",") for one, two in pairwise(tokens))  # after those, it unpacks
