"""Open requests: accepted, advanced chunk by chunk, ended. Values in, values out.

They stand in full in the open state, and so in each manifest that changes it: their size is
bounded. `OpenRequests.full` bounds what clients may leave there, `reread_is_full` what the worker
may.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Literal

from msgspec.structs import replace

from tideline.contract.answers import answer_of
from tideline.contract.errors import InvariantBroken
from tideline.contract.open_state import OpenRequest, OpenState, TableDump
from tideline.contract.reasons import SnapshotReason
from tideline.contract.request import Answer, DumpRequest, encode_request

OPEN = ("accepted", "running")

REQUEST_BYTES_MAX = 4 << 20
"""Limit of all open requests from the queue, as JSON: their keys are most of it."""
DUMPS_MAX = 10_000
"""Limit of tables in open requests; as many more are allowed as tables are captured."""
REREAD_BYTES_MAX = 4 << 20
"""Limit of all keys that are to be read again."""
_KEY_BYTES = 8
"""Overhead of a key, and of each of its texts, besides the text: quotes, commas, brackets."""

Tuning = int | Literal["default"] | None
"""A change of the throttle; None leaves a value as it is."""


class OpenRequests:
    """The requests that have not ended, oldest first, and the commands that apply to all of them.

    ``state`` is the open state to begin with.
    """

    def __init__(self, state: OpenState) -> None:
        self.paused = state.paused
        self.chunk_rows = state.chunk_rows
        self.delay_ms = state.delay_ms
        self._open = {item.request.request_id: item for item in state.requests}
        self._at = {item.request.request_id: _places(item.dumps) for item in state.requests}
        self._sizes = {item.request.request_id: size_of(item.request) for item in state.requests}
        self._reread_last = False

    def __len__(self) -> int:
        return len(self._open)

    def __contains__(self, request_id: str) -> bool:
        return request_id in self._open

    @property
    def open(self) -> tuple[OpenRequest, ...]:
        return tuple(self._open.values())

    def accept(self, request: DumpRequest, tables: Iterable[str], *, asked_seq: int = 0) -> None:
        dumps = tuple(TableDump(table) for table in tables)
        self._open[request.request_id] = OpenRequest(request, dumps, asked_seq=asked_seq)
        self._at[request.request_id] = _places(dumps)
        self._sizes[request.request_id] = size_of(request)

    def full(self, size: int, tables: int, *, captured: int) -> str | None:
        """Return why a request of ``size`` bytes for so many ``tables`` cannot be accepted now, if
        so.

        ``captured`` tables are there. The worker's own requests do not count: no client can make
        more of them.
        """
        others = [one for one, item in self._open.items() if not _is_own(item)]
        asked = sum(map(self._sizes.__getitem__, others))
        if asked and asked + size > REQUEST_BYTES_MAX:
            return f"requests of {asked} bytes are open already, at most {REQUEST_BYTES_MAX} may be"
        dumps, most = sum(len(self._at[one]) for one in others), DUMPS_MAX + captured
        if dumps and dumps + tables > most:
            return f"dumps of {dumps} tables are open already, at most {most} may be"
        return None

    def reread_is_full(self, table: str, keys: Sequence[tuple[str, ...]], *, keys_max: int) -> bool:
        """Return whether ``keys`` of ``table`` are too many, or too large, for re-read lists."""
        if self.reread_keys(table) + len(keys) > keys_max:
            return True
        listed = sum(self._sizes[one] for one, item in self._open.items() if _is_reread(item))
        return listed + _bytes_of(keys) > REREAD_BYTES_MAX

    def due(self) -> Iterator[tuple[OpenRequest, TableDump]]:
        """Return the dumps that are open and not paused, in the order in which to continue them.

        By priority, then repairs of given keys before everything else, then by age. The re-read
        list of a busy table may never be empty for long: it takes turns with the rest.
        """
        for item in sorted(self._open.values(), key=self._rank):
            for dump in item.dumps:
                if dump.state in OPEN and not self.is_paused(item):
                    yield item, dump

    def is_paused(self, item: OpenRequest) -> bool:
        return item.paused or self.paused

    def took(self, item: OpenRequest) -> None:
        """Note that a chunk of ``item`` is being read."""
        self._reread_last = _is_reread(item)

    def _rank(self, item: OpenRequest) -> tuple[int, int]:
        kind = 0 if item.request.keys is not None and not item.request.ranged else 2
        if _is_reread(item):
            kind = 3 if self._reread_last else 1
        return -item.request.priority, kind

    def pause(self, chosen: Iterable[str] | None, *, paused: bool) -> None:
        """Pause these requests (None: all), or resume them.

        Resuming all ends a pause of all: requests that were paused singly stay paused.
        """
        if chosen is None:
            self.paused = paused
        for request_id in chosen or ():
            self._open[request_id] = replace(self._open[request_id], paused=paused)

    def tune(self, chosen: Iterable[str] | None, chunk_rows: Tuning, delay_ms: Tuning) -> None:
        """Change the throttle of these requests (None: of all without one of their own)."""
        if chosen is None:
            self.chunk_rows = _tuned(self.chunk_rows, chunk_rows)
            self.delay_ms = _tuned(self.delay_ms, delay_ms)
        for request_id in chosen or ():
            item = self._open[request_id]
            self._open[request_id] = replace(
                item,
                chunk_rows=_tuned(item.chunk_rows, chunk_rows),
                delay_ms=_tuned(item.delay_ms, delay_ms),
            )

    def rows_max(self, item: OpenRequest, otherwise: int) -> int:
        """Return the rows of its next chunk: by a command for it, by one for all, else by its
        client."""
        return item.chunk_rows or self.chunk_rows or item.request.chunk_rows or otherwise

    def delay_s(self, request_id: str, otherwise_ms: int) -> float:
        """Return the pause between two of its chunks, by the same rule."""
        item = self._open.get(request_id)
        wanted = [self.delay_ms]
        if item is not None:
            wanted = [item.delay_ms, self.delay_ms, item.request.delay_ms]
        return next((one for one in wanted if one is not None), otherwise_ms) / 1000

    def fail(self, request_id: str, error: str) -> list[str]:
        """End the open dumps of a request with ``error``; return their tables."""
        item = self._open[request_id]
        dumps = tuple(
            replace(dump, state="failed", error=error) if dump.state in OPEN else dump
            for dump in item.dumps
        )
        self._open[request_id] = replace(item, dumps=dumps)
        return [dump.table for dump in item.dumps if dump.state in OPEN]

    def dump(self, request_id: str, table: str) -> TableDump | None:
        """Return the dump of ``table`` in an open request, if it has not ended."""
        at = self._at.get(request_id, _NOWHERE).get(table)
        if at is None:
            return None
        dump = self._open[request_id].dumps[at]
        return dump if dump.state in OPEN else None

    def _of(self, table: str) -> Iterator[tuple[OpenRequest, TableDump]]:
        """Return the open dumps of ``table``, oldest first."""
        for request_id in list(self._open):
            dump = self.dump(request_id, table)
            if dump is not None:
                yield self._open[request_id], dump

    def keys_asked(self, request_id: str) -> tuple[tuple[str, ...], ...]:
        """Return the keys that an open request names, of which it reads some chunk by chunk."""
        item = self._open.get(request_id)
        return (item.request.keys if item else None) or ()

    def verifies(self, request_id: str) -> bool:
        """Return whether an open request reads only to compare."""
        item = self._open.get(request_id)
        return item is not None and item.request.verifies

    def dumping(self, table: str) -> bool:
        """Return whether a dump of ``table`` is in progress, so that it may miss a row that moves
        now."""
        return any(
            not item.request.verifies and (dump.state == "running" or item.request.keys is not None)
            for item, dump in self._of(table)
        )

    def reread(self, table: str, keys: tuple[tuple[str, ...], ...], new_id: str) -> str | None:
        """Put ``keys`` on the table's re-read list, an open keys request of the worker's own.

        Returns ``new_id`` when that list is new, else None. A list only grows at its end, so that
        how far it is done stays true.
        """
        for request_id, item in self._open.items():
            if _is_reread(item) and item.request.tables == (table,):
                request = replace(item.request, keys=(*(item.request.keys or ()), *keys))
                self._open[request_id] = replace(item, request=request)
                self._sizes[request_id] += _bytes_of(keys)
                return None
        self.accept(DumpRequest(new_id, (table,), keys=keys, requested_by="tideline"), [table])
        return new_id

    def reread_keys(self, table: str) -> int:
        """Return how many keys the table's re-read list has, done or not."""
        return sum(
            len(item.request.keys or ())
            for item in self._open.values()
            if _is_reread(item) and item.request.tables == (table,)
        )

    def update(self, request_id: str, dump: TableDump) -> None:
        item = self._open.get(request_id)
        if item is None:
            raise InvariantBroken(f"request {request_id} is not open")
        at = self._at[request_id].get(dump.table)
        if at is not None:
            dumps = (*item.dumps[:at], dump, *item.dumps[at + 1 :])
            self._open[request_id] = replace(item, dumps=dumps)

    def restart(self, table: str) -> bool:
        """Restart every open whole-table dump of ``table``; return whether there was one."""
        found = False
        for item, _ in self._of(table):
            if item.request.whole:
                self.update(item.request.request_id, TableDump(table))
                found = True
        return found

    def dumps_all(self, table: str, *, asked_since: int | None = None) -> bool:
        """Return whether a dump of the whole ``table`` is open (that was requested after a
        sequence)."""
        return any(
            item.request.whole and item.asked_seq >= (asked_since or 0)
            for item, _ in self._of(table)
        )

    def awaits_dump(self, table: str, why: SnapshotReason | None = None) -> bool:
        """Return whether a dump of the whole ``table`` (for the reason ``why``) is open and has not
        begun."""
        return any(
            item.request.whole and why in (None, item.request.why) and dump.first_low_seq is None
            for item, dump in self._of(table)
        )

    def fail_table(self, table: str, error: str) -> bool:
        """End every open dump of ``table`` with ``error``; return whether there was one."""
        found = False
        for item, dump in self._of(table):
            self.update(item.request.request_id, replace(dump, state="failed", error=error))
            found = True
        return found

    def take_ended(self) -> list[Answer]:
        """Remove and return the requests whose dumps all ended."""
        answers = []
        for item in self.open:
            if any(dump.state in OPEN for dump in item.dumps):
                continue
            request_id = item.request.request_id
            del self._open[request_id], self._at[request_id], self._sizes[request_id]
            answers.append(answer_of(item))
        return answers


_NOWHERE: Mapping[str, int] = {}


def _places(dumps: Iterable[TableDump]) -> dict[str, int]:
    """Return where the dump of each table stands among those of its request."""
    return {dump.table: place for place, dump in enumerate(dumps)}


def size_of(request: DumpRequest) -> int:
    """Return the bytes of ``request`` as JSON."""
    return len(encode_request(request))


def _bytes_of(keys: Iterable[tuple[str, ...]]) -> int:
    return sum(_KEY_BYTES + sum(_KEY_BYTES + len(text) for text in key) for key in keys)


def reads_keys(request: DumpRequest, dump: TableDump) -> bool:
    """Return whether the dump reads the keys that were given now: at once, or after a range."""
    return request.keys is not None and (not request.ranged or dump.phase == "keys")


def _tuned(before: int | None, wanted: Tuning) -> int | None:
    if wanted is None:
        return before
    return None if wanted == "default" else wanted


def _is_reread(item: OpenRequest) -> bool:
    return item.request.why is SnapshotReason.REREAD


def _is_own(item: OpenRequest) -> bool:
    return item.request.why is not None and item.request.why.by_worker
