"""Prints plain tables on a terminal, and formats their values."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from tideline.contract.clocks import utc_text
from tideline.contract.printable import command, printable
from tideline.contract.table_layout import TableLayout

_WIDTH_WITHOUT_TERMINAL = 240


def make_console() -> Console:
    """Open standard output, as wide as its terminal, and wide enough for a file or a pipe."""
    console = Console(markup=False, highlight=False, emoji=False)
    if not console.is_terminal:
        console.width = _WIDTH_WITHOUT_TERMINAL
    return console


def print_table(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Print a table with numbers to the right; None as ``-``, texts `printable`."""
    listed = [[_text(value) for value in row] for row in rows]
    numeric = [
        bool(listed)
        and all(row[at].lstrip("-").replace(",", "").isdigit() or row[at] == "-" for row in listed)
        for at in range(len(columns))
    ]
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    for name, right in zip(columns, numeric, strict=True):
        table.add_column(name, justify="right" if right else "left", overflow="fold")
    for row in listed:
        table.add_row(*row)
    make_console().print(table)


def moment(at_us: int | None) -> str | None:
    """Format µs since 1970 as a cell of a table (`utc_text`)."""
    return None if at_us is None else utc_text(at_us)


def vectors_differ(table: str, *, wanted: bool) -> str:
    """Return the text for a target whose deletion vectors differ from the settings."""
    kept, asked = ("without", "with") if wanted else ("with", "without")
    return (
        f"{table} is kept {kept} deletion vectors, the settings say {asked}:"
        f" {command('rebuild', table)} switches it"
    )


def layout_differs(table: str, layout: TableLayout, wanted: TableLayout) -> str:
    """Return the text for a target whose layout differs from the settings."""
    return f"{table} is {layout}, the settings say {wanted}: {command('rebuild', table)} applies it"


def format_differs(table: str, held: str, wanted: str) -> str:
    """Return the text for a target whose table format differs from the settings."""
    return (
        f"{table} has the table format {held}, the settings say {wanted}:"
        f" {command('rebuild', table, '--to', wanted)} moves it"
    )


def unread(table: str, unread_by: Mapping[str, Sequence[str]]) -> str:
    """Return the text for a target that readers named in the settings cannot read."""
    listed = "; ".join(f"{name}: {', '.join(had)}" for name, had in sorted(unread_by.items()))
    return (
        f"{table} has features that its readers cannot read ({listed}):"
        f" {command('rebuild', table)} makes it without those that its columns do not need"
    )


def _text(value: object) -> str:
    if value is None:
        return "-"
    return (
        f"{value:,}"
        if isinstance(value, int) and not isinstance(value, bool)
        else printable(str(value))
    )
