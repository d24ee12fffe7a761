"""Dump requests from the queue and from the worker itself.

All of it runs in the thread that reads the log. So the cost of requests is counted
(`Intake.tired`), the rest continues in the next turn, and what they leave in the open state is
bounded (`requests`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from tideline.contract.reasons import SnapshotReason, own_id
from tideline.contract.request import Answer, DumpRequest, RequestState
from tideline_capture.core.effects import (
    Deciding,
    Doubted,
    Effects,
    RereadWanted,
    SnapshotWanted,
    TakenUp,
)
from tideline_capture.core.events import RequestArrived, RequestRefused
from tideline_capture.core.open_requests import size_of
from tideline_capture.core.requests.admission import SHOWN_BY_STATUS, Admission
from tideline_capture.core.requests.table_selection import TableNames, TableSelection
from tideline_capture.core.state import CoreState

_ROUNDS = 2
"""Of two looks at the catalog that end after a request came, the second began after it came."""
_REFUSED_MAX = 1_000
"""Refused messages that are remembered; one that is forgotten and comes again is refused again."""
WORK_MAX = 50_000
"""Limit of a turn, in comparisons. It can be exceeded by about the work of one request."""
_BYTES_PER_WORK = 20
_ERROR_CHARACTERS_MAX = 1_000
_AGAIN = "ask again, with the same id, once one of those that are open has ended"
REREAD_KEYS_MAX = 10_000
"""Rows that changed their key during a dump and are read again one by one; above that the whole
table is dumped again."""


class Intake:
    """Accepts, joins and refuses requests.

    ``token`` is part of the ids of the worker's own requests.
    """

    def __init__(self, state: CoreState, token: Callable[[], str]) -> None:
        self._state = state
        self._token = token
        self._admission = Admission(state)
        self._rounds = 0
        self._unknown: dict[str, tuple[RequestArrived, int]] = {}
        self._refused: deque[str] = deque(maxlen=_REFUSED_MAX)
        self._names = TableNames()
        self._due: deque[str] = deque()
        self._work = 0

    @property
    def tired(self) -> bool:
        """Say whether it takes no more requests before the next turn."""
        return bool(self._due) or self._work >= WORK_MAX

    def begin_turn(self) -> Effects:
        """Continue with what was left."""
        self._work = 0
        yield from self._go_on()

    @property
    def waits(self) -> bool:
        """Say whether a request waits for another look at the catalog."""
        return bool(self._unknown)

    def on_request(self, arrived: RequestArrived) -> Deciding[Answer | None]:
        """Accept, join or refuse a request, or let it wait for the catalog.

        An answer is returned when it need not wait for a manifest.
        """
        state, request = self._state, arrived.request
        if self.has_refused(arrived.message_id):
            return None
        ended = state.recent.get(request.request_id)
        if ended is not None or request.request_id in state.requests:
            state.acknowledge(arrived.message_id)
            return ended if ended is not None and ended.manifest_number is not None else None
        waits = self._unknown.get(request.request_id)
        if waits is not None:
            if waits[0].message_id != arrived.message_id:  # Not the same entry, reclaimed.
                state.acknowledge(arrived.message_id)
        else:
            selection = self._select(request)
            if selection.missing is None:
                yield from self._decide(arrived, selection)
            elif len(self._unknown) >= state.limits.open_requests_max:
                self._refuse_for_now(arrived, "as many requests wait for tables that are not known")
            else:
                self._unknown[request.request_id] = (arrived, self._rounds)
        return None

    def look_again(self, rounds: int) -> Effects:
        """Retry waiting requests after a look at the catalog, the worker's ``rounds``-th.

        A table may have come since it was requested. One that a look which began later does not
        find is unknown.
        """
        self._rounds = rounds
        due = set(self._due)
        self._due.extend(one for one in self._unknown if one not in due)
        yield from self._go_on()

    def _go_on(self) -> Effects:
        while self._due and self._work < WORK_MAX:
            request_id = self._due.popleft()
            arrived, rounds = self._unknown[request_id]
            selection = self._select(arrived.request)
            if selection.missing is None or self._rounds - rounds >= _ROUNDS:
                del self._unknown[request_id]
                yield from self._decide(arrived, selection)

    def _select(self, request: DumpRequest) -> TableSelection:
        self._names.update(self._state.tables)
        selection = self._names.choose(request.tables)
        self._work += selection.work
        return selection

    def _decide(self, arrived: RequestArrived, selection: TableSelection) -> Effects:
        state, request = self._state, arrived.request
        tables, refusal = self._admission.tables_for(request, selection)
        if refusal is not None:
            error = RequestRefused(arrived.message_id, request.request_id, refusal.error)
            self.on_refused(error, refusal.hint)
            return
        size = size_of(request)
        self._work += size // _BYTES_PER_WORK + len(tables)
        full = state.requests.full(size, len(tables), captured=len(state.tables))
        if len(state.requests) >= state.limits.open_requests_max:
            full = f"{state.limits.open_requests_max} requests are open already"
        if full is not None:
            self._refuse_for_now(arrived, full)
            return
        for table in tables:
            if state.quarantined(table) is not None:
                yield TakenUp(table)
        state.accept(request, tables)
        state.acknowledge(arrived.message_id, urgent=True)

    def _refuse_for_now(self, arrived: RequestArrived, error: str) -> None:
        """Refuse for lack of space: a repeated message like any other."""
        refused = RequestRefused(arrived.message_id, arrived.request.request_id, error)
        self.refuse(refused, _AGAIN, again=True)

    def on_refused(self, refused: RequestRefused, hint: str = SHOWN_BY_STATUS) -> None:
        """Record a message that is no request we can serve."""
        if not self.has_refused(refused.message_id):
            self.refuse(refused, hint)

    def has_refused(self, message_id: str) -> bool:
        """Return whether this very message was refused, and came again before that was durable.

        What has been done is known by the ids of requests and commands.
        """
        return message_id in self._refused

    def refuse(self, refused: RequestRefused, hint: str, *, again: bool = False) -> None:
        """Record a refusal, with its error cut: that may repeat what was requested."""
        error = refused.error
        if len(error) > _ERROR_CHARACTERS_MAX:
            error = f"{error[:_ERROR_CHARACTERS_MAX]}…"
        self._refused.append(refused.message_id)
        state = RequestState.REFUSED
        answer = Answer(refused.request_id, state, error=error, hint=hint, again=again)
        self._state.refuse(answer, refused.message_id)

    def snapshot_wanted(self, wanted: SnapshotWanted) -> None:
        """Accept a whole-table dump that the worker itself requests."""
        request_id = own_id(wanted.why, self._state.next_seq, self._token()[:8])
        request = DumpRequest(request_id, wanted.tables, requested_by="tideline")
        self._state.accept(request, wanted.tables)

    def reread_wanted(self, wanted: RereadWanted) -> Effects:
        """Have these keys' rows read again, by a request that the same manifest makes durable."""
        state, table, keys = self._state, wanted.table, wanted.keys
        if state.requests.reread_is_full(table, keys, keys_max=REREAD_KEYS_MAX):
            reason = "more rows changed their key during a dump than can be read again one by one"
            yield Doubted(table, state.last_seq, reason)
            return
        new_id = own_id(SnapshotReason.REREAD, state.next_seq, self._token()[:8])
        state.reread(table, keys, new_id)
