"""Dump requests: what comes from the queue, and what the worker asks of itself.

All of it runs in the thread that reads the log, so what requests cost is counted (`Intake.tired`)
and goes on in the next turn, and what they leave in the open state is bounded (`requests`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING

from tideline.contract.manifest import CapturedFrom, TableCondition
from tideline.contract.receipt import PENDING, rereads_pending
from tideline.contract.request import Answer, DumpRequest, RequestState
from tideline_capture.core.blocks import OWN_IDS
from tideline_capture.core.choosing import Choice, Names
from tideline_capture.core.events import RequestArrived, RequestRefused
from tideline_capture.core.key_ranges import holds_nothing
from tideline_capture.core.requests import REREAD, size_of
from tideline_capture.core.tables import VALUE

if TYPE_CHECKING:
    from tideline_capture.core.worker import Worker

_ROUNDS = 2
"""Of two looks at the catalog that end after a request came, the second began after it came."""
_REFUSED_MAX = 1_000
"""Refused messages that are remembered; one that is forgotten and comes again is refused again."""
WORK_MAX = 50_000
"""Of a turn, in comparisons; about as much is done once it is reached, as one request takes."""
_BYTES_PER_WORK = 20
_ERROR_CHARACTERS_MAX = 1_000
_AGAIN = "ask again, with the same id, once one of those that are open has ended"
REREAD_KEYS_MAX = 10_000
"""Rows that changed their key during a dump and are read again one by one; above that the whole
table is dumped again."""


class Intake:
    """The request side of the core. ``core`` is the worker it is part of."""

    def __init__(self, core: Worker, token: Callable[[], str]) -> None:
        self._core = core
        self._token = token
        self._unknown: dict[str, tuple[RequestArrived, int]] = {}
        self._refused: deque[str] = deque(maxlen=_REFUSED_MAX)
        self._names = Names()
        self._due: deque[str] = deque()
        self._work = 0

    @property
    def tired(self) -> bool:
        """Whether no request is to be given to it before the next turn."""
        return bool(self._due) or self._work >= WORK_MAX

    def begin_turn(self) -> None:
        """Go on with what was left."""
        self._work = 0
        self._go_on()

    @property
    def waits(self) -> bool:
        """Whether a request waits for another look at the catalog."""
        return bool(self._unknown)

    def on_request(self, arrived: RequestArrived) -> Answer | None:
        """Accept, join, refuse, or let it wait for the catalog; an answer is returned when it need
        not wait for a manifest."""
        core, request = self._core, arrived.request
        if self.has_refused(arrived.message_id):
            return None
        ended = core.requests.ended(request.request_id)
        if ended is not None or request.request_id in core.requests:
            core.draft.messages.append(arrived.message_id)
            return ended if ended is not None and ended.manifest_number is not None else None
        waits = self._unknown.get(request.request_id)
        if waits is not None:
            if waits[0].message_id != arrived.message_id:  # Not the same entry, reclaimed.
                core.draft.messages.append(arrived.message_id)
        else:
            choice = self._choose(request)
            if choice.missing is None:
                self._decide(arrived, choice)
            elif len(self._unknown) >= core.limits.open_requests_max:
                self._refuse_for_now(arrived, "as many requests wait for tables that are not known")
            else:
                self._unknown[request.request_id] = (arrived, core.catalog.rounds)
        return None

    def look_again(self) -> None:
        """After a look at the catalog: a table may have come since it was asked for. One that is
        not there after a look that began later is unknown."""
        due = set(self._due)
        self._due.extend(one for one in self._unknown if one not in due)
        self._go_on()

    def _go_on(self) -> None:
        while self._due and self._work < WORK_MAX:
            request_id = self._due.popleft()
            arrived, rounds = self._unknown[request_id]
            choice = self._choose(arrived.request)
            if choice.missing is None or self._core.catalog.rounds - rounds >= _ROUNDS:
                del self._unknown[request_id]
                self._decide(arrived, choice)

    def _choose(self, request: DumpRequest) -> Choice:
        self._names.update(self._core.tables.states)
        choice = self._names.choose(request.tables)
        self._work += choice.work
        return choice

    def _decide(self, arrived: RequestArrived, choice: Choice) -> None:
        core, request = self._core, arrived.request
        tables, error = self._tables_for(request, choice)
        if error is None and request.request_id.startswith(PENDING):
            error = self._comes_anyway(tables[0])
        if error is not None:
            self.on_refused(RequestRefused(arrived.message_id, request.request_id, error))
            return
        size = size_of(request)
        self._work += size // _BYTES_PER_WORK + len(tables)
        full = core.requests.full(size, len(tables), captured=len(core.tables.states), own=OWN_IDS)
        if len(core.requests) >= core.limits.open_requests_max:
            full = f"{core.limits.open_requests_max} requests are open already"
        if full is not None:
            self._refuse_for_now(arrived, full)
            return
        for table in tables:
            self._take_up(table)
        core.requests.accept(request, tables, asked_seq=core.sequencer.last)
        core.draft.accepted.append(request.request_id)
        core.draft.messages.append(arrived.message_id)
        core.draft.urgent = core.draft.state_changed = True

    def _refuse_for_now(self, arrived: RequestArrived, error: str) -> None:
        """For want of room; of the same message that comes again as of any other."""
        refused = RequestRefused(arrived.message_id, arrived.request.request_id, error)
        self.refuse(refused, _AGAIN, again=True)

    def on_refused(self, refused: RequestRefused) -> None:
        """Record a message that is no request we can serve."""
        if not self.has_refused(refused.message_id):
            self.refuse(refused, "`tideline status` shows the tables that are captured")

    def has_refused(self, message_id: str) -> bool:
        """Whether this very message was refused, and has come again because that is not durable
        yet. What has been done is known by the ids of requests and commands."""
        return message_id in self._refused

    def refuse(self, refused: RequestRefused, hint: str, *, again: bool = False) -> None:
        """Record it, with as much of the error as anybody reads: it may repeat what was asked."""
        draft, error = self._core.draft, refused.error
        if len(error) > _ERROR_CHARACTERS_MAX:
            error = f"{error[:_ERROR_CHARACTERS_MAX]}…"
        self._refused.append(refused.message_id)
        draft.refused.append(
            Answer(refused.request_id, RequestState.REFUSED, error=error, hint=hint, again=again)
        )
        draft.messages.append(refused.message_id)
        draft.urgent = True

    def _tables_for(self, request: DumpRequest, choice: Choice) -> tuple[list[str], str | None]:
        core = self._core
        foreign = request.request_id.startswith(PENDING) and not rereads_pending(request)
        if foreign or request.request_id.startswith(OWN_IDS):
            begins = f"{request.request_id.partition(':')[0]}:"
            return [], f"ids that begin with {begins!r} are for requests of Tideline's own"
        if choice.error is not None:
            return [], choice.error
        if choice.missing is not None:
            return [], f"no captured table matches {choice.missing!r}"
        every = dict.fromkeys(table for hits in choice.hits for table in hits)
        served = {table: self._serves(request, table) for table in every}
        for hits in choice.hits:
            if not any(map(served.__getitem__, hits)):
                state = core.tables.states[hits[0]]
                return [], f"table {hits[0]} {self._condition(hits[0], state.reason)}"
        tables = [table for table in every if served[table]]
        without = [] if request.whole else [one for one in tables if core.tables.keyless(one)]
        if without:
            return [], f"table {without[0]} has no key: only a dump of the whole table can be made"
        if request.keys is not None and len(tables) != 1:
            return [], f"keys needs exactly one table, {len(tables)} match"
        if request.key_range is not None and len(tables) != 1:
            return [], f"key_range needs exactly one table, {len(tables)} match"
        return tables, self._wrong_keys(request, tables[0])

    def _condition(self, table: str, reason: str | None) -> str:
        """Why nothing is read of a table."""
        if not self._core.tables.captures(table):
            return f"is parked: {reason}"
        if self._core.tables.states[table].condition is TableCondition.BLOCKED:
            return f"is blocked: {reason}"
        return "has no key to verify it by"

    def _wrong_keys(self, request: DumpRequest, table: str) -> str | None:
        """Why the request's keys cannot be keys of ``table``, if so."""
        schema = self._core.tables.schema(table)
        wanted = ", ".join(schema.key) if schema else "unknown"
        count = len(schema.key) if schema else 0
        if request.keys is not None and len(request.keys[0]) != count:
            return f"each key of {table} must give its key columns: {wanted}"
        if request.key_range is not None:
            ends = (request.key_range.start or (), request.key_range.end or ())
            if max(map(len, ends)) > count:
                return f"key_range has more texts than {table} has key columns: {wanted}"
            if schema is not None and holds_nothing(request.key_range, schema):
                return "key_range holds no key: from is not before to"
        return None

    def _serves(self, request: DumpRequest, table: str) -> bool:
        """A parked table is not dumped: nothing of it is captured meanwhile. One that a value had
        parked is taken up again by a dump of the whole table."""
        core = self._core
        if request.verifies:
            blocked = core.tables.states[table].condition is TableCondition.BLOCKED
            schema = core.tables.schema(table)
            keyed = schema is not None and bool(schema.key)
            return core.tables.captures(table) and not blocked and keyed
        return core.tables.captures(table) or (request.whole and core.tables.parked(table) == VALUE)

    def _comes_anyway(self, table: str) -> str | None:
        """Why rows that a merge left pending need not be read again now; if it turns out that they
        must, they are asked for again."""
        for item in self._core.requests.open:
            if any(dump.table == table for dump in item.dumps):
                if item.request.whole:
                    return f"a dump of all of {table} is under way"
                if item.request.request_id.startswith(PENDING):
                    return f"rows of {table} are being read again"
        return None

    def _take_up(self, table: str) -> None:
        core = self._core
        state = core.tables.states[table]
        if core.tables.parked(table) is not None:
            since = state.since_seq or core.sequencer.next
            core.conditions.unpark(table, CapturedFrom(core.sequencer.next))
            core.tables.unprove(table, since=since, reason=state.reason or "")

    def request_dump(self, why: str, tables: list[str]) -> None:
        """Accept a whole-table dump that the worker itself asks for."""
        core = self._core
        request_id = f"{why}:{core.sequencer.next}:{self._token()[:8]}"
        core.requests.accept(
            DumpRequest(request_id, tuple(tables), requested_by="tideline"),
            tables,
            asked_seq=core.sequencer.last,
        )
        core.draft.accepted.append(request_id)
        core.draft.state_changed = True

    def reread(self, table: str, keys: list[tuple[str, ...]]) -> None:
        """Have these keys' rows read again, by a request that the same manifest makes durable."""
        core = self._core
        if core.requests.reread_is_full(table, keys, keys_max=REREAD_KEYS_MAX):
            reason = "more rows changed their key during a dump than can be read again one by one"
            core.conditions.doubt(table, since=core.sequencer.last, reason=reason)
            return
        new_id = f"{REREAD}{core.sequencer.next}:{self._token()[:8]}"
        accepted = core.requests.reread(table, tuple(keys), new_id)
        if accepted is not None:
            core.draft.accepted.append(accepted)
        core.draft.state_changed = True
