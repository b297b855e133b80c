"""Parses a raw record into the checked fields of its examples."""

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, fields
from decimal import Decimal
from typing import Any, NamedTuple, get_args
from uuid import UUID

from airrep.corpus.fields import part_of
from airrep.corpus.schemas.conversations import CHAT_KEYS, MESSAGES, Pair, is_chat_of_example, is_messages
from airrep.corpus.schemas.forms import (
    PAIRS,
    Preferences,
    Read,
    Turns,
    is_cell_of_messages,
    names,
    read_form,
    read_named_chat,
)
from airrep.corpus.schemas.trainers import TrainerName, trainer_of
from airrep.corpus.schemas.values import describe, is_missing, label, name, plain, remedy_of_text, text, text_or_blank
from airrep.errors import ConfigError, DataError, escaped, near

RESERVED = ("id", "prompt", "response", "label", "source", "metadata", "chat", "chat_template_kwargs")
"""Reserved field names of written records; a metadata key of the same name is written under ``metadata``."""

_MISSING = object()


class Fields(NamedTuple):
    """Fields of one example as a corpus keeps them; ``metadata`` and ``chat`` are JSON text, or None if empty."""

    prompt: str
    response: str
    id: str | None
    label: str | None
    source: str | None
    metadata: str | None
    chat: str | None = None


@dataclass(frozen=True, slots=True)
class Schema:
    """Options of reading records (see :func:`airrep.read_corpus`); a field name of None accepts the usual names."""

    prompt_field: str | None = None
    response_field: str | None = None
    id_field: str | None = None
    label_field: str | None = None
    source_field: str | None = None
    turns: Turns | None = None
    preferences: Preferences = "chosen"
    trained_with: TrainerName | None = None

    def __post_init__(self) -> None:
        """Raise ConfigError for an unknown choice; set missing ``turns`` to the trainer's default."""
        trainer = trainer_of(self.trained_with)
        if self.turns is None:
            object.__setattr__(self, "turns", trainer.turns)
        for setting, known in (("turns", get_args(Turns)), ("preferences", get_args(Preferences))):
            given = getattr(self, setting)
            if given not in known:
                raise ConfigError(f"{setting} {given!r}: must be {' or '.join(known)}. {near(given, known)}")

    @property
    def chosen(self) -> dict[str, str]:
        """The options that differ from the defaults, by name."""
        values = {option.name: (getattr(self, option.name), option.default) for option in fields(self)}
        values["turns"] = (self.turns, "last" if trainer_of(self.trained_with).turns == "last" else None)
        return {name: value for name, (value, default) in values.items() if value != default}

    def parse(self, record: object) -> tuple[str, list[Fields], int]:
        """Return a record's form, the fields of each of its examples, and the number of turns that are no examples.

        DataError messages lack the record's place.
        """
        if not isinstance(record, dict | Mapping):
            raise DataError(f"the record is {describe(record)}; an object with named fields is expected.")
        rest = without_missing(record)
        form, pairs, earlier = self._read(rest)
        key = _taken(rest, self.id_field or "id")
        if key is None and self.id_field is not None:  # a named id field must not fall back to hashes of texts
            raise DataError(
                f'the id field "{self.id_field}" is empty, null or missing. This record has {names(record)}. Choose '
                "another id_field, or give each record an id."
            )
        of_label = _taken(rest, self.label_field or "label")
        source = _taken(rest, self.source_field or "source")
        metadata = _merged(rest) if "metadata" in rest else rest
        return form, [_example(pair, key, of_label, source, metadata) for pair in pairs], earlier

    def _read(self, rest: dict[str, Any]) -> Read:
        """Take prompts and responses out of ``rest``."""
        trainer, turns = trainer_of(self.trained_with), self.turns or "last"
        if self.prompt_field is None and self.response_field is None:
            return read_form(rest, turns, self.preferences, trainer)
        chat = None if self.prompt_field is not None else self.response_field
        if chat is not None and (is_messages(part_of(rest, chat)) or is_cell_of_messages(part_of(rest, chat))):
            return read_named_chat(_taken(rest, chat), chat, turns, trainer)
        found = dict(rest)  # for the error: the prompt is out of ``rest`` when the response is looked for
        prompts = [prompt for prompt, _ in PAIRS] if self.prompt_field is None else [self.prompt_field]
        responses = [response for _, response in PAIRS] if self.response_field is None else [self.response_field]
        prompt_name, prompt = _pop_first(rest, prompts, found, "prompt")
        response_name, response = _pop_first(rest, responses, found, "response")
        return Read(f"{prompt_name} and {response_name}", [trainer.marked(Pair(prompt, response))])


@dataclass(frozen=True, slots=True)
class Reading:
    """How the records of a corpus were read."""

    options: Mapping[str, str] = field(default_factory=dict)
    """Options of :class:`Schema` that differ from the defaults, by name."""
    forms: tuple[str, ...] = ()
    """Forms of the records, such as "messages"."""
    mixed: bool = False
    """True if some records were read with other options."""
    hub: tuple[str, ...] = ()
    """Data sets of the Hub that the records come from, as ``owner/name@commit``."""
    earlier_turns: int = 0
    """Number of earlier assistant turns that are not examples; 0 also if it is not known."""


def without_missing(record: Mapping[str, Any]) -> dict[str, Any]:
    """Return a record with None for NaN, NaT and pandas' NA, and with text for Decimals and UUIDs."""
    return {
        key: plain(value)
        if type(value) is not str and (isinstance(value, Decimal | UUID) or is_missing(value))
        else value
        for key, value in record.items()
    }


def _example(pair: Pair, key: object, of_label: object, source: object, metadata: Mapping[str, Any]) -> Fields:
    """Return one example of a record; if the record has several, its part is in the id and the metadata."""
    if pair.part is not None:
        name_of_part, part = pair.part
        key = None if key is None else f"{text('id', name('id', key))}/{part}"
        metadata = {name_of_part: part, **metadata}
    return checked(pair.prompt, pair.response, key, of_label, source, metadata, pair.chat)


def _taken(rest: dict[str, Any], name: str) -> Any:
    """Pop a field of a record; a part of an object, such as ``meta.lang``, is only read."""
    return rest.pop(name) if name in rest else part_of(rest, name)


def _pop_first(rest: dict[str, Any], keys: Iterable[str], found: Mapping[str, Any], what: str) -> tuple[str, object]:
    """Take the first of ``keys`` that has a value out of ``rest``; DataError lists the fields of ``found``."""
    keys = list(dict.fromkeys(keys))
    for key in keys:
        if part_of(rest, key) is not None:
            return key, _taken(rest, key)
    state = "empty or null" if any(part_of(found, key, _MISSING) is not _MISSING for key in keys) else "missing"
    wanted = " or ".join(f'"{key}"' for key in keys)
    meant = near(keys[0], found, "") if len(keys) == 1 and state == "missing" else ""
    raise DataError(
        f"the {what} field {wanted} is {state}. This record has {names(found)}. {meant and f'{meant} '}Set "
        f"{what}_field to the name of the {what} field."
    )


def _merged(rest: dict[str, Any]) -> dict[str, Any]:
    """Return a record's remaining columns, merged with the keys of an object under ``metadata``."""
    inner = rest["metadata"]
    if not isinstance(inner, Mapping):  # a column that happens to have this name
        return rest
    others = {key: value for key, value in rest.items() if key != "metadata"}
    if twice := [str(key) for key in inner if key in others]:
        raise DataError(
            f'the field "{twice[0]}" occurs both in the record and in its metadata object. Rename one of the two.'
        )
    return {**others, **inner}


def checked(
    prompt: object,
    response: object,
    key: object,
    of_label: object,
    source: object,
    metadata: Mapping[str, Any],
    chat: Mapping[str, Any] | None = None,
    *,
    blank: bool = False,
) -> Fields:
    """Return the fields if all are valid; DataError names the first that is not. *blank* allows a blank response."""
    if metadata and not isinstance(metadata, Mapping):
        raise DataError(f"metadata is {describe(metadata)}; an object with named fields is expected.")
    return Fields(
        text_or_blank("prompt", prompt),
        text_or_blank("response", response) if blank else text("response", response),
        None if key is None else text("id", name("id", key)),
        None if of_label is None else label(of_label),
        None if source is None else name("source", source),
        encode_metadata(metadata) if metadata else None,
        None if chat is None else encode_chat(chat),
    )


HASH = 16
"""Hex digits of a content hash."""


def content_hash(prompt: str, response: str) -> str:
    """Return the first 16 hex digits of SHA-256 over ``prompt``, one NUL byte and ``response`` in UTF-8."""
    return hashlib.sha256(f"{prompt}\0{response}".encode()).hexdigest()[:HASH]


_JSON: dict[str, Any] = {"ensure_ascii": False, "separators": (",", ":"), "allow_nan": False, "default": plain}
_encode_in_order: Callable[[object], str] = json.JSONEncoder(**_JSON).encode
_encode: Callable[[object], str] = json.JSONEncoder(**_JSON, sort_keys=True).encode


def encode_record(record: Mapping[str, Any]) -> str:
    """Return a record as one line of JSON, fields in the record's order."""
    return json.dumps(record, ensure_ascii=False, default=plain)


def encode_metadata(metadata: Mapping[str, Any]) -> str | None:
    """Return canonical JSON: keys sorted, no spaces, top-level nulls left out; None if nothing is left."""
    values = {key: value for key, value in metadata.items() if value is not None}
    return _encoded(values, sort_keys=True) if values else None


def _encoded(values: Mapping[str, Any], *, sort_keys: bool) -> str:
    """Return JSON without spaces; DataError names the first field that is not valid JSON."""
    try:
        encoded = (_encode if sort_keys else _encode_in_order)(values)
        encoded.encode()
    except (TypeError, ValueError, RecursionError):
        raise DataError(_not_json(values)) from None
    return encoded


TOLD = json.dumps(dict(MESSAGES), separators=(",", ":"))
"""The chat of most conversations, :data:`.MESSAGES`, as :func:`encode_chat` returns it."""


def encode_chat(chat: Mapping[str, Any]) -> str:
    """Return an example's chat as one line of JSON, keys in their order, because chat templates may print them."""
    if chat is MESSAGES:  # true for most conversations
        return TOLD
    if not is_chat_of_example(chat):
        raise DataError(
            f"the field chat must be an object with only the keys {', '.join(CHAT_KEYS)}, as airrep writes it."
        )
    return _encoded(dict(chat), sort_keys=False)


def _not_json(values: Mapping[Any, Any]) -> str:
    """Name the first column that is not JSON, and why."""
    for key, value in values.items():
        if not isinstance(key, str):
            return f"the field name {key!r} is {describe(key)}; text is expected."
        try:
            _encode({key: value}).encode()
        except UnicodeEncodeError:
            what_to_do = remedy_of_text(f"{key} {value}") or "Remove it."
            return f'field "{escaped(key)}" holds a lone surrogate; valid Unicode is expected. {what_to_do}'
        except (TypeError, ValueError, RecursionError) as error:
            return f'field "{key}" is not valid JSON ({error}). Remove the field, or write its value as text.'
    return "the metadata is not a valid JSON object: every field name must be text."


def encode_metadata_text(encoded: str) -> str | None:
    """Return the canonical form of metadata given as JSON text."""
    try:
        values = json.loads(encoded)
    except ValueError as error:
        raise DataError(f"metadata is not JSON ({error}); a JSON object is expected.") from None
    if not isinstance(values, dict):
        raise DataError(f"metadata is {describe(values)}; a JSON object is expected.")
    return encode_metadata(values)
