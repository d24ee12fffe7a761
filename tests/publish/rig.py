"""The publishers of tests of outputs: a chain in a folder, by workers that are processes."""

from __future__ import annotations

import signal
from collections.abc import Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

from tests.fixtures.capture import WorkerProcess, poll
from tests.fixtures.parts import Emptied, Event, History, LoggedEvent, Row, Shaped, schema_of
from tests.fixtures.publishing import NAME, Read, config_of, published
from tests.publish.outputs import OutputCase, expected
from tideline.contract.publishing import PublisherEntry
from tideline.store.publisher_log import PublisherLog

TABLES = ("public.orders", 'public."Order Items"')
QUICK = {"poll_interval_s": 0.01, "heartbeat_s": 0.2, "takeover_after_s": 1.0}
IDLE_S = 0.3
FENCED = 6


class Rig:
    """A chain, an output, and workers that publish the one to the other."""

    def __init__(self, root: Path, output: OutputCase, **publisher: Any) -> None:
        self.output = output
        self.history = History(root)
        shapes = [schema_of(one, {"id": "int32", "note": "string"}, ["id"]) for one in TABLES]
        self.history.commit(*map(Shaped, shapes))
        self._publisher = publisher
        self.configure()
        self._root = root
        self._positions = PublisherLog(self.history.store, self.history.settings.pipeline, NAME)

    def configure(self) -> None:
        """Write the settings, as the output has them now."""
        settings = {"tables": TABLES, **QUICK, **self.output.settings(), **self._publisher}
        self.config = config_of(self.history, **settings)

    def commit(self, manifests: int, rows: int = 5) -> None:
        """Append manifests of ``rows`` changes of each table, to few keys."""
        for number in range(manifests):
            self.history.commit(*self._changes(number, rows))

    def _changes(self, number: int, rows: int) -> Sequence[LoggedEvent]:
        events: list[Event] = []
        for at in range(rows):
            for table in TABLES:
                moved = at % 4 == 3
                before = {"id": at} if moved else None
                row = {"id": at + 100 * moved, "note": f"{number} {at}"}
                events.append(Row(table, "u" if moved else "c", row, before=before))
        return [*events, Emptied(TABLES[0])] if number % 5 == 4 else events

    def worker(self, until_idle_s: float | None = None, **deadly: int) -> WorkerProcess:
        """A worker that kills itself when it reaches a point (``after_write=3``) so often."""
        return WorkerProcess(
            self.config,
            self._root,
            until_idle_s=until_idle_s,
            deadly={
                (name.replace("_", "-"), count): signal.SIGKILL for name, count in deadly.items()
            },
            publisher=NAME,
        )

    def publish(self) -> None:
        """Run a worker until there is nothing left."""
        worker = self.worker(IDLE_S)
        assert worker.wait() == 0, worker.output()

    def publish_until_killed(self, point: str, count: int) -> None:
        """Commit changes, and run a worker that kills itself when it reaches ``point`` so often."""
        worker = self.worker(**{point: count})
        while not worker.ended():
            self.commit(1)
            self.await_end(worker)
        assert worker.wait() == -signal.SIGKILL, worker.output()

    def await_end(self, worker: WorkerProcess) -> None:
        """Return once ``worker`` has published everything, or is dead."""
        poll("it is published, or dead", lambda: worker.ended() or self.is_published())

    def is_published(self) -> bool:
        """Whether the logged position is the chain's end."""
        entry = self._positions.newest()
        return entry is not None and entry.position.seq == self.history.last_seq

    def entry(self) -> PublisherEntry:
        found = self._positions.newest()
        assert found is not None
        return found

    def wanted(self) -> list[Read]:
        """The events of the chain, as far as the output shows them."""
        return expected(self.output, published(self.history, tables=TABLES))

    def check(self) -> None:
        """All events of the chain are at the output, each row's in order."""
        wanted, found = self.wanted(), self.output.events()
        if self.output.order_of_all:
            assert first_times(found) == wanted
        if self.output.once:
            assert len(found) == len(wanted)
        rows = by_row(found)
        for name, events in by_row(wanted).items():
            assert first_times(rows[name]) == events
        assert rows.keys() == by_row(wanted).keys()


def by_row(events: Sequence[Read]) -> dict[str, list[Read]]:
    """The events of each row, in their order."""
    ordered = sorted(events, key=lambda one: one.of_row)
    return {row: list(some) for row, some in groupby(ordered, lambda one: one.of_row)}


def first_times(events: Sequence[Read]) -> list[Read]:
    """Those that no earlier one repeats. One that came back takes all after it along: what a
    consumer keeps by sequence is the same."""
    found: list[Read] = []
    for event in events:
        if not found or event.order > found[-1].order:
            found.append(event)
    return found
