"""Splits logged statements into words, names, strings and symbols, and walks over these.

Only as much of the servers' lexical rules as it takes to never read a comment or a string as
something else. The body of ``/*! … */`` was executed: servers log those that they skip as plain
comments. The body of ``/*M! … */`` was executed by MariaDB and is a plain comment to MySQL.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from enum import Enum, auto
from typing import NamedTuple

from tideline.contract.schema import TableId
from tideline_capture.sources.mysql.types.charsets import decode_label

_UNICODE = "utf8mb4"
_ASCII_IN_CHARACTERS = {
    "sjis": "cp932",
    "cp932": "cp932",
    "gbk": "gbk",
    "big5": "big5hkscs",
    "gb18030": "gb18030",
}
"""Charsets whose characters have second bytes that look like quotes or backslashes, with the codec
that separates the characters."""


class TokenShape(Enum):
    """The kind of a token. A `WORD` is not quoted: a keyword or a name; a `NAME` is."""

    WORD = auto()
    NAME = auto()
    STRING = auto()
    MARK = auto()


class Token(NamedTuple):
    """A token. ``text`` is the word as written, the quoted name or string without quotes, or the
    symbol."""

    shape: TokenShape
    text: str

    @property
    def upper(self) -> str:
        """The word in capitals, the symbol; '' for a quoted token."""
        return self.text.upper() if self.shape in (TokenShape.WORD, TokenShape.MARK) else ""


NOTHING = Token(TokenShape.MARK, "")
"""The token after the last one."""
_CUT = Token(TokenShape.MARK, "…")
"""The token for everything beyond the ones kept."""
_CLAUSE_TOKENS_MAX = 200_000
"""An ENUM may have 65,535 values. A token takes some 150 bytes."""


class NotTokens(ValueError):
    """The text ends in a comment, a name or a string."""


class Unclear(Exception):
    """The statement is not of a known form."""


class DdlWords:
    """Takes the tokens of a statement, or of a part of it, one after another.

    ``taken`` are the keywords that it begins with, as far as they were accepted. Tokens are made as
    they are looked at, and not kept: a statement may have millions, of which most do not matter.
    """

    def __init__(self, found: Iterable[Token], schema: str) -> None:
        self.taken: list[str] = []
        self.schema = schema
        self._found = iter(found)
        self._ahead: deque[Token] = deque()
        self._at = self._begin = 0

    def begin(self) -> None:
        """Make the token that comes next the first one of the statement."""
        self.taken, self._begin = [], self._at

    def __bool__(self) -> bool:
        """Return whether tokens are left."""
        return self.peek() is not NOTHING

    @property
    def keywords(self) -> str:
        """The keywords that were taken, fit for messages and logs."""
        return " ".join(self.taken)

    def peek(self, ahead: int = 0) -> Token:
        """Return the token that comes next, or the one ``ahead`` of it; NOTHING at the end."""
        while len(self._ahead) <= ahead:
            self._ahead.append(next(self._found, NOTHING))
        return self._ahead[ahead]

    def next(self) -> Token:
        """Take the token that comes next; NOTHING at the end."""
        token = self.peek()
        self._at += 1
        self._ahead.popleft()
        return token

    def accept(self, *words: str) -> bool:
        """Take these words if they come next, all of them."""
        if any(self.peek(ahead).upper != word for ahead, word in enumerate(words)):
            return False
        if len(self.taken) == self._at - self._begin:
            self.taken += words
        for _ in words:
            self.next()
        return True

    def any_of(self, *words: str) -> str:
        """Take the one of these words that comes next; '' when none does."""
        upper = self.peek().upper
        return upper if upper in words and self.accept(upper) else ""

    def skip_past(self, word: str) -> None:
        """Take everything up to ``word``, and that. Raises `Unclear` when it does not come."""
        while not self.accept(word):
            if self.next() is NOTHING:
                raise Unclear

    def rest(self) -> Iterator[Token]:
        """Take all tokens that are left, one after another."""
        while self:
            yield self.next()

    def name(self) -> str:
        """Take a name, quoted or not. Raises `Unclear` when something else comes."""
        token = self.next()
        if token.shape not in (TokenShape.WORD, TokenShape.NAME):
            raise Unclear
        return token.text

    def table(self) -> TableId:
        """Take a table's name; one without a schema is in the session's, also where MariaDB lets a
        dot stand in front of it."""
        if self.accept("."):
            return TableId(self.schema, self.name())
        name = self.name()
        return TableId(name, self.name()) if self.accept(".") else TableId(self.schema, name)

    def tables(self) -> tuple[TableId, ...]:
        """Take a list of tables, with commas between them."""
        found = [self.table()]
        while self.accept(","):
            found.append(self.table())
        return tuple(found)

    def clauses(self) -> Iterator[Sequence[Token]]:
        """Split the tokens that are left at the commas outside of parentheses; drop empty parts. Of
        one that is very long, only the beginning is kept, and `_CUT`."""
        part: list[Token] = []
        depth = 0
        for token in self.rest():
            if token.upper == "," and not depth:
                if part:
                    yield part
                part = []
                continue
            depth += (token.upper == "(") - (token.upper == ")")
            if len(part) < _CLAUSE_TOKENS_MAX:
                part.append(token)
            elif part[-1] is not _CUT:
                part.append(_CUT)
        if part:
            yield part

    def within(self, part: Sequence[Token]) -> DdlWords:
        """Return a walk over a part of this statement."""
        return DdlWords(part, self.schema)


def tokens(
    text: bytes, *, mariadb: bool, charset: str, ansi_quotes: bool, no_backslash_escapes: bool
) -> Iterator[Token]:
    """Yield the tokens of a statement in the client's ``charset``, one after another, as MariaDB or
    MySQL splits it. A token after a dot is a name, whatever it is elsewhere.

    Raises `NotTokens`. Texts of strings are undefined beyond their being strings when they hold
    escapes; those of names are exact.
    """
    if charset in _ASCII_IN_CHARACTERS:
        decoded = text.decode(_ASCII_IN_CHARACTERS[charset], "surrogateescape")
        text = decoded.encode("utf-8", "surrogateescape")
        charset = _UNICODE
    if charset == "binary":
        charset = _UNICODE
    # One character per byte from here on: everything that is looked for is ASCII.
    source = text.decode("latin-1")
    pattern = _PATTERNS[mariadb, no_backslash_escapes]
    inside = False
    at = 0
    before = last = ""
    while at < len(source):
        match = pattern.match(source, at)
        if match is None:
            raise NotTokens
        at = match.end()
        kind, found = match.lastgroup, match.group()
        if kind == "open":
            inside = True
        elif kind == "close" and inside:
            inside = False
        elif kind == "word":
            # A number may end in a dot; any other token with a final dot is part of a name.
            dotted = last == "." and not before.isdecimal()
            yield Token(TokenShape.NAME if dotted else TokenShape.WORD, _decoded(found, charset))
        elif kind == "name" or (kind == "double" and ansi_quotes):
            quote = found[0]
            name = found[1:-1].replace(2 * quote, quote)
            yield Token(TokenShape.NAME, _decoded(name, charset))
        elif kind in ("string", "double"):
            yield Token(TokenShape.STRING, found[1:-1])
        elif kind in ("mark", "close"):
            yield from (Token(TokenShape.MARK, mark) for mark in found)
        if kind not in ("space", "comment", "open"):
            before, last = last, found
    if inside:
        raise NotTokens


def _decoded(text: str, charset: str) -> str:
    return text if text.isascii() else decode_label(text.encode("latin-1"), charset)


def _pattern(opened: str, in_quotes: str) -> re.Pattern[str]:
    return re.compile(
        rf"""
          (?P<space> \s+ | \0 | --(?=[\0-\x20\x7f]|\Z) [^\n]* | \# [^\n]* )
        | (?P<open> /\*{opened}\d* )
        | (?P<comment> /\* .*? \*/ )
        | (?P<close> \*/ )
        | (?P<word> [0-9A-Za-z_$\x80-\xff]+ )
        | (?P<name> ` (?:[^`]|``)*+ ` )
        | (?P<string> ' {in_quotes.replace("Q", "'")} ' )
        | (?P<double> " {in_quotes.replace("Q", '"')} " )
        | (?P<mark> (?!/\*) [^`'"] )
        """,
        re.VERBOSE | re.DOTALL | re.ASCII,
    )


_OPENED = {False: "!", True: "M?!"}
_IN_QUOTES = {False: r"(?:[^Q\\]++|\\.|QQ)*+", True: r"(?:[^Q]++|QQ)*+"}
_PATTERNS = {
    (mariadb, plain): _pattern(opened, in_quotes)
    for mariadb, opened in _OPENED.items()
    for plain, in_quotes in _IN_QUOTES.items()
}
"""The pattern by whether the server is MariaDB, and whether a backslash in a string is a
backslash."""
