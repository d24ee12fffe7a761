"""``tideline plan``: shows what a merge would do now. Stores and requests nothing; no Spark."""

from __future__ import annotations

from collections.abc import Sequence

from tideline.contract.open_state import OpenState
from tideline.contract.printable import command
from tideline.contract.schema import parse_table
from tideline.planner import pending_requests, preview_plan
from tideline.planner.policies import policy_of
from tideline.planner.verified import settled_tables
from tideline.settings import Settings
from tideline.store.chain import Chain
from tideline.store.objects import open_store
from tideline_console.output import say, write_document
from tideline_console.plan_document import PlanPreview, TableOptions, TablePreview, preview
from tideline_console.tables import layout_differs, print_table, vectors_differ

_UNITS = ("B", "kB", "MB", "GB", "TB")


def run(settings: Settings, tables: Sequence[str], *, as_json: bool) -> None:
    """Print the preview, as text or as its document."""
    found = read_preview(settings, list(tables) or None)
    if as_json:
        write_document(found)
    else:
        print_preview(found)


def read_preview(settings: Settings, tables: Sequence[str] | None) -> PlanPreview:
    """Make the preview of a merge now. Raises as the planner does."""
    plan = preview_plan(settings, tables)
    store = open_store(settings.store)
    chain = Chain(store, settings.pipeline)
    tail = chain.tail()
    state = OpenState()
    if tail is not None:
        found = chain.open_state(tail)
        state = settled_tables(settings, store, tail.manifest, found, found.tables)
    names = sorted(state.tables if tables is None else tables)
    options = {name: _options(settings, name) for name in names}
    return preview(plan, state, options, pending_requests(settings, tables))


def _options(settings: Settings, name: str) -> TableOptions:
    own = settings.of_table(parse_table(name))
    return TableOptions(policy_of(settings, name), own.mode, own.vectors, own.layout)


def print_preview(found: PlanPreview) -> None:
    if not found.tables:
        say(f"nothing to merge up to manifest {found.to_manifest}")
    else:
        say(f"{len(found.tables)} tables up to manifest {found.to_manifest}")
        print_table(
            ("table", "does", "from", "to", "rows", "parts", "size", "mode"),
            (_row(one) for one in found.tables),
        )
    for table in found.tables:
        _print_table(table)
    for name in found.described:
        say(f"{name} gets the comments and NOT NULL that the source has now")
    for name, reason in sorted(found.delayed.items()):
        say(f"{name} is delayed: {reason}")
    for name, kinds in sorted(found.stops_at.items()):
        say(f"{name} will stop before the next: {', '.join(kinds)}")
    for dump in found.dumps:
        scope = "the whole table" if dump.keys is None else f"{dump.keys:,} rows"
        say(f"{dump.table}: a dump of {scope} is due: {dump.why}")
    if found.to_manifest < found.tail:
        say(f"more waits than one plan takes: the chain is at manifest {found.tail}")


def _row(one: TablePreview) -> tuple[object, ...]:
    return (
        one.table,
        one.action,
        one.after_manifest,
        one.to_manifest,
        one.rows,
        one.parts,
        _size(one.bytes),
        one.mode.value,
    )


def _print_table(table: TablePreview) -> None:
    if table.deletes_unseen:
        say(f"{table.table}: rows that a finished dump or a truncate did not leave are deleted")
    if table.switch_to is not None:
        say(
            f"{table.table} is kept as {table.mode.value}, the settings say"
            f" {table.switch_to.value}: {command('rebuild', table.table)} switches it"
        )
    if table.vectors_to is not None:
        say(vectors_differ(table.table, wanted=table.vectors_to))
    if table.layout_to is not None:
        say(layout_differs(table.table, table.layout, table.layout_to))
    if table.steps:
        print_table(
            ("schema change", "seq", "in the target", "cost"),
            ((f"{table.table}: {s.change}", s.seq, s.effect, s.cost) for s in table.steps),
        )


def _size(size_bytes: int) -> str:
    size, unit = float(size_bytes), 0
    while size >= 1_000 and unit < len(_UNITS) - 1:
        size, unit = size / 1_000, unit + 1
    return f"{size:.0f} {_UNITS[unit]}" if unit == 0 else f"{size:.1f} {_UNITS[unit]}"
