"""Open requests: accepted, advanced chunk by chunk, ended. Values in, values out."""

from __future__ import annotations

from collections.abc import Container, Iterable

from msgspec.structs import replace

from tideline.contract.errors import InvariantBroken
from tideline.contract.manifest import OpenRequest, TableDump
from tideline.contract.request import Answer, DumpRequest, RequestState, TableProgress

OPEN = ("accepted", "running")
FOLLOW_UP = "follow-up"
"""Begins the ids of dumps that make up for changes the log does not tell."""
REREAD = "reread:"


class OpenRequests:
    """The requests that have not ended, oldest first. ``changed`` since it was last cleared."""

    def __init__(
        self, requests: Iterable[OpenRequest], recent: Iterable[Answer], keep: int
    ) -> None:
        self._open = {item.request.request_id: item for item in requests}
        self._recent = {answer.request_id: answer for answer in recent}
        self._keep = keep
        self._reread_last = False

    def __len__(self) -> int:
        return len(self._open)

    def __contains__(self, request_id: str) -> bool:
        return request_id in self._open

    @property
    def open(self) -> tuple[OpenRequest, ...]:
        return tuple(self._open.values())

    @property
    def recent(self) -> tuple[Answer, ...]:
        return tuple(self._recent.values())

    def ended(self, request_id: str) -> Answer | None:
        """The answer of a request that ended lately; without a manifest's number it is not durable
        yet, and nobody may hear of it."""
        return self._recent.get(request_id)

    def durable(self, answers: Iterable[Answer]) -> None:
        """Note in which manifest these ended."""
        self._recent |= {one.request_id: one for one in answers if one.request_id in self._recent}

    def accept(self, request: DumpRequest, tables: Iterable[str]) -> None:
        dumps = tuple(TableDump(table) for table in tables)
        self._open[request.request_id] = OpenRequest(request, dumps)

    def next(self, held: Container[str] = ()) -> tuple[OpenRequest, TableDump] | None:
        """The dump to go on with, of a table that is not ``held``: repairs of given keys before
        everything else, then by age.

        The re-read list of a busy table may never be empty for long: it takes turns with the rest.
        """
        for item in sorted(self._open.values(), key=self._rank):
            for dump in item.dumps:
                if dump.state in OPEN and dump.table not in held:
                    self._reread_last = _is_reread(item)
                    return item, dump
        return None

    def _rank(self, item: OpenRequest) -> int:
        if _is_reread(item):
            return 3 if self._reread_last else 1
        return 2 if item.request.keys is None else 0

    def dump(self, request_id: str, table: str) -> TableDump | None:
        """The dump of ``table`` in an open request, if it has not ended."""
        item = self._open.get(request_id)
        for dump in item.dumps if item else ():
            if dump.table == table and dump.state in OPEN:
                return dump
        return None

    def dumping(self, table: str) -> bool:
        """Whether a dump of ``table`` is under way, so that it may miss a row that moves now."""
        return any(
            dump.table == table
            and (dump.state == "running" or (item.request.keys is not None and dump.state in OPEN))
            for item in self._open.values()
            for dump in item.dumps
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
                return None
        self.accept(DumpRequest(new_id, (table,), keys=keys, requested_by="tideline"), [table])
        return new_id

    def reread_keys(self, table: str) -> int:
        """How many keys the table's re-read list has, done or not."""
        return sum(
            len(item.request.keys or ())
            for item in self._open.values()
            if _is_reread(item) and item.request.tables == (table,)
        )

    def update(self, request_id: str, dump: TableDump) -> None:
        item = self._open.get(request_id)
        if item is None:
            raise InvariantBroken(f"request {request_id} is not open")
        dumps = tuple(dump if old.table == dump.table else old for old in item.dumps)
        self._open[request_id] = replace(item, dumps=dumps)

    def restart(self, table: str) -> bool:
        """Begin every open whole-table dump of ``table`` anew; whether there was one."""
        found = False
        for item in self._open.values():
            for dump in item.dumps:
                if item.request.whole and dump.table == table and dump.state in OPEN:
                    self.update(item.request.request_id, TableDump(table))
                    found = True
        return found

    def dumps_all(self, table: str) -> bool:
        """Whether a dump of the whole ``table`` is open."""
        return any(
            item.request.whole and dump.table == table and dump.state in OPEN
            for item in self._open.values()
            for dump in item.dumps
        )

    def awaits_dump(self, table: str, why: str = "") -> bool:
        """Whether a dump of the whole ``table``, asked for by an id that begins with ``why``, is
        open and has not begun."""
        return any(
            item.request.whole
            and dump.table == table
            and dump.state in OPEN
            and item.request.request_id.startswith(why)
            for item in self._open.values()
            for dump in item.dumps
            if dump.first_low_seq is None
        )

    def fail_table(self, table: str, error: str) -> bool:
        """End every open dump of ``table`` with ``error``; whether there was one."""
        found = False
        for item in self.open:
            for dump in item.dumps:
                if dump.table == table and dump.state in OPEN:
                    failed = replace(dump, state="failed", error=error)
                    self.update(item.request.request_id, failed)
                    found = True
        return found

    def take_ended(self) -> list[Answer]:
        """Requests whose dumps all ended; they leave the open ones for the recent ones."""
        answers = []
        for item in self.open:
            if any(dump.state in OPEN for dump in item.dumps):
                continue
            answer = answer_of(item)
            del self._open[item.request.request_id]
            self.remember(answer)
            answers.append(answer)
        return answers

    def remember(self, answer: Answer) -> None:
        self._recent[answer.request_id] = answer
        while len(self._recent) > self._keep:
            del self._recent[next(iter(self._recent))]


def _is_reread(item: OpenRequest) -> bool:
    return item.request.request_id.startswith(REREAD)


def answer_of(item: OpenRequest, *, waiting: dict[str, str] | None = None) -> Answer:
    """What is to be said of ``item`` now; ``waiting`` names what a table's chunk waits for."""
    tables = tuple(_progress(item, dump, (waiting or {}).get(dump.table)) for dump in item.dumps)
    states = {table.state for table in tables}
    errors = [f"{table.table}: {table.error}" for table in tables if table.error]
    if states <= {RequestState.DONE, RequestState.FAILED}:
        state = RequestState.FAILED if errors else RequestState.DONE
    else:
        state = RequestState.ACCEPTED if states == {RequestState.ACCEPTED} else RequestState.RUNNING
    return Answer(
        item.request.request_id, state, tables=tables, error="; ".join(errors) if errors else None
    )


def _progress(item: OpenRequest, dump: TableDump, waiting: str | None) -> TableProgress:
    rows = dump.rows_estimate if item.request.keys is None else len(item.request.keys)
    chunks = None
    if rows is not None and dump.chunks and dump.rows:
        per_chunk = max(dump.rows / dump.chunks, 1.0)
        chunks = max(dump.chunks, round(rows / per_chunk))
    return TableProgress(
        dump.table,
        RequestState(dump.state),
        chunks=dump.chunks,
        chunks_estimate=chunks,
        rows=dump.rows,
        rows_estimate=rows,
        waiting=waiting,
        error=dump.error,
    )
