"""What the demo wants of a database: a shop in it, traffic on it, its rows as text, its log's end.

``urls`` are those of the shop's owner, with the password in them, unless they are said to be the
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
    """How many rows the shop begins with; items, payments and the rest follow from these."""

    customers: int = 20_000
    products: int = 1_000
    orders: int = 100_000
    coupons: int = 500

    def put_into(self, statement: str) -> str:
        """``%(customers)s`` and the like replaced; the other percent signs are modulo operators."""
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
    """A server of the demo's own."""

    def start(self) -> object:
        """Start it, with the empty database for the shop."""

    def remove(self) -> None:
        """Stop it and remove its data."""

    def url(self, *, user: str | None = None, password: str | None = None) -> str:
        """The shop's address, for its owner when no user is given."""


class SourceWords(Protocol):
    """How the traffic's statements say what the databases say differently."""

    @property
    def now(self) -> str:
        """The clock's time, not the transaction's, as an expression."""

    @property
    def merged_preferences(self) -> str:
        """``preferences`` with a JSON object (the one placeholder) merged in, as an expression."""

    @property
    def no_end(self) -> str:
        """A date that no warehouse has, as a literal."""

    def texts(self, values: Sequence[str | None] | None) -> object:
        """A list of texts as the value of ``customers.tags``."""


class ShopDatabase(Protocol):
    """One kind of database."""

    @property
    def title(self) -> str:
        """What it is called."""

    @property
    def schema(self) -> str:
        """The first half of every table's name."""

    @property
    def words(self) -> SourceWords: ...

    def new_server(self, folder: Path) -> ShopServer:
        """A server that was not started yet, in ``folder``."""

    def connect(self, url: str, name: str) -> Any:
        """A DB-API connection in autocommit, which the server knows as ``name``."""

    def create_shop(self, url: str, size: Size) -> None:
        """Create tables and rows in the empty database at ``url``."""

    def grant_capture(self, url: str, password: str) -> None:
        """Make the user `CAPTURE_USER`, who owns nothing and may do what capture needs."""

    def read_table(self, url: str, table: str) -> SourceTable:
        """Every row of ``table`` (``schema.name``) in one snapshot, held in memory."""

    def log_end(self, url: str) -> SourcePosition:
        """Where the server's log ends now."""

    def reached(self, position: SourcePosition, end: SourcePosition) -> bool:
        """Whether ``position`` is at ``end``, or behind it."""
