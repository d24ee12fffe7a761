"""The demo's interface to a database: a shop, traffic on it, its rows as text, its log's end.

``urls`` are those of the shop's owner, with the password in them, unless described as the
capture's.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, TypeAlias

import pyarrow as pa

from tideline.contract.position import SourcePosition

Texts: TypeAlias = "pa.ChunkedArray[Any]"

DATABASE = "shop"
CAPTURE_USER = "tideline"
NAMES = (
    "customers",
    "addresses",
    "products",
    "coupons",
    "orders",
    "order_items",
    "payments",
    "stock_movements",
    "returns",
)


class CannotRender(Exception):
    """A type that Tideline never writes; the message names it."""


@dataclass(frozen=True, slots=True)
class Size:
    """The numbers of rows at the start; items, payments and the rest follow from these."""

    customers: int = 20_000
    products: int = 1_000
    orders: int = 100_000
    coupons: int = 500

    def put_into(self, statement: str) -> str:
        """Replace ``%(customers)s`` and the like; other percent signs are modulo operators."""
        for name in ("customers", "products", "orders", "coupons"):
            statement = statement.replace(f"%({name})s", str(getattr(self, name)))
        return statement


@dataclass(frozen=True, slots=True)
class SourceTable:
    """All rows of a table as text: one string column per column, null for NULL.

    ``as_text`` gives a warehouse's column as the text that this database prints for the same
    values, null where they are null; it raises CannotRender.
    """

    rows: pa.Table
    key: tuple[str, ...]
    as_text: Callable[[Texts], Texts]


class ShopServer(Protocol):
    """A server of the demo."""

    def start(self) -> object:
        """Start it, with the empty database for the shop."""

    def remove(self) -> None:
        """Stop it and remove its data."""

    def url(self, *, user: str | None = None, password: str | None = None) -> str:
        """Return the shop's address, for its owner when no user is given."""


class SourceWords(Protocol):
    """The SQL expressions of the traffic that differ between databases."""

    @property
    def now(self) -> str:
        """Return an expression for the clock's time, not the transaction's."""

    @property
    def merged_preferences(self) -> str:
        """Return an expression: ``preferences`` with a JSON object (the placeholder) merged in."""

    @property
    def no_end(self) -> str:
        """Return a literal of a date that no warehouse has."""

    def texts(self, values: Sequence[str | None] | None) -> object:
        """Convert a list of texts to a value of ``customers.tags``."""


class ShopDatabase(Protocol):
    """One kind of database."""

    @property
    def title(self) -> str:
        """The product's name."""

    @property
    def schema(self) -> str:
        """The first half of every table's name."""

    @property
    def words(self) -> SourceWords: ...

    def new_server(self, folder: Path) -> ShopServer:
        """Make a server in ``folder`` that is not started yet."""

    def connect(self, url: str, name: str) -> Any:
        """Open a DB-API connection in autocommit, named ``name`` on the server."""

    def create_shop(self, url: str, size: Size) -> None:
        """Create tables and rows in the empty database at ``url``."""

    def grant_capture(self, url: str, password: str) -> None:
        """Make the user `CAPTURE_USER`, which owns nothing and has the grants for capture."""

    def read_table(self, url: str, table: str) -> SourceTable:
        """Read every row of ``table`` (``schema.name``) in one snapshot into memory."""

    def log_end(self, url: str) -> SourcePosition:
        """Return the present end of the server's log."""

    def reached(self, position: SourcePosition, end: SourcePosition) -> bool:
        """Return whether ``position`` is at ``end`` or past it."""
