"""What the clauses of an ALTER TABLE do to columns: which are dropped, renamed and added, and what
rows that exist hold in those that are added.

All of a clause is understood, or nothing of the statement is: there is always one more word that
makes another thing of a column. Of defaults only those are known whose value does not depend on a
character set, a time zone, a mode of the server or an expression.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal, InvalidOperation

from capture.sources.mysql.alterations import TYPES, is_harmless
from capture.sources.mysql.sql_tokens import Shape, Token
from capture.sources.mysql.statement_words import NOTHING, Unclear, Words
from tideline.contract.steps import ColumnStep, StepKind

_INTEGERS = {"TINYINT": 8, "BOOL": 8, "BOOLEAN": 8, "SMALLINT": 16, "MEDIUMINT": 24, "INT": 32}
_INTEGERS |= {"INTEGER": 32, "BIGINT": 64}
_DECIMALS = ("DECIMAL", "DEC", "NUMERIC", "FIXED")
_TEXTS = ("CHAR", "VARCHAR")
_FLAGS = (
    "UNSIGNED", "SIGNED", "ZEROFILL", "PRECISION", "VARYING", "BINARY", "ASCII", "UNICODE",
    "VISIBLE", "INVISIBLE", "COMPRESSED", "UNIQUE", "KEY", "NULL", "FIRST",
)  # fmt: skip
_VALUED = ("COMMENT", "COLUMN_FORMAT", "STORAGE", "AFTER")
_TYPE = re.compile(f"{TYPES}|TIMESTAMP")
_CODED = re.compile("N?(?:VAR)?CHAR|(?:TINY|MEDIUM|LONG)?TEXT|ENUM|SET|JSON")
"""Types whose columns have a character set; one that the definition does not name is the table's.
"""
_PLAIN = re.compile(r"[ !#-&(-\[\]-~]*")
"""Letters that every character set has, and that no rule of quoting changes."""
_NUMBER = re.compile(r"-?[0-9]+(?:\.[0-9]+)?")


@dataclass(frozen=True, slots=True)
class Alteration:
    """``steps`` are all that is done to columns. ``converts``: some columns are defined anew, and
    where that cannot hold their values, only a strict server refuses it. ``recodes``: some of
    these are texts, which may have another character set now; what is generated from the bytes of
    such a column (LENGTH) is another value then, and in no row event."""

    steps: tuple[ColumnStep, ...]
    converts: bool
    recodes: bool


def read_changes(parts: Sequence[Words]) -> Alteration | None:
    """What all of the clauses do to columns; None where one is not understood."""
    steps: list[ColumnStep] = []
    redefined: list[str] = []
    try:
        for clause in parts:
            found, kind = _clause(clause)
            steps += found
            redefined += [kind] if kind else []
    except Unclear:
        return None
    recodes = any(_CODED.fullmatch(kind) for kind in redefined)
    return Alteration(tuple(steps), bool(redefined), recodes)


def _clause(clause: Words) -> tuple[list[ColumnStep], str]:
    """What it does to columns, and the type (one word) of the one that it defines anew."""
    tokens = clause.rest()
    if clause.accept("RENAME", "COLUMN"):
        return [_rename(clause)], ""
    if clause.accept("DROP"):
        if is_harmless(tokens):
            return [], ""
        return [_drop(clause)], ""
    if clause.any_of("CHANGE", "MODIFY"):
        changes = tokens[0].upper == "CHANGE"
        clause.accept("COLUMN")
        was = clause.name() if changes else ""
        defined = _Definition.read(clause)
        step = ColumnStep(StepKind.RENAME, defined.name, was=was)
        return [step] if changes and defined.name != was else [], defined.kind
    if clause.accept("ADD") and not _adds_no_column(clause.rest()):
        clause.accept("COLUMN")
        clause.accept("IF", "NOT", "EXISTS")
        return list(_added(clause)), ""
    if is_harmless(tokens):
        return [], ""
    raise Unclear


def _adds_no_column(rest: Sequence[Token]) -> bool:
    words = ("INDEX|KEY|FULLTEXT|SPATIAL|VECTOR|UNIQUE|FOREIGN|CHECK|CONSTRAINT|PARTITION|PRIMARY"
             "|PERIOD|SYSTEM")  # fmt: skip
    return bool(rest) and re.fullmatch(words, rest[0].upper) is not None


def _rename(clause: Words) -> ColumnStep:
    was = clause.name()
    if not clause.accept("TO"):
        raise Unclear
    step = ColumnStep(StepKind.RENAME, clause.name(), was=was)
    _end(clause)
    return step


def _drop(clause: Words) -> ColumnStep:
    clause.accept("COLUMN")
    clause.accept("IF", "EXISTS")
    token = clause.next()
    word = token.upper in ("PRIMARY", "FOREIGN", "INDEX", "KEY", "PARTITION", "SYSTEM", "PERIOD")
    if token.shape not in (Shape.WORD, Shape.NAME) or word:
        raise Unclear
    clause.any_of("RESTRICT", "CASCADE")
    _end(clause)
    return ColumnStep(StepKind.DROP, token.text)


def _added(clause: Words) -> Iterator[ColumnStep]:
    listed = clause.accept("(")
    while True:
        defined = _Definition.read(clause, listed=listed)
        yield ColumnStep(StepKind.ADD, defined.name, default=defined.filled())
        if not listed:
            return
        if clause.accept(")"):
            _end(clause)
            return
        if not clause.accept(","):
            raise Unclear


def _end(clause: Words) -> None:
    if clause.rest():
        raise Unclear


@dataclass(slots=True)
class _Definition:
    """A column as a statement defines it. ``default`` is the literal's text, ``quoted`` one in
    quotes; ``null``: the statement says that it may be NULL."""

    name: str
    kind: str
    sizes: tuple[int, ...] = ()
    unsigned: bool = False
    null: bool = False
    not_null: bool = False
    binary: bool = False
    default: str | None = None
    quoted: bool = False

    @classmethod
    def read(cls, words: Words, *, listed: bool = False) -> _Definition:
        """Up to the end of the clause, or of the column in a list. Raises Unclear."""
        defined = cls(words.name(), words.next().upper)
        if _TYPE.fullmatch(defined.kind) is None:
            raise Unclear
        if words.accept("("):
            defined.sizes = tuple(_sizes(words))
        while words.rest() and not (listed and words.rest()[0].upper in (",", ")")):
            defined._take(words)
        if defined.kind == "TIMESTAMP" and not (defined.null or defined.not_null):
            raise Unclear  # It may be NOT NULL without saying so.
        return defined

    def _take(self, words: Words) -> None:
        if words.accept("NOT", "NULL"):
            self.not_null = True
        elif words.accept("DEFAULT"):
            self._take_default(words)
        elif words.accept("CHARACTER", "SET") or words.any_of("CHARSET", "COLLATE"):
            words.accept("=")
            self.binary |= words.next().text.lower() == "binary"
        elif words.any_of(*_VALUED):
            if words.next() is NOTHING:
                raise Unclear
        else:
            flag = words.any_of(*_FLAGS)
            if not flag:
                raise Unclear
            self.unsigned |= flag in ("UNSIGNED", "ZEROFILL")
            self.null |= flag == "NULL"

    def _take_default(self, words: Words) -> None:
        if words.accept("NULL"):
            return
        sign = "-" if words.accept("-") else ""
        if not sign:
            words.accept("+")
        token = words.next()
        self.quoted = token.shape is Shape.STRING
        if self.quoted and not sign:
            self.default = token.text
            return
        text = {"TRUE": "1", "FALSE": "0"}.get(token.upper, token.text)
        if words.accept("."):
            text += f".{words.next().text}"
        self.default = sign + text
        if token.shape is not Shape.WORD or not _NUMBER.fullmatch(self.default):
            raise Unclear

    def filled(self) -> str | None:
        """What rows that exist hold in it when it is added; raises Unclear where that is not
        known."""
        default = self.default
        if default is None:
            if not self.not_null:
                return None
            default = "" if self.kind in _TEXTS else "0"
        if self.kind in _INTEGERS:
            return self._integer(default)
        if self.kind in _DECIMALS:
            return self._decimal(default)
        if self.kind in _TEXTS and (self.quoted or not default):
            return self._text(default)
        if self.kind in ("DATE", "DATETIME") and self.quoted:
            return self._moment(default)
        raise Unclear

    def _integer(self, default: str) -> str:
        if re.fullmatch("-?[0-9]+", default) is None:
            raise Unclear
        value, bits = int(default), _INTEGERS[self.kind]
        low, high = (0, 2**bits) if self.unsigned else (-(2 ** (bits - 1)), 2 ** (bits - 1))
        if not low <= value < high:
            raise Unclear
        return str(value)

    def _decimal(self, default: str) -> str:
        if len(self.sizes) > 2:
            raise Unclear
        precision, scale = (*self.sizes, *(10, 0)[len(self.sizes) :])
        if _NUMBER.fullmatch(default) is None:
            raise Unclear
        try:
            value = Decimal(default)
            exact = value.quantize(Decimal(1).scaleb(-scale))
        except InvalidOperation:
            raise Unclear from None
        if (
            exact != value
            or len(exact.as_tuple().digits) > precision
            or (exact.is_signed() and not exact)
        ):
            raise Unclear
        return f"{exact:f}"

    def _text(self, default: str) -> str:
        length = self.sizes[0] if self.sizes else 1
        plain = _PLAIN.fullmatch(default) is not None and default == default.rstrip()
        if not plain or len(default) > length or self.binary:
            raise Unclear
        return default

    def _moment(self, default: str) -> str:
        kind, digits = (date, 10) if self.kind == "DATE" else (datetime, 19)
        if len(default) != digits or (digits == 19 and default[10] != " "):
            raise Unclear
        try:
            kind.fromisoformat(default)
        except ValueError:
            raise Unclear from None
        return default


def _sizes(words: Words) -> Iterator[int]:
    """What stands in a type's parentheses, as far as it is a number."""
    while not words.accept(")"):
        token = words.next()
        if token is NOTHING or token.upper == "(":
            raise Unclear
        if token.text.isdecimal() and token.shape is Shape.WORD:
            yield int(token.text)
