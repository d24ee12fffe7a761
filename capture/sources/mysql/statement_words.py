"""A statement's tokens, taken one after another."""

from __future__ import annotations

from collections.abc import Sequence

from capture.sources.mysql.sql_tokens import Shape, Token
from capture.sources.mysql.statement import Kind, Statement
from tideline.contract.schema import TableId

NOTHING = Token(Shape.MARK, "")
"""What comes after the last token."""


class Unclear(Exception):
    """The statement is not of a form that is known here."""


class Words:
    """The tokens that are left. ``taken`` are the keywords it begins with, as far
    as they were accepted."""

    def __init__(self, found: Sequence[Token], schema: str) -> None:
        self.taken: list[str] = []
        self._found = found
        self.schema = schema
        self._at = 0

    def next(self) -> Token:
        token = self._found[self._at] if self._at < len(self._found) else NOTHING
        self._at += 1
        return token

    def accept(self, *words: str) -> bool:
        """Take these words if they come next, all of them."""
        ahead = self._found[self._at : self._at + len(words)]
        if tuple(token.upper for token in ahead) != words:
            return False
        if len(self.taken) == self._at:
            self.taken += words
        self._at += len(words)
        return True

    def any_of(self, *words: str) -> str:
        """Take the one of these words that comes next; '' when none does."""
        return next((word for word in words if self.accept(word)), "")

    def rest(self) -> Sequence[Token]:
        return self._found[self._at :]

    def name(self) -> str:
        token = self.next()
        if token.shape not in (Shape.WORD, Shape.NAME):
            raise Unclear
        return token.text

    def table(self) -> TableId:
        name = self.name()
        return TableId(name, self.name()) if self.accept(".") else TableId(self.schema, name)

    def tables(self) -> tuple[TableId, ...]:
        """A list of tables, with commas between them."""
        found = [self.table()]
        while self.accept(","):
            found.append(self.table())
        return tuple(found)

    def within(self, found: Sequence[Token]) -> Words:
        """Some tokens of this statement, to be taken by themselves."""
        return Words(found, self.schema)

    def made(self, kind: Kind) -> Statement:
        return Statement(kind, " ".join(self.taken))
