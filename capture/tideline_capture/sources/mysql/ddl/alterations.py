"""Reads the clauses of an ALTER TABLE: their effect on columns, and on existing rows.

Two questions, each answered by a list of what is known, never of what is harmful: does a clause
leave columns and rows as they were (`_HARMLESS`), and if not, which columns does it drop, rename,
define again or add, and which values do existing rows hold in those that it adds? Either all of a
clause is understood, or nothing is known of the statement's columns: one more word can always
change a column's meaning. Only those defaults are known whose value does not depend on a character
set, a time zone, a mode of the server or an expression.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal, InvalidOperation

from tideline.contract.steps import ColumnStep, StepKind
from tideline_capture.sources.mysql.ddl.tokens import NOTHING, DdlWords, Token, TokenShape, Unclear

# A clause is matched as one text, in which a space ends every token: a word in capitals, ` for a
# quoted name, ' for a string, and symbols as they are.
_NAME = r"(?:` |(?!PRIMARY )[^\s`'(),=.]+ )"
_VALUE = r"(?:' |` |[^\s`'(),=]+ )"
_OPTIONS = (
    "AUTO_INCREMENT|AVG_ROW_LENGTH|CHECKSUM|COMMENT|COMPRESSION|DELAY_KEY_WRITE|ENCRYPTED"
    "|ENCRYPTION|ENCRYPTION_KEY_ID|KEY_BLOCK_SIZE|MAX_ROWS|MIN_ROWS|PACK_KEYS|PAGE_CHECKSUM"
    "|PAGE_COMPRESSED|PAGE_COMPRESSION_LEVEL|ROW_FORMAT|STATS_AUTO_RECALC|STATS_PERSISTENT"
    "|STATS_SAMPLE_PAGES|TABLE_CHECKSUM|TRANSACTIONAL|ALGORITHM|LOCK"
)
# Engines that keep rows; BLACKHOLE does not.
_OPTION = (
    rf"(?:(?:{_OPTIONS}) (?:= )?{_VALUE}"
    rf"|(?:DEFAULT )?(?:CHARACTER SET|CHARSET|COLLATE) (?:= )?{_VALUE}"
    "|ENGINE (?:= )?(?:INNODB|MYISAM|ARIA|ROCKSDB) )"
)
_HARMLESS = re.compile(
    "|".join(
        (
            r"ADD (?:INDEX|KEY|FULLTEXT|SPATIAL|UNIQUE|FOREIGN KEY|CHECK) .*",
            r"ADD VECTOR (?:INDEX|KEY|\() .*",
            rf"ADD CONSTRAINT {_NAME}??(?:UNIQUE|FOREIGN KEY|CHECK) .*",
            r"ADD PARTITION .*",
            rf"DROP (?:INDEX|KEY|CONSTRAINT|FOREIGN KEY|CHECK) (?:IF EXISTS )?{_NAME}",
            rf"RENAME (?:INDEX|KEY) {_NAME}TO {_NAME}",
            rf"ALTER (?:COLUMN )?{_NAME}(?:SET DEFAULT .*|DROP DEFAULT |SET (?:IN)?VISIBLE )",
            rf"ALTER (?:INDEX|KEY) {_NAME}(?:VISIBLE |INVISIBLE |(?:NOT )?IGNORED )",
            rf"ALTER (?:CHECK|CONSTRAINT) {_NAME}(?:NOT )?ENFORCED ",
            r"(?:ENABLE|DISABLE) KEYS ",
            r"(?:WITH|WITHOUT) VALIDATION ",
            r"FORCE ",
            rf"{_OPTION}+",
        )
    ),
    re.DOTALL,
)
_TYPE = re.compile(
    "BIT|BOOL|BOOLEAN|TINYINT|SMALLINT|MEDIUMINT|INT|INTEGER|BIGINT|DECIMAL|DEC|NUMERIC|FIXED"
    "|FLOAT|DOUBLE|REAL|DATE|DATETIME|TIMESTAMP|TIME|YEAR|CHAR|VARCHAR|NCHAR|NVARCHAR|BINARY"
    "|VARBINARY|TINYBLOB|BLOB|MEDIUMBLOB|LONGBLOB|TINYTEXT|TEXT|MEDIUMTEXT|LONGTEXT|ENUM|SET|JSON"
    "|UUID|INET4|INET6|VECTOR|GEOMETRY|POINT|LINESTRING|POLYGON|MULTIPOINT|MULTILINESTRING"
    "|MULTIPOLYGON|GEOMETRYCOLLECTION"
)
"""Types of columns, of which one word is enough."""
_CODED = re.compile("N?(?:VAR)?CHAR|(?:TINY|MEDIUM|LONG)?TEXT|ENUM|SET|JSON")
"""Types whose columns have a character set; one that the definition does not name is the table's.
"""
_INTEGERS = {"TINYINT": 8, "BOOL": 8, "BOOLEAN": 8, "SMALLINT": 16, "MEDIUMINT": 24, "INT": 32}
_INTEGERS |= {"INTEGER": 32, "BIGINT": 64}
_DECIMALS = ("DECIMAL", "DEC", "NUMERIC", "FIXED")
_TEXTS = ("CHAR", "VARCHAR")
_FLAGS = (
    "UNSIGNED", "SIGNED", "ZEROFILL", "PRECISION", "VARYING", "BINARY", "ASCII", "UNICODE",
    "VISIBLE", "INVISIBLE", "COMPRESSED", "NULL", "FIRST",
)  # fmt: skip
_VALUED = ("COMMENT", "COLUMN_FORMAT", "STORAGE", "AFTER")
_NO_NAMES = ("PRIMARY", "FOREIGN", "INDEX", "KEY", "UNIQUE", "FULLTEXT", "SPATIAL", "CONSTRAINT",
             "CHECK", "PARTITION")  # fmt: skip
"""Words that no column has as its name unless they are quoted."""
_PLAIN = re.compile(r"[ !#-&(-\[\]-~]*")
"""Letters that every character set has, and that no rule of quoting changes."""
_NUMBER = re.compile(r"-?[0-9]+(?:\.[0-9]+)?")


@dataclass(frozen=True, slots=True)
class ColumnChanges:
    """The steps of an ALTER TABLE.

    ``steps`` are all changes to columns. ``converts``: some columns are defined again, and where
    that cannot hold their values, only a strict server refuses it. ``recodes``: some of these are
    texts, which may have another character set now; a value generated from the bytes of such a
    column (LENGTH) is another value then, and in no row event.
    """

    steps: tuple[ColumnStep, ...]
    converts: bool
    recodes: bool


@dataclass(frozen=True, slots=True)
class AlterTable:
    """The effect of an ALTER TABLE. ``neutral``: existing rows have the values they had, and NULL
    in new columns. ``columns`` is None where a clause is not understood."""

    neutral: bool
    columns: ColumnChanges | None


class AlterTableReader:
    """Reads the clauses of an ALTER TABLE, one after another, each from its first word on."""

    def __init__(self) -> None:
        self._steps: list[ColumnStep] = []
        self._redefined = self._recodes = self._is_unclear = False

    def read(self, tokens: Sequence[Token], schema: str) -> None:
        """Read the next clause."""
        if self._is_unclear or _is_harmless(tokens):
            return
        try:
            found, kind = _read_clause(DdlWords(tokens, schema))
        except Unclear:
            self._is_unclear = True
            return
        self._steps += found
        self._redefined |= bool(kind)
        self._recodes |= _CODED.fullmatch(kind) is not None

    def end(self) -> AlterTable:
        """Return the effect of all of them."""
        if self._is_unclear:
            return AlterTable(neutral=False, columns=None)
        steps = tuple(self._steps)
        new_nulls = all(step.kind is StepKind.ADD and step.default is None for step in steps)
        columns = ColumnChanges(steps, self._redefined, self._recodes)
        return AlterTable(new_nulls and not self._redefined, columns)


def _is_harmless(clause: Sequence[Token]) -> bool:
    """Return whether this clause is known to leave columns, and existing rows, as they were."""
    return _HARMLESS.fullmatch("".join(f"{_written(token)} " for token in clause)) is not None


def _written(token: Token) -> str:
    if token.shape is TokenShape.STRING:
        return "'"
    if token.shape is TokenShape.NAME:
        return "PRIMARY" if token.text.upper() == "PRIMARY" else "`"
    return token.upper


def _read_clause(clause: DdlWords) -> tuple[list[ColumnStep], str]:
    """Return its effect on columns, and the type (one word) of the one that it defines again."""
    if clause.accept("RENAME", "COLUMN"):
        return [_read_rename(clause)], ""
    if clause.accept("DROP"):
        return [_read_drop(clause)], ""
    if clause.accept("ADD"):
        clause.accept("COLUMN")
        clause.accept("IF", "NOT", "EXISTS")
        return list(_read_added(clause)), ""
    changes = clause.accept("CHANGE")
    if not changes and not clause.accept("MODIFY"):
        raise Unclear
    clause.accept("COLUMN")
    was = _column_name(clause) if changes else ""
    defined = _Definition.read(clause)
    step = ColumnStep(StepKind.RENAME, defined.name, was=was)
    return [step] if changes and defined.name != was else [], defined.kind


def _read_rename(clause: DdlWords) -> ColumnStep:
    was = clause.name()
    if not clause.accept("TO"):
        raise Unclear
    step = ColumnStep(StepKind.RENAME, clause.name(), was=was)
    _end(clause)
    return step


def _read_drop(clause: DdlWords) -> ColumnStep:
    clause.accept("COLUMN")
    clause.accept("IF", "EXISTS")
    if clause.peek().upper in ("SYSTEM", "PERIOD"):
        raise Unclear
    step = ColumnStep(StepKind.DROP, _column_name(clause))
    clause.any_of("RESTRICT", "CASCADE")
    _end(clause)
    return step


def _read_added(clause: DdlWords) -> Iterator[ColumnStep]:
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


def _column_name(words: DdlWords) -> str:
    if words.peek().upper in _NO_NAMES:
        raise Unclear
    return words.name()


def _value(words: DdlWords) -> Token:
    token = words.next()
    if token is NOTHING:
        raise Unclear
    return token


def _end(clause: DdlWords) -> None:
    if clause:
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
    has_default: bool = False
    default: str | None = None
    quoted: bool = False

    @classmethod
    def read(cls, words: DdlWords, *, listed: bool = False) -> _Definition:
        """Read up to the end of the clause, or of the column in a list. Raises Unclear."""
        defined = cls(_column_name(words), words.next().upper)
        if _TYPE.fullmatch(defined.kind) is None:
            raise Unclear
        if words.accept("("):
            defined.sizes = tuple(_read_sizes(words))
        while words and not (listed and words.peek().upper in (",", ")")):
            defined._take(words)
        if defined.null and defined.not_null:
            raise Unclear
        if defined.kind == "TIMESTAMP" and not (defined.null or defined.not_null):
            raise Unclear  # It may be NOT NULL without saying so.
        return defined

    def _take(self, words: DdlWords) -> None:
        if words.accept("NOT", "NULL"):
            self.not_null = True
        elif words.accept("DEFAULT"):
            self._take_default(words)
        elif words.accept("UNIQUE"):
            words.accept("KEY")  # KEY alone is the primary key.
        elif words.accept("CHARACTER", "SET") or words.any_of("CHARSET", "COLLATE"):
            words.accept("=")
            self.binary |= _value(words).text.lower() == "binary"
        elif words.any_of(*_VALUED):
            _value(words)
        else:
            flag = words.any_of(*_FLAGS)
            if not flag:
                raise Unclear
            self.unsigned |= flag in ("UNSIGNED", "ZEROFILL")
            self.null |= flag == "NULL"

    def _take_default(self, words: DdlWords) -> None:
        if self.has_default:
            raise Unclear
        self.has_default = True
        if words.accept("NULL"):
            return
        sign = "-" if words.accept("-") else ""
        if not sign:
            words.accept("+")
        token = words.next()
        self.quoted = token.shape is TokenShape.STRING
        if self.quoted and not sign:
            self.default = token.text
            return
        text = {"TRUE": "1", "FALSE": "0"}.get(token.upper, token.text)
        if words.accept("."):
            text += f".{words.next().text}"
        self.default = sign + text
        if token.shape is not TokenShape.WORD or not _NUMBER.fullmatch(self.default):
            raise Unclear

    def filled(self) -> str | None:
        """Return the value that existing rows hold in it when it is added. Raises Unclear where
        that is not known."""
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


def _read_sizes(words: DdlWords) -> Iterator[int]:
    """Yield the numbers in a type's parentheses."""
    while not words.accept(")"):
        token = words.next()
        if token is NOTHING or token.upper == "(":
            raise Unclear
        if token.text.isdecimal() and token.shape is TokenShape.WORD:
            yield int(token.text)
