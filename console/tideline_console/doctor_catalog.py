"""Checks the catalog: whether it can be reached, and what of the pipeline is not registered."""

from __future__ import annotations

from collections.abc import Iterator

from tideline.catalog.registry import kind_of, open_catalog
from tideline.contract.errors import Misconfigured, TidelineError, Unavailable
from tideline.planner.registration import Registration, unregistered
from tideline.settings import Settings
from tideline.settings.addresses import is_loopback, split_url
from tideline_capture.sources.finding import Finding, ok, warning

_LISTED_MAX = 10


def check_catalog(settings: Settings) -> Iterator[Finding]:
    """Yield the findings; none for a pipeline without a catalog. Changes nothing: whether entries
    may be made shows only when the first one is."""
    if kind_of(settings) is None:
        return
    yield from _encryption(settings)
    try:
        with open_catalog(settings) as catalog:
            reached = catalog.check()
    except TidelineError as failed:
        # Capture and merges go on without it.
        text = f"{failed.message}: tables are merged, and have no names there"
        yield warning("catalog", text, failed.hint)
        return
    yield ok("catalog", reached)
    try:
        found = unregistered(settings)
    except (Misconfigured, Unavailable) as failed:
        text = f"what is registered is not known: {failed.message}"
        yield warning("catalog_entries", text, failed.hint)
    else:
        yield from _entries(found)


def _entries(found: Registration) -> Iterator[Finding]:
    for line in found.lines():
        yield warning("catalog_entries", line)
    waiting = [f"{table} as {name}" for table, name in sorted(found.made.items())]
    if waiting:
        more = ", …" if len(waiting) > _LISTED_MAX else ""
        text = (
            f"{len(waiting)} tables are to be registered: {', '.join(waiting[:_LISTED_MAX])}{more}"
        )
        yield ok("catalog_entries", f"{text}; the next merge does it")
    elif not found.problems:
        yield ok("catalog_entries", "every table of the warehouse is registered")


def _encryption(settings: Settings) -> Iterator[Finding]:
    """Check by the settings alone, whatever answers at the address."""
    parts = split_url(settings.warehouse.catalog.url or "https://amazon")
    if parts.scheme == "https" or is_loopback(parts.hostname or ""):
        return
    if parts.scheme == "thrift":
        text = "names, columns and comments go to the metastore unencrypted, and without a login"
        yield warning("catalog_encryption", text, "reach it through a network that you trust")
    else:
        text = "the token goes to the catalog unencrypted"
        yield warning("catalog_encryption", text, "write https:// in warehouse.catalog.url")
