"""``tideline doctor``: checks everything that capture and merge need, before anything runs.

It changes only a probe object in the store and one in the warehouse's folder, and makes and removes
a namespace in a catalog of Iceberg tables, and tables in the datasets of BigQuery ones.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from pathlib import Path

from tideline.contract.errors import Misconfigured, Unavailable
from tideline.settings import Settings
from tideline.store.chain import Chain
from tideline.store.objects import open_store
from tideline_capture.sources.base import ChainTail, Source
from tideline_capture.sources.finding import Finding, error, ok, warning
from tideline_capture.sources.registry import source_of
from tideline_console.checks import (
    attempt,
    check_cluster,
    check_control,
    check_java,
    check_redis_tls,
    check_store,
    check_store_tls,
    check_warehouse,
    impatient,
    report,
)
from tideline_console.doctor_bigquery import check_bigquery
from tideline_console.doctor_catalog import check_catalog
from tideline_console.doctor_iceberg import check_iceberg
from tideline_console.doctor_jars import check_named_jars
from tideline_console.doctor_layouts import check_layouts
from tideline_console.modes import check_modes

_STAND_IN = "right after a failover to its replica; else point source.url at the right server"


def run(settings: Settings, path: Path) -> int:
    """Print every finding with its fix; return 0 when none keeps capture from starting. ``path``:
    the settings file."""
    found = chain(examine(settings), check_modes(settings, path))
    return report(found, good="capture may start", bad="capture may not start")


def examine(settings: Settings) -> Iterator[Finding]:
    """Yield all findings, source first, each as soon as it is known."""
    yield from check_source(settings)
    yield from attempt("store", lambda: check_store(settings))
    yield from check_store_tls(settings)
    yield from map(_without_queue, attempt("control", lambda: check_control(settings)))
    yield from check_redis_tls(settings)
    yield from attempt("warehouse", lambda: check_warehouse(settings))
    yield from attempt("layout", lambda: check_layouts(settings), grave=False)
    yield from check_catalog(settings)
    yield from check_iceberg(settings)
    yield from check_bigquery(settings)
    cluster = settings.merge.master
    yield from attempt("cluster", lambda: list(check_cluster(settings, cluster)), grave=False)
    yield from attempt("java", check_java, grave=False)
    yield from attempt("jars", lambda: check_named_jars(settings), grave=False)


def check_source(settings: Settings) -> Iterator[Finding]:
    """Yield all findings about the source, and whether the chain is of it."""
    try:
        source = source_of(settings)
    except Misconfigured as failed:
        yield error("source", failed.message, failed.hint)
        return
    found = attempt("source", lambda: source.check(lambda: _tail(settings)))
    yield from found
    if not any(one.level == "error" for one in found):
        yield from attempt("identity", lambda: [check_identity(source, _tail(settings))])
    elif not any(one.name == "encryption" for one in found):
        yield from source.check_url()


def _without_queue(found: Finding) -> Finding:
    """Lower a finding about the queue: without it capture only lacks requests."""
    if found.level != "error":
        return found
    text = f"{found.message}: capture runs without it, dumps and verifications cannot be requested"
    return warning(found.name, text, found.fix)


def check_identity(source: Source, chain_end: ChainTail) -> Finding:
    """Check that the source is the server that the chain was read from, or may replace it."""
    known, tail = chain_end
    if not known:
        text = "whether the chain is of this source is not known: the store cannot be asked"
        return warning("identity", text, "see the finding about the store")
    if tail is None:
        return ok("identity", "the chain is empty: it begins with this source")
    found = source.identity()
    if found == tail.identity:
        return ok("identity", "the source is the server that the chain is of")
    text = f"the source is {found}, the chain is of {tail.identity}"
    if found.kind == tail.identity.kind and tail.position.portable:
        return warning("identity", f"{text}: capture goes on from the same position", _STAND_IN)
    fix = "point source.url at the right server, or start a new pipeline under another name"
    return error("identity", text, fix)


def _tail(settings: Settings) -> ChainTail:
    """Read the chain's end, unless the store cannot be reached: its own check reports why."""
    try:
        entry = Chain(open_store(impatient(settings.store)), settings.pipeline).tail()
    except (Unavailable, Misconfigured):
        return ChainTail(False, None)
    return ChainTail(True, None if entry is None else entry.manifest)
