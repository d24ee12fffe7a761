"""Reports merge runs as OpenLineage events (section ``openlineage`` of the settings).

A run of a plan is a run of the job ``{pipeline}.merge``: START before, COMPLETE or FAIL after it.
Events hold names, types and counts, never a row's value or a secret. An unreachable receiver fails
no merge: the events that are not delivered are counted and named.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import TypeVar

from tideline.contract.plan import Plan
from tideline.contract.receipt import Receipt
from tideline.settings import Settings

AnyReceipt = TypeVar("AnyReceipt", Receipt, Receipt | None)


def run_with_lineage(
    settings: Settings, plan: Plan, run: Callable[[], AnyReceipt], warn: Callable[[str], None]
) -> AnyReceipt:
    """Call ``run``, which runs ``plan``, between its events; returns its receipt, raises what it
    raises. ``warn`` is called with the events that were not delivered, if any."""
    if settings.openlineage.url is None:
        return run()
    try:
        from tideline.openlineage import events, sender  # heavy, and an extra
    except ImportError as error:
        warn(f"no OpenLineage events are sent: {error}; pip install 'tideline-cdc[lineage]'")
        return run()
    to, receipt = sender.EventSender(settings.openlineage), None
    to.send(events.started(settings, plan, datetime.now(UTC)))
    try:
        receipt = run()
        return receipt
    finally:
        to.send(events.ended(settings, plan, datetime.now(UTC), receipt))
        if to.lost:
            warn(to.losses())
