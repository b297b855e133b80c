"""Render and tokenise examples as the target LM's trainer does."""

import ctypes
import os
import sys
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import pairwise
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from airrep.corpus.corpus import Example, have_spans
from airrep.corpus.schemas.conversations import MESSAGES, RENDERING, chat_message, chat_of, holds_turns
from airrep.corpus.schemas.values import role_of
from airrep.corpus.spans import shares
from airrep.errors import AirRepError, ConfigError, DataError
from airrep.lm.documents import Documents
from airrep.lm.folders.forms import short

PLAIN = "Question: {prompt}\nAnswer: {response}"
"""Text of an example for an LM without a chat template; the end-of-text token follows it."""

_DATE = {"%d": "01", "%-d": "1", "%b": "Jan", "%B": "January", "%m": "01", "%-m": "1", "%Y": "2025", "%y": "25"}
_DATE |= {"%a": "Wed", "%A": "Wednesday", "%j": "001", "%H": "00", "%M": "00", "%S": "00", "%F": "2025-01-01"}
_WRITTEN = "".join(f"|replace('{code}','{text}')" for code, text in _DATE.items())
_CLOCK = "{%- macro strftime_now(form) -%}{{ form" + _WRITTEN + " }}{%- endmacro -%}"
"""Jinja macro in place of ``strftime_now``: a template that writes today's date would change losses from day to day. A
Python function among the template's arguments would not work: transformers turns it into text."""
_MARK = "airrep9f2c1dresponse"
_OTHER = f"\ue000{_MARK}\ue001"
"""Stand-in for an answer; no real answer begins or ends with its characters."""
_CHUNK, _PLACED = 1024, 64
"""Examples per tokenizer call; fewer with character offsets, which take more memory than token ids."""
_TRIED = 256
"""Examples that :meth:`Chat.refused` tokenises together."""
_SECONDS, _MEMORY = 5.0, 2**29
"""Limits on rendering one conversation with a chat template: seconds, and bytes by which the process may grow."""
_LONGEST = 2**20
"""Most characters of a rendered conversation, beyond eight times those of its messages and template variables."""
_LONGEST_TEMPLATE = 2**20
"""Most characters of a chat template; those of current models have a few thousand."""
_FORMS = 256
"""Most forms of conversations for which a :class:`Chat` remembers if its template takes them."""

_OURS = (
    *("conversation", "chat_template", "add_generation_prompt", "continue_final_message", "tokenize", "padding"),
    *("truncation", "max_length", "return_tensors", "return_dict", "return_assistant_tokens_mask", "tokenizer_kwargs"),
    *("messages", "tools"),
)
"""Arguments of ``apply_chat_template`` that a record's ``chat_template_kwargs`` may not set."""

Form: TypeAlias = tuple[tuple[str, bool], ...]
"""Role of each message, and True if the message has content: some templates refuse empty messages."""


class Rendered(NamedTuple):
    """Texts of an example: *prompt* is read before the LM answers, *whole* in training."""

    prompt: str
    whole: str
    framed: bool = False
    """True if :class:`Chat` adds the begin- and end-of-text tokens; a chat template writes its own."""


class TokenPlaces(NamedTuple):
    """Half-open character ranges of a document's tokens in a text; empty for a token with no character of the text."""

    starts: np.ndarray
    """``(t,)`` int64: first character of each token."""
    stops: np.ndarray
    """``(t,)`` int64: the character after the last of each token."""


class _Laid(NamedTuple):
    """Token ids of an example, cut to fit; the first learnt one is ``ids[start]``, token *first* of the whole text."""

    ids: list[int]
    start: int
    first: int


class Chat:
    """Renders and tokenises examples for one LM, as its trainer does.

    The LM's chat template renders the messages of an example with and without the answer. All tokens from the first one
    in which the two texts differ are learnt, as in trl's ``SFTTrainer``, unless the example's chat sets ``learn`` to
    ``all`` (every token) or ``words`` (the answer and its end token). An example without a prompt, or of a ``form``
    that needs no template, is plain text. It gets a begin-of-text token, if the tokenizer adds one, and an end-of-text
    token, unless the text has its own; a text of form ``"bare"`` gets neither.

    A document longer than *max_tokens* is cut: *cut* is ``"prompt"`` (at the prompt's front), ``"end"``, or
    ``"shares"`` (at the ends of prompt and response); ``"drop"`` refuses it. For *template* see :class:`LmSettings`.
    """

    def __init__(
        self,
        tokenizer: Any,
        name: str,
        max_tokens: int,
        vocabulary: int,
        template: str | None,
        cut: str = "prompt",
        remedy: str = "",
    ) -> None:
        self.tokenizer = tokenizer
        self.name = name
        self.max_tokens = max_tokens
        self.vocabulary = vocabulary
        self.template = template
        self.cut = cut
        self._remedy = remedy
        self.plain = _plain_template(tokenizer, template)
        self._follows_form = template in (None, "plain")
        self._template = _chat_template(tokenizer, name) if self.plain is None else None
        self._begin = _begin(tokenizer)
        self._end = [] if tokenizer.eos_token_id is None else [tokenizer.eos_token_id]
        self._check_known([self._begin + self._end])
        self._taken: dict[Form, bool] = {}

    def render(self, example: Example) -> Rendered:
        """Return the texts of an example; DataError if its response is empty, or left out by the chat template."""
        if not example.response.strip():
            raise DataError(f'example "{example.id}": its response is empty. Leave the example out.')
        example = example.sides[0]
        chat = example.chat or {}
        if self._stands(example):
            prompt = str(chat.get("prompt", example.prompt))
            return Rendered(prompt, prompt + example.response, framed=self._form(example) != "bare")
        if self.plain is not None:
            prompt = self.plain[0].replace("{prompt}", example.prompt)
            return Rendered(prompt, prompt + self.plain[1] + example.response + self.plain[2], framed=True)
        return self._render_chat(example)

    def writes(self, example: Example) -> bool:
        """True if the LM's chat template renders an example."""
        return self.plain is None and not self._stands(example)

    def _form(self, example: Example) -> str | None:
        return (example.chat or {}).get("form") if self._follows_form else None

    def _stands(self, example: Example) -> bool:
        """True if an example's texts are read without any template."""
        asked = example.prompt.strip() or "messages" in (example.chat or {})
        return self._form(example) in ("joined", "bare") or not asked

    def refused(self, examples: Sequence[Example]) -> dict[int, str]:
        """Map the row of each example that :meth:`tokenise` refuses to the reason."""
        reasons: dict[int, str] = {}
        for first in range(0, len(examples), _TRIED):
            some = list(examples[first : first + _TRIED])  # tried one by one only if one of them is refused
            if self._reason(some) is not None:
                found = {first + row: self._reason([example]) for row, example in enumerate(some)}
                reasons |= {row: reason for row, reason in found.items() if reason is not None}
        return reasons

    def _reason(self, examples: Sequence[Example]) -> str | None:
        """Return why one of the examples cannot be tokenised; None if all can."""
        try:
            self.tokenise(examples)
        except DataError as error:
            return str(error)
        return None

    def _render_chat(self, example: Example) -> Rendered:
        messages, given = self._conversation(example)
        chat = example.chat or {}
        learn, asked = chat.get("learn"), messages[: chat.get("asked", -1)]
        try:
            prompt = "" if learn == "all" else self._chat(asked, given, add_generation_prompt=True)
            whole = self._chat(messages, given)
            if learn == "words":
                prompt, whole = self._up_to_words(messages, given, whole)
            if prompt == whole or (learn is None and self._is_left_out(messages, given, prompt, whole)):
                raise DataError(
                    f'example "{example.id}": the chat template of {self.name} does not write the response, so there '
                    "is nothing to learn. Use template=plain."
                )
        except ConfigError as error:
            raise self._refusal(example, messages, error) from error
        return Rendered(prompt, whole)

    def _up_to_words(self, messages: list[dict[str, Any]], given: Mapping[str, Any], whole: str) -> tuple[str, str]:
        """Return the text before an answer, and the text up to the end of the answer and its end-of-text token.

        The answer is the part of *whole* that differs when the conversation is rendered with another answer.
        """
        other = self._chat([*messages[:-1], chat_message("assistant", _OTHER)], given)
        start = _shared(other, whole)
        behind = _shared(other[start:][::-1], whole[start:][::-1])
        words, after = whole[: len(whole) - behind], whole[len(whole) - behind :]
        if len(words) == start:
            return words, words
        head, end, _ = after.partition(self.tokenizer.eos_token or _OTHER)
        return whole[:start], words + (head + end if end else "")

    def _refusal(self, example: Example, messages: list[dict[str, Any]], error: ConfigError) -> AirRepError:
        """Return the error for a template that fails: about this example if a plain question and answer work."""
        try:
            self._chat([chat_message("user", "a"), chat_message("assistant", "b")], {})
        except ConfigError:
            return error
        roles = ", ".join(dict.fromkeys(str(message["role"]) for message in messages))
        reason = str(error).partition(": its ")[2].removesuffix(" Use template=plain.") or str(error)
        return DataError(
            f'example "{example.id}": the LM cannot read its messages ({roles}): the {reason} Leave the example out, '
            "or use template=plain."
        )

    def _is_left_out(self, messages: list[dict[str, Any]], given: Mapping[str, Any], prompt: str, whole: str) -> bool:
        said = messages[-1].get("content")
        if not isinstance(said, str) or not said.strip():  # tool calls, or a list of parts
            return whole == self._chat([*messages[:-1], chat_message("assistant", "")], given)
        shared = _shared(prompt, whole)
        if said.strip() in whole[shared:]:
            return False
        marked = self._chat([*messages[:-1], {**messages[-1], "content": _MARK}], given)  # thoughts may be cut
        return _MARK not in marked

    def _conversation(self, example: Example) -> tuple[list[dict[str, Any]], dict[str, Any]]:
        """Return the messages of an example, its response last, and the template variables that its record sets."""
        answer = chat_message("assistant", example.response)
        if example.chat == MESSAGES:
            return [*chat_of(example.prompt), answer], {}
        if example.chat is None or "messages" not in example.chat:
            return [*self._asked(example.prompt), answer], {}
        messages: list[dict[str, Any]] = list(example.chat["messages"])
        given = dict(example.chat.get("template", {}))
        own = next((name for name in given if name in _OURS), None)
        if own is not None:
            raise DataError(
                f'example "{example.id}": its chat_template_kwargs set {own}, but may only set variables of the chat '
                f"template. Remove {own}."
            )
        if example.chat.get("tools"):
            given["tools"] = example.chat["tools"]
        return self._known_roles(example, messages, given), given

    def _known_roles(
        self, example: Example, messages: list[dict[str, Any]], given: Mapping[str, Any]
    ) -> list[dict[str, Any]]:
        """Return messages with roles that the template writes: as given, else with the roles' usual names."""
        usual = [{**one, "role": role_of("the role of a message", one["role"])[0]} for one in messages]
        odd = [place for place, one in enumerate(messages) if one["role"] != usual[place]["role"]]
        if not odd or self._writes(messages, odd, given):
            return messages
        if self._writes(usual, odd, given):
            return usual
        raise DataError(
            f'example "{example.id}": the chat template of {self.name} does not write messages with the role '
            f"'{messages[odd[0]]['role']}'. Rename the role to one that the template knows, leave the example out, or "
            "use template=plain."
        )

    def _writes(self, messages: list[dict[str, Any]], places: Sequence[int], given: Mapping[str, Any]) -> bool:
        """True if the template takes *messages* and writes the texts of the ones at *places*."""
        try:
            written = self._chat(messages, given)
        except ConfigError:
            return False
        texts = (messages[place].get("content") for place in places)
        return all(text.strip() in written for text in texts if isinstance(text, str))

    def _asked(self, prompt: str) -> list[dict[str, Any]]:
        """Split a text prompt into its messages; keep it as one user message if the template does not take them."""
        messages: list[dict[str, Any]] = list(chat_of(prompt))
        form = tuple((message["role"], bool(message["content"].strip())) for message in messages)
        if len(form) == 1 and form[0][0] == "user":
            return messages
        return messages if self._are_taken(shortest(form)) else [chat_message("user", prompt)]

    def reads_messages(self, example: Example) -> bool:
        """True if the LM reads an example's prompt as the messages in it, not as one user message."""
        if self.plain is not None or not holds_turns(example.prompt):
            return False
        chat = example.sides[0].chat
        if chat is not None:
            return "messages" in (*chat, chat.get("form"))
        return self._asked(example.prompt) != [chat_message("user", example.prompt)]

    def rendering(self, examples: Iterable[Example]) -> dict[str, str]:
        """Return ``{"rendering": "messages"}`` if a prompt is read as the messages in it, else an empty dict.

        Earlier versions gave every prompt to the chat template as one user message. The LM's fingerprint did not
        change, so that artifacts from other prompts stay valid; this entry tells the two ways of reading apart.
        """
        return {RENDERING: "messages"} if self.plain is None and any(map(self.reads_messages, examples)) else {}

    def _are_taken(self, form: Form) -> bool:
        """True if the template takes messages of this form; the answer is remembered."""
        if form not in self._taken:
            if len(self._taken) >= _FORMS:
                self._taken.clear()
            self._taken[form] = self._takes(form)
        return self._taken[form]

    def _takes(self, form: Form) -> bool:
        """True if the template writes all messages of this form, with an answer after them and without one."""
        marks = [f"{_MARK}{number}." if content else "" for number, (_, content) in enumerate(form)]
        asked = [chat_message(role, mark) for (role, _), mark in zip(form, marks, strict=True)]
        if form[-1][0] not in ("user", "tool"):
            return False
        try:
            before = self._chat(asked, {}, add_generation_prompt=True)
            whole = self._chat([*asked, chat_message("assistant", _MARK)], {})
        except ConfigError:  # many templates refuse a system prompt, tools, or two messages of one role in a row
            return False
        # Some templates write the system prompt into the last message, but only if this is the user's.
        return all(mark in before and mark in whole for mark in marks)

    def _chat(
        self, messages: Sequence[Mapping[str, Any]], given: Mapping[str, Any], *, add_generation_prompt: bool = False
    ) -> str:
        """Render messages with the chat template, within limits of time, memory and length; ConfigError if it fails."""
        try:
            with limited(_SECONDS, _MEMORY):
                text: str = self.tokenizer.apply_chat_template(
                    messages,
                    chat_template=self._template_with(given),
                    tokenize=False,
                    add_generation_prompt=add_generation_prompt,
                    **given,
                )
        except LimitError as error:
            raise ConfigError(f"lm {self.name}: {error}") from error
        except Exception as error:  # a template is a program
            reason = short(" ".join(str(error).split()) or type(error).__name__)
            raise ConfigError(f"lm {self.name}: its chat template fails: {reason}. Use template=plain.") from error
        if not isinstance(text, str) or len(text) > _LONGEST + 8 * (len(str(messages)) + len(str(given))):
            told = f"lm {self.name}: its chat template turns a short text into {len(text):,} characters."
            raise ConfigError(f"{told} Use template=plain.")
        return text

    def _template_with(self, given: Mapping[str, Any]) -> str | None:
        """Return the chat template; some LMs have a second one for conversations with tools."""
        if "tools" not in given or not isinstance(self.tokenizer.chat_template, Mapping):
            return self._template
        return _chat_template(self.tokenizer, self.name, tools=given["tools"])

    def tokenise(self, examples: Sequence[Example]) -> Documents:
        """Return the token ids of each example, cut to fit: the tokens before the answer, then the learnt ones.

        ``shares`` says how much of each learnt token lies in the example's span (:func:`airrep.corpus.spans.shares`).
        """
        if have_spans(examples):
            return self.tokenise_with_places(examples)[0]
        documents: list[tuple[list[int], int]] = []
        for first in range(0, len(examples), _CHUNK):
            found = self._read(examples[first : first + _CHUNK], places=False)
            documents += [laid[:2] for _, _, laid in found]
        return Documents.of(documents)

    def tokenise_with_places(self, examples: Sequence[Example]) -> tuple[Documents, list[TokenPlaces]]:
        """Tokenise as :meth:`tokenise` does, and return the places of the learnt tokens in each response too."""
        documents: list[tuple[list[int], int]] = []
        places: list[TokenPlaces] = []
        for example, text, offsets, laid in self._placed(examples):
            places.append(self._places(example, text, offsets, laid))
            documents.append(laid[:2])
        spanned = have_spans(examples)
        return Documents.of(documents, list(map(_shares_of, examples, places)) if spanned else None), places

    def _placed(self, examples: Sequence[Example]) -> Iterator[tuple[Example, Rendered, Any, _Laid]]:
        """Yield each example with what :meth:`_read` returns of it, the offsets too."""
        if not getattr(self.tokenizer, "is_fast", False):
            raise ConfigError(
                f"lm {self.name}: its tokenizer does not report the character positions of tokens. Save it as a fast "
                "tokenizer, with a tokenizer.json."
            )
        for first in range(0, len(examples), _PLACED):
            chunk = examples[first : first + _PLACED]
            for example, read in zip(chunk, self._read(chunk, places=True), strict=True):
                yield example, *read

    def token_places(self, examples: Sequence[Example]) -> list[TokenPlaces]:
        """Return the places of all tokens, those of the prompt too, in ``prompt + "\\n" + response``.

        Tokens that only the template writes, and the end-of-text token, have empty ranges.
        """
        return [self._all_places(*one) for one in self._placed(examples)]

    def _all_places(self, example: Example, text: Rendered, offsets: list[tuple[int, int]], laid: _Laid) -> TokenPlaces:
        """Locate all tokens of *laid* in prompt and response, by their offsets in the rendered text."""
        count, begun = len(laid.ids), len(self._begin_of(text))
        ahead = 0 if self.cut == "shares" else laid.first + begun - laid.start  # cut from the front of the prompt
        numbers = np.arange(count) - begun
        numbers[: laid.start] += ahead
        numbers[laid.start :] = laid.first + np.arange(count - laid.start)
        if ahead and laid.ids[0] == self.tokenizer.bos_token_id:
            numbers[0] = -1
        own = (numbers >= 0) & (numbers < len(offsets))
        edges = np.zeros((count, 2), np.int64)
        edges[own] = np.array(offsets, np.int64).reshape(-1, 2)[numbers[own]]
        head = 0 if self.plain is None or self._stands(example) else self.plain[0].find("{prompt}")
        seen = _seen(example, text, max(0, head))
        places = [seen[start:stop][seen[start:stop] >= 0] for start, stop in edges.tolist()]
        starts = np.array([part.min() if len(part) else 0 for part in places], np.int64)
        return TokenPlaces(starts, np.array([part.max() + 1 if len(part) else 0 for part in places], np.int64))

    def _read(self, chunk: Sequence[Example], *, places: bool) -> list[tuple[Rendered, Any, _Laid]]:
        """Return the rendered text of each example, its tokens' offsets (None without *places*), and its tokens."""
        texts = [self.render(example) for example in chunk]
        prompts = self._ids([text.prompt for text in texts])
        wholes = self._encoded([text.whole for text in texts], return_offsets_mapping=places)
        offsets = wholes["offset_mapping"] if places else [None] * len(texts)
        return list(zip(texts, offsets, map(self._laid, chunk, texts, prompts, wholes["input_ids"]), strict=True))

    def _places(self, example: Example, text: Rendered, offsets: list[tuple[int, int]], laid: _Laid) -> TokenPlaces:
        """Locate the learnt tokens in the response, by their offsets in the rendered text."""
        most, count = len(example.response), len(laid.ids) - laid.start
        own = np.array(offsets[laid.first :][:count], np.int64).reshape(-1, 2)
        ours = np.full((count - len(own), 2), len(text.whole))  # the end-of-text token
        own = np.concatenate([own, ours])
        firsts, lasts = _characters(example.response, text)
        empty = own[:, 0] >= own[:, 1]
        starts, stops = own[:, 0], np.where(empty, own[:, 0] + 1, own[:, 1])
        edges = np.stack([starts, stops], axis=1).ravel()
        found = np.minimum.reduceat(firsts, edges)[::2] if count else np.empty(0, np.int64)
        until = np.maximum.reduceat(lasts, edges)[::2] if count else np.empty(0, np.int64)
        outside = empty | (until == 0)
        at = np.where(empty, most, found)  # tokens before the response get an empty range at its beginning
        return TokenPlaces(at, np.where(outside, at, until))

    def _encoded(self, texts: list[str], **asked: bool) -> Any:
        """Tokenise texts with the tokenizer options *asked*; refuse tokens that the LM has no embedding for."""
        found = self.tokenizer(texts, add_special_tokens=False, return_attention_mask=False, verbose=False, **asked)
        self._check_known(found["input_ids"])
        return found

    def prompt_ids(self, examples: Sequence[Example], room: int) -> list[list[int]]:
        """Return the token ids that the LM reads before each answer, cut at the front to at most *room* tokens."""
        texts = [self._before_answer(example) for example in examples]
        found = self._ids([text.prompt for text in texts])
        begins = [self._begin_of(text) for text in texts]
        least = self._begin or self._end  # something must come before an answer
        return [self._fit(begin + ids or least, room) for begin, ids in zip(begins, found, strict=True)]

    def _before_answer(self, example: Example) -> Rendered:
        """Render an example for its prompt; the example needs no response."""
        answered = example if example.response.strip() else replace(example, response=_MARK)
        chat = {name: value for name, value in (example.chat or {}).items() if name != "learn"}
        return self.render(replace(answered, chat=chat or None))

    def _ids(self, texts: list[str]) -> list[list[int]]:
        return self._encoded(texts)["input_ids"]

    def _check_known(self, found: list[list[int]]) -> None:
        """Refuse tokens that the LM has no embedding for."""
        largest = max((max(ids, default=0) for ids in found), default=0)
        if largest >= self.vocabulary:
            raise ConfigError(
                f"lm {self.name}: its tokenizer gives token id {largest}, but the LM has only {self.vocabulary} "
                f"embeddings. {self._remedy}"
            )

    def _begin_of(self, text: Rendered) -> list[int]:
        has_own = bool(self._begin) and text.whole.startswith(self.tokenizer.bos_token)
        return self._begin if text.framed and not has_own else []

    def _laid(self, example: Example, text: Rendered, prompt: list[int], whole: list[int]) -> _Laid:
        """Cut the tokens of an example to fit; tokens after the prefix that *whole* shares with *prompt* are learnt."""
        begin = self._begin_of(text)
        has_end = bool(self._end) and text.whole.endswith(self.tokenizer.eos_token)
        ids = begin + whole + (self._end if text.framed and not has_end else [])
        start = _shared(begin + prompt, ids) or 1  # the first token cannot be predicted
        if len(ids) <= start:
            raise DataError(f'example "{example.id}": nothing comes before its response. Give the example a prompt.')
        first = start - len(begin)
        if self.cut == "drop" and len(ids) > self.max_tokens:
            raise DataError(
                f'example "{example.id}": has {len(ids):,} tokens, and cut=drop refuses examples longer than '
                f"max_tokens={self.max_tokens}. Raise max_tokens, or leave the example out."
            )
        if self.cut == "shares":
            asked, answered = _shares(start, len(ids) - start, self.max_tokens)
            return _Laid(ids[:asked] + ids[start : start + answered], asked, first)
        if self.cut == "end":
            ids = ids[: self.max_tokens]
            if len(ids) <= start:
                raise DataError(
                    f'example "{example.id}": its response starts at token {start + 1}, but cut=end keeps only the '
                    f"first {self.max_tokens} tokens. Raise max_tokens, or leave the example out."
                )
            return _Laid(ids, start, first)
        response = ids[start:]
        most = self.max_tokens - max(1, len(begin))
        if len(response) > most:
            raise DataError(
                f'example "{example.id}": its response has {len(response)} tokens, but max_tokens={self.max_tokens} '
                f"leaves room for {most}, since one token must come before the response. Raise max_tokens if the LM "
                "reads more, shorten the response, or leave the example out."
            )
        head = self._fit(ids[:start], self.max_tokens - len(response))
        return _Laid(head + response, len(head), first)

    def _fit(self, ids: list[int], room: int) -> list[int]:
        """Cut tokens from the front until *room* are left, but keep the begin-of-text token if there is one."""
        over = len(ids) - room
        first = self.tokenizer.bos_token_id
        kept = 1 if first is not None and ids[:1] == [first] and room > 1 else 0
        return ids if over <= 0 else ids[:kept] + ids[kept + over :]


def _shared(first: Sequence[Any], second: Sequence[Any]) -> int:
    """Return the length of the longest common prefix of two sequences."""
    if second[: len(first)] == first:  # nearly always
        return len(first)
    pairs = enumerate(zip(first, second, strict=False))
    return next((place for place, (one, other) in pairs if one != other), min(len(first), len(second)))


def _shares_of(example: Example, places: TokenPlaces) -> np.ndarray:
    """Return how much of each learnt token lies in an example's span; DataError if the span was cut off."""
    if example.span is None:
        return np.ones(len(places.starts))
    found = shares(example.response, example.span, *places)
    if not found.any():
        raise DataError(f'example "{example.id}": its span lies after the tokens that the LM reads. Raise max_tokens.')
    return found


def _shares(prompt: int, response: int, room: int) -> tuple[int, int]:
    """Share *room* tokens between a prompt and a response by length; one that needs less than half is kept whole.

    Example:
        >>> _shares(90, 20, 100), _shares(20, 90, 100), _shares(60, 90, 100), _shares(20, 30, 100)
        ((80, 20), (20, 80), (60, 40), (20, 30))
    """
    if 2 * response < room:
        most = room
    elif 2 * prompt < room:
        most = room - prompt
    else:
        most = int(room * (response / (prompt + response)))
    kept = min(most, response)
    return max(1, min(room - kept, prompt)), kept


def _characters(response: str, text: Rendered) -> tuple[np.ndarray, np.ndarray]:
    """Map each character of the rendered text, and two places behind it, to its half-open range in the response.

    The range is (0, 0) before the response, and (length of the response, 0) for other characters outside it. The
    response is searched for line by line if need be, since a template may write thoughts, text and calls apart.
    """
    firsts = np.full(len(text.whole) + 2, len(response), np.int64)
    lasts = np.zeros(len(text.whole) + 2, np.int64)
    place = _shared(text.prompt, text.whole)
    seen = response if response in text.whole[place:] else response.strip()
    pieces = [seen] if seen in text.whole[place:] else seen.splitlines(keepends=True)
    before, begun = response.find(seen), False
    for piece in pieces:
        bare = piece if piece in text.whole[place:] else piece.strip()
        found = text.whole.find(bare, place) if bare else -1
        if found >= 0:
            own = before + piece.find(bare) + np.arange(len(bare))
            if not begun:
                firsts[:found], begun = 0, True
            firsts[found : found + len(bare)], lasts[found : found + len(bare)] = own, own + 1
            place = found + len(bare)
        before += len(piece)
    return firsts, lasts


def _seen(example: Example, text: Rendered, place: int) -> np.ndarray:
    """Map each character of the rendered text to its place in ``prompt + "\\n" + response``; -1 for the template's own.

    Lines of the prompt are searched for from *place* on, in order: a template may write its messages apart.
    """
    firsts, lasts = _characters(example.response, text)
    seen: np.ndarray = np.where(lasts > 0, firsts + len(example.prompt) + 1, -1)
    stop, before = _shared(text.prompt, text.whole), 0
    for line in example.prompt.splitlines(keepends=True):
        for bare in (line.strip(), line.strip().partition(": ")[2], line.strip().lstrip("\\")):
            found = text.whole.find(bare, place, stop) if bare else -1
            if found >= 0:
                seen[found : found + len(bare)] = before + line.find(bare) + np.arange(len(bare))
                place = found + len(bare)
                break
        before += len(line)
    return seen


def shortest(form: Form) -> Form:
    """Return a form without its repeated rounds: a template that takes this shorter form takes the long one too.

    What a template refuses or leaves out depends on the first message, the last one, and on which message follows which
    (two user messages in a row, a system prompt that is not first), not on their number. So a round that leads back to
    the same kind of message is dropped if each of its steps occurred before, and one trial serves chats of any length.

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
    """Return the text with {prompt}, the spaces before the response, the text after it; None for a chat template.

    Spaces before the response belong to the response, since tokenizers join them with its first word.
    """
    if template in (None, "chat") and tokenizer.chat_template is not None:
        return None
    text = PLAIN if template in (None, "chat", "plain") else template
    assert text is not None
    head, _, after = text.partition("{response}")
    return head.rstrip(" "), head[len(head.rstrip(" ")) :], after


def _begin(tokenizer: Any) -> list[int]:
    """The begin-of-text token, if the tokenizer puts one before a text."""
    first = tokenizer.bos_token_id
    return [first] if first is not None and tokenizer("a")["input_ids"][:1] == [first] else []


def _chat_template(tokenizer: Any, name: str, **given: Any) -> str:
    """Return the tokenizer's chat template, with a fixed date; ConfigError if it is not safe to run."""
    try:
        template: str = tokenizer.get_chat_template(**given)
    except ValueError as error:
        raise ConfigError(f"lm {name}: none of its chat templates is named default. Use template=plain.") from error
    if not isinstance(template, str) or len(template) > _LONGEST_TEMPLATE or _takes_powers(template):
        raise ConfigError(
            f"lm {name}: its chat template is not text, has over {_LONGEST_TEMPLATE:,} characters, or computes powers "
            "(**), so airrep does not run it. Use template=plain."
        )
    return f"{_CLOCK}{template}" if "strftime_now" in template else template


def _takes_powers(template: str) -> bool:
    """True if a template has the operator ``**``: one power can take hours, and :func:`limited` cannot interrupt it."""
    from jinja2 import Environment, TemplateError

    if "**" not in template:
        return False
    try:
        tokens = [value for _, kind, value in Environment(autoescape=True).lex(template) if kind != "whitespace"]
    except TemplateError:  # rendering reports the error
        return False
    return any(two == "**" and one not in ("(", ",") for one, two in pairwise(tokens))  # after "(" and "," it unpacks


_LOOK = 0.1
"""Seconds between two looks at the clock."""
_IDLE = 20
"""Looks at the clock without work after which the watching thread ends."""


class LimitError(Exception):
    """Limited code took too long, or needed too much memory."""


class _TimeUp(BaseException):
    """Raised in the working thread; a BaseException, so that ``except Exception`` in its code does not catch it."""


class _Watch:
    """Interrupts work that takes too long; another thread looks at the clock, so short work costs almost nothing."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._deadline: float | None = None
        self._worker, self._fired = 0, False

    def begin(self, seconds: float) -> None:
        with self._lock:
            self._worker, self._fired = threading.get_ident(), False
            self._deadline = time.monotonic() + seconds
            if self._thread is None or not self._thread.is_alive():
                self._thread = threading.Thread(target=self._look, name="airrep template limit", daemon=True)
                self._thread.start()

    def end(self) -> bool:
        """Stop watching; return True if the time was up, and cancel an exception that has not been raised yet."""
        with self._lock:
            self._deadline = None
            if self._fired:
                _raise_in(self._worker, None)
            return self._fired

    def _look(self) -> None:
        idle = 0
        while True:
            time.sleep(_LOOK)
            with self._lock:
                idle = idle + 1 if self._deadline is None else 0
                if idle > _IDLE:
                    self._thread = None
                    return
                if self._deadline is not None and not self._fired and time.monotonic() > self._deadline:
                    self._fired = True
                    _raise_in(self._worker, _TimeUp)


def _raise_in(thread: int, error: type[BaseException] | None) -> None:
    what = None if error is None else ctypes.py_object(error)
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), what)


_watch = _Watch()
_one = threading.Lock()
"""Held during limited work: the memory limit is the whole process's, and the watch has only one deadline."""


@contextmanager
def limited(seconds: float, memory: int) -> Iterator[None]:
    """Raise LimitError if the block takes longer than *seconds*, or lets the process grow by over *memory* bytes.

    Memory is limited only on Linux. A single step of the interpreter cannot be interrupted.
    """
    with _one, _memory(memory):
        error: BaseException | None = None
        _watch.begin(seconds)
        try:
            try:
                yield
            finally:
                late = _watch.end()
        except (_TimeUp, MemoryError) as caught:
            error, late = caught, isinstance(caught, _TimeUp)
        if late:
            raise LimitError(f"the LM's chat template takes longer than {seconds:g} s. Use template=plain.") from error
        if error is not None:
            raise LimitError(
                f"the LM's chat template needs more than {memory / 2**20:,.0f} MiB of memory. Use template=plain."
            ) from error


@contextmanager
def _memory(more: int) -> Iterator[None]:
    if sys.platform != "linux":
        yield
        return
    import resource

    sizes = os.open("/proc/self/statm", os.O_RDONLY)
    try:
        pages = int(os.read(sizes, 64).split()[0])
    finally:
        os.close(sizes)
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    wanted = pages * resource.getpagesize() + more
    if soft != resource.RLIM_INFINITY and soft <= wanted:
        yield
        return
    resource.setrlimit(resource.RLIMIT_AS, (wanted, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
