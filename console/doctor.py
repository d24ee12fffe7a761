"""``tideline doctor``: look at everything that capture and merge need, before anything runs.

Nothing is changed but a probe object in the store and one in the warehouse's folder.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator

import psycopg2

from capture.sources.postgres.connect import connect
from capture.sources.postgres.finding import Finding, error, ok, warning
from capture.sources.postgres.names import publication_name, slot_name
from capture.sources.postgres.preflight import run_preflight
from console.errors import EXIT_MISCONFIGURED
from tideline.contract.errors import TidelineError
from tideline.control import Asker
from tideline.settings import Settings, Store
from tideline.store.objects import open_store
from tideline.store.probe import probe_store

RETRY_S = 5.0
_MARKS = {"ok": "ok     ", "warning": "WARNING", "error": "ERROR  "}


def run(settings: Settings) -> int:
    """Print every finding with its fix; 0 when none of them keeps capture from starting."""
    findings = []
    for finding in examine(settings):
        findings.append(finding)
        print(f"{_MARKS[finding.level]} {finding.name}: {finding.message}", flush=True)
        if finding.fix is not None:
            print(f"        fix: {finding.fix}", flush=True)
    errors = sum(finding.level == "error" for finding in findings)
    warnings = sum(finding.level == "warning" for finding in findings)
    verdict = "capture may not start" if errors else "capture may start"
    print(f"doctor: {errors} errors, {warnings} warnings: {verdict}")
    return EXIT_MISCONFIGURED if errors else 0


def examine(settings: Settings) -> Iterator[Finding]:
    """All findings, source first, each as soon as it is known."""
    yield from _attempt("source", lambda: check_source(settings))
    yield from _attempt("store", lambda: check_store(settings))
    yield from _attempt("control", lambda: check_control(settings))
    yield from _attempt("warehouse", lambda: check_warehouse(settings))
    yield from _attempt("java", check_java, grave=False)


def check_source(settings: Settings) -> list[Finding]:
    source = settings.source
    slot, publication = slot_name(settings), publication_name(settings)
    connection = connect(source, application_name=f"tideline doctor {settings.pipeline}")
    try:
        return run_preflight(
            connection,
            tables=source.tables,
            exclude=source.exclude,
            slot=slot,
            publication=publication,
        )
    except psycopg2.Error as broken:
        # Only the class: the server's text may quote what it was sent.
        text = f"the source's answer was an error ({type(broken).__name__}, {broken.pgcode})"
        return [error("source", text)]
    finally:
        connection.close()


def check_store(settings: Settings) -> list[Finding]:
    probe_store(_impatient(settings.store), settings.pipeline)
    return [ok("store", "of two racing create-only writes one wins")]


def check_control(settings: Settings) -> list[Finding]:
    asker = Asker(settings.control, settings.pipeline)
    asker.ping()
    asker.close()
    return [ok("control", "the queue answers")]


def check_warehouse(settings: Settings) -> list[Finding]:
    """Write, read and remove a small object where the tables will lie."""
    url = settings.warehouse.url
    store = open_store(_impatient(settings.store).model_copy(update={"url": url}))
    key = f"tideline-probe-{uuid.uuid4().hex}"
    store.put(key, b"probe")
    found = store.get(key)
    store.delete(key)
    if found != b"probe":
        return [error("warehouse", f"{url} does not return what was written to it")]
    return [ok("warehouse", f"{url} can be written")]


def check_java() -> list[Finding]:
    from console.services.java import java_home

    return [ok("java", f"Java 17 for merges: {java_home()}")]


def _impatient(store: Store) -> Store:
    """The same store, without the patience that a worker has when it is away."""
    return store.model_copy(update={"retry_s": min(store.retry_s, RETRY_S)})


def _attempt(name: str, check: Callable[[], list[Finding]], *, grave: bool = True) -> list[Finding]:
    """The check's findings, or the error that kept it from being made, as one."""
    try:
        return check()
    except TidelineError as failed:
        make = error if grave else warning
        return [make(name, failed.message, failed.hint)]
