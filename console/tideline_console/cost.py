"""``tideline cost``: computes the object store's requests and bytes per day from a few numbers.

Values that are not given come from the settings file when there is one, else from the defaults.
Without given traffic, the pipeline's own is used, measured in its chain.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import msgspec
from rich.box import SIMPLE_HEAD
from rich.table import Table

from tideline.contract.errors import TidelineError
from tideline.contract.target_url import BIGQUERY
from tideline.cost import GB, Cost, Prices, RequestRates, Traffic, cost_of
from tideline.settings import Capture, Retention, Settings, load_settings, settings_path
from tideline_console.arguments import CostOptions
from tideline_console.output import say, write_document
from tideline_console.tables import make_console

if TYPE_CHECKING:
    from tideline_console.traffic import Measured

RETRY_S = 5.0
_BIGQUERY = (
    "what BigQuery bills is not counted here: it depends on the bytes of the tables that each MERGE"
    " reads, which the chain does not know. Each merge's receipt has what it was billed for"
    " (bytes_billed), and `tideline status --metrics` the sum by table; storage is on Google's bill"
    " alone (docs/BIGQUERY.md#cost)"
)
Values = TypeVar("Values", Traffic, RequestRates)


class CostReport(msgspec.Struct, frozen=True, rename={"rates": "pace"}):
    """The JSON document: the inputs, and the costs of a day at each flush interval. ``measured``:
    the source of the traffic, None where it was given or is the model's. ``not_counted``: what
    costs besides, in words."""

    traffic: Traffic
    rates: RequestRates
    prices: Prices
    days: tuple[Cost, ...]
    measured: Measured | None = None
    not_counted: tuple[str, ...] = ()


def run(asked: CostOptions, prices: Prices, config: Path | None, *, as_json: bool) -> None:
    """Print the costs. Raises Misconfigured for a settings file with mistakes."""
    path = settings_path(config)
    settings = load_settings(path) if config is not None or path.exists() else None
    measured = _measure(settings) if settings is not None and not asked.has_traffic else None
    answer = compute(asked, prices, settings, measured)
    if as_json:
        write_document(answer)
    else:
        _print(answer)


def _measure(settings: Settings) -> Measured | None:
    """Measure the pipeline's traffic; None, with the reason on standard error, if impossible."""
    from tideline_console.traffic import measure  # needs the planner's packages

    store = settings.store.model_copy(update={"retry_s": min(settings.store.retry_s, RETRY_S)})
    why = "its chain is too short for a rate"
    try:
        measured = measure(settings.model_copy(update={"store": store}))
    except TidelineError as error:
        measured, why = None, error.message
    if measured is None:
        say(
            f"tideline: the traffic of pipeline {settings.pipeline} is not known, so this is the"
            f" model's: {why}",
            error=True,
        )
    return measured


def compute(
    asked: CostOptions, prices: Prices, settings: Settings | None, measured: Measured | None = None
) -> CostReport:
    """Compute the costs from the given figures, and from ``measured`` and ``settings`` (None:
    their defaults) for the rest."""
    capture = Capture() if settings is None else settings.capture
    retention = Retention() if settings is None else settings.retention
    tables = asked.tables or _listed(settings) or asked.busy or Traffic().tables
    traffic = Traffic(tables=tables, busy=min(tables, asked.busy or tables))
    rates = RequestRates(
        heartbeat_s=capture.heartbeat_s,
        catalog_interval_s=capture.catalog_interval_s,
        takeover_after_s=capture.takeover_after_s,
        segment_bytes_max=capture.segment_bytes_max,
        parts_days=retention.parts_days,
        removal_interval_s=retention.interval_s,
        rollup_file_bytes_max=capture.rollup_file_bytes_max,
        warehouse_in_store=settings is None or _in_store(settings),
    )
    if measured is not None:
        traffic, rates = measured.traffic(), measured.rates(rates)
    flushes = asked.flush_s or (capture.flush_interval_s,)
    traffic, rates = _with(traffic, asked), _with(rates, asked)
    days = tuple(
        cost_of(traffic, msgspec.structs.replace(rates, flush_s=flush_s), prices)
        for flush_s in flushes
    )
    rates = msgspec.structs.replace(rates, flush_s=flushes[0])
    return CostReport(traffic, rates, prices, days, measured, _not_counted(settings))


def _in_store(settings: Settings) -> bool:
    """Return whether merges cause requests of an object store for their tables."""
    return settings.warehouse_storage.in_object_store and settings.formats != {BIGQUERY}


def _not_counted(settings: Settings | None) -> tuple[str, ...]:
    return (_BIGQUERY,) if settings is not None and BIGQUERY in settings.formats else ()


def _listed(settings: Settings | None) -> int | None:
    """Return the number of tables in the settings, if these list each one."""
    tables = () if settings is None else settings.source.tables
    return len(tables) if not any(sign in one for one in tables for sign in "*?[") else None


def _with(values: Values, asked: CostOptions) -> Values:
    """Replace ``values`` by those given on the command line under the same names."""
    names = {"changes_per_s", "row_bytes", "heartbeat_s", "merge_every_s", "passive"}
    given = {name: getattr(asked, name) for name in names & set(values.__struct_fields__)}
    some = {name: value for name, value in given.items() if value is not None}
    return msgspec.structs.replace(values, **some)


def _print(answer: CostReport) -> None:
    traffic = answer.traffic
    if (seen := answer.measured) is not None:
        say(
            f"measured in manifests {seen.first:,} to {seen.last:,},"
            f" {seen.span_s / 60:,.0f} minutes: {seen.changes:,} changes in {seen.parts:,} parts"
            f" ({seen.parts_per_day:,.0f} a day);"
            f" {seen.dumped:,} dumped rows are not counted"
        )
    say(
        f"{traffic.tables:,} tables, {traffic.busy:,} of them busy; {traffic.changes_per_s:,g}"
        f" changes per second, {traffic.row_bytes:,g} bytes each in a part. Per day:"
    )
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    table.add_column("flush interval")
    for cost in answer.days:
        table.add_column(f"{cost.flush_s:g} s", justify="right")
    for name, value in _lines(answer.days):
        table.add_row(name, *(value(cost) for cost in answer.days))
    make_console().print(table)
    for line in answer.not_counted:
        say(line)


def _lines(days: Sequence[Cost]) -> Iterator[tuple[str, Callable[[Cost], str]]]:
    yield "manifests", lambda cost: _count(cost.manifests)
    yield "  of them heartbeats", lambda cost: _count(cost.heartbeats)
    yield "PUTs and LISTs", lambda cost: _count(sum(cost.puts.values()))
    for name in days[0].puts:
        yield f"  {name}", lambda cost, name=name: _count(cost.puts[name])  # type: ignore[misc]
    yield "GETs and HEADs", lambda cost: _count(sum(cost.gets.values()))
    for name in days[0].gets:
        yield f"  {name}", lambda cost, name=name: _count(cost.gets[name])  # type: ignore[misc]
    yield "DELETEs", lambda cost: _count(cost.deletes)
    yield "GB written", lambda cost: f"{sum(cost.bytes_written.values()) / GB:,.2f}"
    for name in days[0].bytes_written:
        yield f"  {name}", lambda cost, name=name: f"{cost.bytes_written[name] / GB:,.2f}"  # type: ignore[misc]
    yield "GB read", lambda cost: f"{cost.bytes_read / GB:,.2f}"
    yield "GB stored after a year", lambda cost: f"{cost.stored_bytes / GB:,.1f}"
    yield "price of a month then", lambda cost: f"{cost.price_per_month:,.2f}"


def _count(value: float) -> str:
    return f"{round(value):,}"
