"""Finds rows that merges have left pending, from the receipts of the tables' last merges.

Asking for them once is not enough: Redis may lose the request, and a job may die before anyone has
read its receipt. So the planner asks again for the rows in the last receipt.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import closing

from msgspec.structs import replace

from tideline.contract.errors import TidelineError
from tideline.contract.receipt import reread_requests
from tideline.contract.request import DumpRequest
from tideline.planner.merges import read_receipt
from tideline.planner.targets import target_of
from tideline.settings import Settings
from tideline.store.chain import Chain
from tideline.store.objects import open_store


def ask_for_pending(
    settings: Settings, requests: Sequence[DumpRequest], report: Callable[[str], None]
) -> None:
    """Ask the worker for ``requests``; the next merge brings the rows in. An unreachable queue does
    not fail the merge that is done, and the next merge asks again."""
    if not requests:
        return
    from tideline.control import ControlClient  # heavy: most merges have nothing to ask

    for request in requests:
        try:
            with closing(ControlClient(settings.control, settings.pipeline)) as control_client:
                control_client.ask(request)
            done = "the worker is asked to read them again"
        except TidelineError as error:
            done = f"the worker could not be asked to read them again: {error}"
        report(f"{request.tables[0]}: rows lack values that the log did not carry; {done}")


def pending_requests(settings: Settings, tables: Sequence[str] | None = None) -> list[DumpRequest]:
    """Return the requests to the worker, of all tables or of ``tables``; [] when no row is
    pending."""
    chain = Chain(open_store(settings.store), settings.pipeline)
    tail = chain.tail()
    if tail is None:
        return []
    requests = []
    for name, state in sorted(chain.open_state(tail).tables.items()):
        if state.schema is None or (tables is not None and name not in tables):
            continue
        commit_metadata = target_of(settings, tail.manifest, name, state).commit_metadata
        if commit_metadata is None or not commit_metadata.pending:
            continue
        receipt = read_receipt(settings, commit_metadata.plan_id)
        if receipt is not None:
            own = tuple(one for one in receipt.tables if one.table == name)
            requests += reread_requests(replace(receipt, tables=own))
    return requests
