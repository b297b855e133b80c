"""Filters (where-expressions), which choose rows of a corpus table.

::

    label == "gsm8k"                      source in ["forum", "wiki"] and not (year < 2020)
    "recipe" in prompt                    metadata["odd key"] is not None       2019 <= year < 2022

An expression is parsed as Python and translated piece by piece; it is never executed. It may hold
comparisons of one field with one literal (``==``, ``!=``, ``<``, ``<=``, ``>``, ``>=``, ``is None``,
``is not None``), ``in`` and ``not in`` a list of literals, ``"text" in field``, ``and``, ``or``, ``not``
and parentheses. Fields are id, prompt, response, label, source and the keys of the metadata; ``meta.lang`` and
``metadata["meta"]["lang"]`` are a part of an object, the second even if a key contains dots. A missing
value equals nothing but None, is in no list without None, and is neither below nor above anything.
"""

import ast
import re
import warnings
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import pyarrow as pa

from airrep.arrays import Mask
from airrep.corpus.fields import TEXT_FIELDS, Column, Comparisons, Field, Scalar, read_fields
from airrep.errors import ConfigError, escaped

Node: TypeAlias = Callable[[Mapping[Field, Column]], Mask]
"""A translated piece of an expression: maps the columns of its fields to one truth value for each row."""

_WANTED = 'Compare fields with values, as in label == "a", and join comparisons with and, or, not.'
_QUOTED = re.compile(r"'[^']*'|\"[^\"]*\"")
_SINGLE_EQUALS = re.compile("(?<![=!<>:])=(?!=)")
_DEEPEST = 100  # levels; Python's own recursion limit is higher
_SHOWN = 80
_TESTS: dict[type[ast.cmpop], str] = {
    ast.Eq: "equal",
    ast.NotEq: "equal",
    ast.Is: "equal",
    ast.IsNot: "equal",
    ast.Lt: "less",
    ast.LtE: "less_equal",
    ast.Gt: "greater",
    ast.GtE: "greater_equal",
}
_MIRRORED = {"less": "greater", "less_equal": "greater_equal", "greater": "less", "greater_equal": "less_equal"}
_FIELD = (ast.Name, ast.Subscript, ast.Attribute)
_NEGATED = (ast.NotEq, ast.IsNot, ast.NotIn)


@dataclass(frozen=True, slots=True)
class Filter:
    """A translated where-expression, made by :func:`compile_filter`."""

    fields: tuple[Field, ...]
    """The fields that it names, in order."""
    of: Node
    """Evaluates the expression, given the columns of its fields."""
    wanted: tuple[tuple[Field, Scalar], ...] = ()
    """Values that a field is to have, each with its field, except parts of a text."""
    borders: tuple[tuple[Field, Scalar], ...] = ()
    """Values that a field is to be above or below, each with its field."""

    def mask(self, tables: Iterable[pa.Table], known: Iterable[str] = ()) -> Mask:
        """Return one truth value for each row of a corpus, given as *tables*; *known* are its metadata keys."""
        compared = Comparisons()
        masks = [self.of(read_fields(table, self.fields, known, compared)) for table in tables]
        compared.check()
        return np.concatenate([np.empty(0, bool), *masks])


def compile_filter(expression: str) -> Filter:
    """Translate a where-expression; ConfigError has the column of the first error."""
    if not isinstance(expression, str):
        raise ConfigError(f"where: is {expression!r}, but must be text, such as 'label == \"a\"'.")
    parser = _Parser(expression)
    node = parser.parse()
    return Filter(tuple(parser.fields), node, tuple(parser.wanted), tuple(parser.borders))


def equal_to(equals: Mapping[str, Scalar | Iterable[Scalar]]) -> Filter:
    """Return the filter of rows in which every named field has the given value, or one of the given values."""
    fields = {name: Field(name, name not in TEXT_FIELDS, f"where {name}=") for name in equals}
    nodes = []
    for name, value in equals.items():
        values = [value] if isinstance(value, Scalar | np.generic) else value
        plain = tuple(one.item() if isinstance(one, np.generic) else one for one in values)
        nodes.append(_ask(fields[name], "in", plain))
    return Filter(tuple(fields.values()), _join(nodes, every=True))


def _ask(field: Field, test: str, literal: Scalar | tuple[Scalar, ...]) -> Node:
    return lambda columns: columns[field](test, literal)


def _negate(node: Node) -> Node:
    return lambda columns: np.logical_not(node(columns))


def _join(nodes: list[Node], *, every: bool) -> Node:
    join = np.logical_and if every else np.logical_or
    return lambda columns: np.asarray(join.reduce([node(columns) for node in nodes]))


class _Parser:
    """Turns the syntax tree of an expression into nodes; ConfigError says where it is not valid."""

    def __init__(self, expression: str) -> None:
        self._expression = expression.strip()
        self.fields: list[Field] = []
        self.wanted: list[tuple[Field, Scalar]] = []
        self.borders: list[tuple[Field, Scalar]] = []
        self._negated = False

    def parse(self) -> Node:
        try:
            with warnings.catch_warnings():  # Python warns about likely mistakes, such as `is "a"`
                warnings.simplefilter("error")
                tree = ast.parse(self._expression, mode="eval")
        except SyntaxError as error:
            single = _SINGLE_EQUALS.search(_QUOTED.sub(lambda text: " " * len(text[0]), self._expression))
            column = single.start() + 1 if single else error.offset or 1
            reason = "'=' is not a comparison (write ==)" if single else error.msg
            raise ConfigError(f"{self._at(column)}: {reason}. {_WANTED}") from None
        except (ValueError, RecursionError, MemoryError, Warning) as error:
            raise ConfigError(f"{self._at(1)}: cannot be parsed ({escaped(str(error))}). {_WANTED}") from None
        return self._node(tree.body, 0)

    def _at(self, column: int) -> str:
        """Return the place of an error, columns counted from 1."""
        shown = self._expression if len(self._expression) <= _SHOWN else f"{self._expression[: _SHOWN - 1]}…"
        return f"where '{escaped(shown)}', column {column}"

    def _place(self, node: ast.expr) -> str:
        # Syntax trees count columns in bytes of UTF-8, readers in characters.
        line = self._expression.split("\n")[node.lineno - 1].encode()
        return self._at(len(line[: node.col_offset].decode()) + 1)

    def _error(self, node: ast.expr, what: str, wanted: str = _WANTED) -> ConfigError:
        return ConfigError(f"{self._place(node)}: {what}. {wanted}")

    def _node(self, node: ast.expr, depth: int) -> Node:
        """Translate an expression that is true or false."""
        if depth > _DEEPEST:
            raise self._error(node, f"is nested more than {_DEEPEST} levels deep", "Write a flatter expression.")
        match node:
            case ast.BoolOp(op=joint, values=values):
                return _join([self._node(value, depth + 1) for value in values], every=isinstance(joint, ast.And))
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                self._negated = not self._negated
                inner = self._node(operand, depth + 1)
                self._negated = not self._negated
                return _negate(inner)
            case ast.Compare(left=left, ops=operators, comparators=rights):
                pairs = zip([left, *rights], operators, rights, strict=False)  # a < b < c is a < b and b < c
                return _join([self._pair(*pair) for pair in pairs], every=True)
            case _:
                raise self._error(node, f"{_words(node)} is not a comparison")

    def _pair(self, left: ast.expr, kind: ast.cmpop, right: ast.expr) -> Node:
        """Translate one comparison."""
        if not isinstance(kind, ast.In | ast.NotIn):
            node = self._comparison(left, kind, right)
        elif isinstance(right, ast.List | ast.Tuple | ast.Set):
            field, literals = self._field(left), tuple(self._literal(element) for element in right.elts)
            if isinstance(kind, ast.NotIn) == self._negated:
                self.wanted += [(field, literal) for literal in literals]
            node = _ask(field, "in", literals)
        elif isinstance(right, ast.Constant):
            raise self._error(right, "the right side of 'in' must be a list or a field", 'Write ["…"]')
        else:
            node = _ask(self._field(right), "contains", self._literal(left))
        return _negate(node) if isinstance(kind, _NEGATED) else node

    def _comparison(self, left: ast.expr, kind: ast.cmpop, right: ast.expr) -> Node:
        """Translate a comparison other than ``in``, as if it were not negated."""
        test = _TESTS[type(kind)]
        if isinstance(right, _FIELD) and not isinstance(left, _FIELD):
            left, right, test = right, left, _MIRRORED.get(test, test)
        field, literal = self._field(left), self._literal(right)
        if test != "equal":
            self.borders.append((field, literal))
        elif isinstance(kind, _NEGATED) == self._negated:
            self.wanted.append((field, literal))
        if literal is not None and isinstance(kind, ast.Is | ast.IsNot):
            raise self._error(right, "the operator 'is' works only with None", "Write ==")
        if literal is None and test != "equal":
            raise self._error(right, "None cannot be compared with < or >", "Write is None")
        return _ask(field, test, literal)

    def _field(self, node: ast.expr) -> Field:
        match _path(node):
            case ["metadata"]:
                raise self._error(node, "metadata alone is not a field", 'Write metadata["key"]')
            case [name]:
                field = Field(name, name not in TEXT_FIELDS, self._place(node))
            case [first, _, *_] as keys if first not in TEXT_FIELDS:  # text fields have no parts
                field = self._nested(node, keys[1:] if first == "metadata" else keys)
            case keys:
                wanted = _WANTED
                if keys:
                    wanted = (
                        f"{keys[0]} is plain text and has no parts. For the metadata key of this name, write "
                        f'metadata["{".".join(keys)}"]'
                    )
                raise self._error(node, f"{_words(node)} is not a field", wanted)
        self.fields.append(field)
        return field

    def _nested(self, node: ast.expr, keys: list[str]) -> Field:
        """Return a metadata field with a dotted name, or with a path of exact keys if some key is in brackets."""
        if not any(isinstance(part, ast.Subscript) for part in ast.walk(node)):
            return Field(".".join(keys), True, self._place(node))
        first, *others = keys
        name = first if not others else "".join([f'metadata["{first}"]', *(f'["{key}"]' for key in others)])
        return Field(name, True, self._place(node), tuple(keys))

    def _literal(self, node: ast.expr) -> Scalar:
        match node:
            case ast.Constant(value=str() | int() | float() | None as value):
                return value
            case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int() | float() as value)):
                return -value
            case _:
                wanted = f'Put text in quotes: "{node.id}"' if isinstance(node, ast.Name) else _WANTED
                raise self._error(node, f"{_words(node)} is not a literal value", wanted)


def _path(node: ast.expr) -> list[str]:
    """Return the keys of a field: two for ``meta.lang`` and ``meta["lang"]``; none if *node* is not a field."""
    match node:
        case ast.Name(id=name):
            return [name]
        case ast.Attribute(value=outer, attr=key) | ast.Subscript(value=outer, slice=ast.Constant(value=str(key))):
            above = _path(outer)
            return [*above, key] if above else []
        case _:
            return []


def _words(node: ast.expr) -> str:
    match node:
        case ast.Name(id=name):
            return f"the name {name}"
        case ast.Constant(value=value):
            return f"the literal {value!r}"
        case ast.Call():
            return "a call"
        case ast.Attribute():
            return "an attribute"
        case _:
            return f"the Python expression {type(node).__name__}"
