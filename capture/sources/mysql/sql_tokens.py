"""Statements of the log, cut into words, names, strings and marks.

Only as much of the servers' lexical rules as it takes to never take a comment or a string for
something else. The body of ``/*! … */`` was executed: servers log those that they skip as plain
comments. The body of ``/*M! … */`` was executed by MariaDB and is a plain comment to MySQL; its
tokens are marked as conditional.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from enum import Enum, auto
from typing import NamedTuple

from capture.sources.mysql.charsets import decode_label

_UNICODE = "utf8mb4"
_ASCII_IN_CHARACTERS = {
    "sjis": "cp932",
    "cp932": "cp932",
    "gbk": "gbk",
    "big5": "big5hkscs",
    "gb18030": "gb18030",
}
"""Charsets whose characters have second bytes that look like quotes or backslashes, with the codec
that tells the characters apart."""


class Shape(Enum):
    """What a token is. A `WORD` is not quoted: a keyword or a name; a `NAME` is."""

    WORD = auto()
    NAME = auto()
    STRING = auto()
    MARK = auto()


class Token(NamedTuple):
    """``text`` is the word as written, the quoted name or string without its quotes, or the mark;
    ``conditional`` where it stands in a comment that only MariaDB executes."""

    shape: Shape
    text: str
    conditional: bool = False

    @property
    def upper(self) -> str:
        """The word in capitals, the mark; '' for what is quoted."""
        return self.text.upper() if self.shape in (Shape.WORD, Shape.MARK) else ""


class NotTokens(ValueError):
    """The text ends in a comment, a name or a string."""


def tokens(
    text: bytes, *, charset: str, ansi_quotes: bool, no_backslash_escapes: bool
) -> Iterator[Token]:
    """The tokens of a statement in the client's ``charset``, one after another.

    Raises `NotTokens`. Texts of strings are undefined beyond their being strings when they hold
    escapes; those of names are exact.
    """
    if charset in _ASCII_IN_CHARACTERS:
        decoded = text.decode(_ASCII_IN_CHARACTERS[charset], "surrogateescape")
        text = decoded.encode("utf-8", "surrogateescape")
        charset = _UNICODE
    if charset == "binary":
        charset = _UNICODE
    # One character per byte from here on: all that is looked for is ASCII.
    source = text.decode("latin-1")
    pattern = _PATTERNS[no_backslash_escapes]
    inside = conditional = False
    at = 0
    while at < len(source):
        match = pattern.match(source, at)
        if match is None:
            raise NotTokens
        at = match.end()
        kind, found = match.lastgroup, match.group()
        if kind == "open":
            inside, conditional = True, "M" in found
        elif kind == "close" and inside:
            inside = conditional = False
        elif kind == "word":
            yield Token(Shape.WORD, _decoded(found, charset), conditional)
        elif kind == "name" or (kind == "double" and ansi_quotes):
            quote = found[0]
            name = found[1:-1].replace(2 * quote, quote)
            yield Token(Shape.NAME, _decoded(name, charset), conditional)
        elif kind in ("string", "double"):
            yield Token(Shape.STRING, found[1:-1], conditional)
        elif kind in ("mark", "close"):
            yield from (Token(Shape.MARK, mark, conditional) for mark in found)
    if inside:
        raise NotTokens


def _decoded(text: str, charset: str) -> str:
    return text if text.isascii() else decode_label(text.encode("latin-1"), charset)


def _pattern(in_quotes: str) -> re.Pattern[str]:
    return re.compile(
        rf"""
          (?P<space> \s+ | \0 | --(?=[\s\0]|\Z) [^\n]* | \# [^\n]* )
        | (?P<open> /\*M?!\d* )
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


_PATTERNS = {
    False: _pattern(r"(?:[^Q\\]++|\\.|QQ)*+"),
    True: _pattern(r"(?:[^Q]++|QQ)*+"),
}
"""By whether a backslash in a string is a backslash."""
