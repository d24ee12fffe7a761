"""Publishes: reads the chain, writes to the output, and logs the positions that are settled."""

from __future__ import annotations

from tideline.contract.publishing import ChainPosition
from tideline.programs.points import OnPoint, pass_by
from tideline.settings import PublishSettings
from tideline.system import Event, System
from tideline_publish.events import EventBatch
from tideline_publish.feeds import Feed
from tideline_publish.lead import PublisherLead
from tideline_publish.outputs.base import Output

LOGGED_EVERY_S = 1.0
"""The log of positions grows no faster: behind a position that only it has, events come again."""


class Publisher:
    """One run of a publisher, from a position that its output was opened at."""

    def __init__(
        self,
        settings: PublishSettings,
        feed: Feed,
        output: Output,
        lead: PublisherLead,
        stopping: Event,
        system: System,
        on_point: OnPoint = pass_by,
    ) -> None:
        self._on_point = on_point
        self._settings = settings
        self._feed = feed
        self._output = output
        self._lead = lead
        self._stopping = stopping
        self._system = system
        self._settled = feed.position
        self._settled_at = system.monotonic()
        self._waiting_bytes = self._waiting_events = self._unlogged = 0

    def run(self, until_idle_s: float | None) -> None:
        """Publish until it is stopped, or for ``until_idle_s`` found nothing; all that was written
        is settled then. Raises like the chain, the output and the log of positions."""
        idle_since = self._system.monotonic()
        while not self._stopping.is_set():
            if self._once():
                idle_since = self._system.monotonic()
            if self._feed.position == self._settled:
                self._lead.reason = ""  # All that there was is at the output.
            idle_s = self._system.monotonic() - idle_since
            if until_idle_s is not None and idle_s >= until_idle_s:
                break
            self._heartbeat()
            self._stopping.wait(self._settings.poll_interval_s)
        if self._feed.position != self._settled:
            self._settle(self._feed.position)
        self._log()

    @property
    def _waited_s(self) -> float:
        """The seconds since it was settled."""
        return self._system.monotonic() - self._settled_at

    def _once(self) -> bool:
        """Publish what is there; return whether there was any event."""
        found = False
        for batch in self._feed.batches():
            found = self._write(batch) or found
            if self._is_due(batch):
                self._settle(batch.position)
            self._heartbeat()
            if self._stopping.is_set() and batch.whole:
                break
        if self._feed.position != self._settled and self._waited_s >= self._output.gathers_s:
            self._settle(self._feed.position)
        return found

    def _write(self, batch: EventBatch) -> bool:
        self._output.write(batch.events)
        self._waiting_bytes += sum(event.size for event in batch.events)
        self._waiting_events += len(batch.events)
        if batch.events:
            self._on_point("after-write")
        return bool(batch.events)

    def _is_due(self, batch: EventBatch) -> bool:
        if not batch.whole and self._output.whole_only:
            return False
        full = self._waiting_bytes >= self._settings.batch_bytes_max
        longest_s = max(self._settings.flush_interval_s, self._output.gathers_s)
        return full or self._waited_s >= longest_s

    def _settle(self, position: ChainPosition) -> None:
        self._output.settle(position)
        if self._waiting_events:
            self._lead.reason = ""  # The output takes events, however many are still waiting.
        self._settled, self._settled_at = position, self._system.monotonic()
        self._unlogged += self._waiting_events
        self._waiting_bytes = self._waiting_events = 0
        self._on_point("after-settle")
        before = self._feed.state_manifest
        for _ in self._feed.checkpoint(position):
            self._heartbeat()
        # The next checkpoint removes the one before this: that one must not be needed then.
        kept = self._feed.state_manifest != before
        late = not self._output.keeps_position and self._lead.silent_s >= LOGGED_EVERY_S
        if kept or late:
            self._log()

    def _heartbeat(self) -> None:
        entry = self._lead.entry
        behind = entry is None or entry.position != self._settled
        every_s = LOGGED_EVERY_S if behind else self._settings.heartbeat_s
        if self._lead.silent_s >= every_s:
            self._log()

    def _log(self) -> None:
        self._lead.state_manifest = self._feed.state_manifest
        letters = self._output.dead_letters
        self._lead.append(self._settled, events=self._unlogged, dead_letters=letters)
        self._unlogged = 0
        self._on_point("after-log")
