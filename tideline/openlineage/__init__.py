"""Reports merge runs as OpenLineage events (section ``openlineage`` of the settings).

A run of a plan is a run of the job ``{pipeline}.merge``: START before, COMPLETE or FAIL after it.
Events hold names, types and counts, never a row's value or a secret. An unreachable receiver fails
no merge: the events that are not delivered are counted and named.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import TYPE_CHECKING, TypeVar

from tideline.contract.plan import Plan
from tideline.contract.receipt import Receipt
from tideline.settings import Settings

if TYPE_CHECKING:
    from tideline.openlineage.sender import EventSender  # an extra

AnyReceipt = TypeVar("AnyReceipt", Receipt, Receipt | None)


def run_with_lineage(
    settings: Settings, plan: Plan, run: Callable[[], AnyReceipt], warn: Callable[[str], None]
) -> AnyReceipt:
    """Call ``run``, which runs ``plan``, between its events; returns its receipt, raises what it
    raises. ``warn`` is called with the events that were not delivered, if any."""
    if settings.openlineage.url is None:
        return run()
    sender = _begin(settings, plan, warn)
    if sender is None:
        return run()
    receipt = None
    try:
        receipt = run()
        return receipt
    finally:
        _end(settings, plan, sender, receipt, warn)


def _begin(settings: Settings, plan: Plan, warn: Callable[[str], None]) -> EventSender | None:
    """Send the event of the start; return the sender, None where no event can be sent."""
    try:
        from tideline.openlineage import events, sender  # heavy, and an extra

        to = sender.EventSender(settings.openlineage)
        to.send(events.started(settings, plan, datetime.now(UTC)))
    except ImportError as error:
        warn(f"no OpenLineage events are sent: {error}; pip install 'tideline-cdc[lineage]'")
    except Exception as error:  # noqa: BLE001  lineage fails no merge
        warn(_unsent(error))
    else:
        return to
    return None


def _end(
    settings: Settings,
    plan: Plan,
    to: EventSender,
    receipt: Receipt | None,
    warn: Callable[[str], None],
) -> None:
    """Send the event of the end; report the events that were not delivered."""
    from tideline.openlineage import events

    try:
        to.send(events.ended(settings, plan, datetime.now(UTC), receipt))
    except Exception as error:  # noqa: BLE001  lineage fails no merge
        warn(_unsent(error))
    if to.lost:
        warn(to.losses())


def _unsent(error: Exception) -> str:
    """Describe an error without its message, which may quote a url or a key."""
    return (
        f"an OpenLineage event could not be made: {type(error).__name__};"
        " check the section openlineage of the settings"
    )
