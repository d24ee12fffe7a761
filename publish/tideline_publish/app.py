"""Builds a publisher from settings and runs it."""

from __future__ import annotations

import socket
from contextlib import closing, suppress

import structlog

from tideline.contract.errors import CorruptData, Fenced, Misconfigured, TidelineError, Unavailable
from tideline.contract.publishing import ChainPosition
from tideline.planner.consumers import register_publisher
from tideline.programs.logs import keep_to_lines, log_retries
from tideline.programs.points import OnPoint, pass_by
from tideline.programs.stopping import stop_on_signals
from tideline.settings import PublishSettings, Settings
from tideline.store.chain import Chain
from tideline.store.objects import open_store
from tideline.store.publisher_log import PublisherLog
from tideline.system import Event, RealSystem, System
from tideline_publish.feeds import Feed, FeedContext, make_feed
from tideline_publish.lead import PublisherLead
from tideline_publish.outbox.event import PutAside
from tideline_publish.outbox.letters import OutboxLetters
from tideline_publish.outputs.base import OutputContext
from tideline_publish.outputs.registry import OUTPUTS
from tideline_publish.publisher import Publisher
from tideline_publish.selection import uncaptured
from tideline_publish.start import StartPlace

_BACKOFF_S = (0.2, 5.0)

log = structlog.get_logger("tideline.publisher")


def run_publisher(
    settings: Settings,
    name: str,
    *,
    until_idle_s: float | None = None,
    on_point: OnPoint = pass_by,
) -> None:
    """Publish until a stop signal, or for ``until_idle_s`` there was nothing to publish; then what
    was read is durable at the output.

    Raises Fenced when another worker took over, Misconfigured for settings that cannot be, and
    CorruptData for a chain or parts that are not as they should be. ``on_point`` is called at named
    points, for fault tests.
    """
    chosen = settings.publisher(name)
    keep_to_lines()
    system = RealSystem()
    log_retries(system.monotonic)
    stopping = system.event()
    stop_on_signals(stopping)
    _Program(settings, name, chosen, stopping, system, on_point).run(until_idle_s)


class _Program:
    """A publisher's process."""

    def __init__(
        self,
        settings: Settings,
        name: str,
        chosen: PublishSettings,
        stopping: Event,
        system: System,
        on_point: OnPoint,
    ) -> None:
        self._on_point = on_point
        self._settings, self._name, self._chosen = settings, name, chosen
        self._stopping, self._system = stopping, system
        self._start = StartPlace.parse(chosen.start)
        self._store = open_store(settings.store)
        self._chain = Chain(self._store, settings.pipeline, system)
        writer = f"{socket.gethostname()}-{system.new_id()[:12]}"
        positions = PublisherLog(self._store, settings.pipeline, name)
        self._lead = PublisherLead(positions, writer, chosen.takeover_after_s, stopping, system)
        letters = f"{settings.pipeline}.{name}.outbox"
        self._letters = OutboxLetters(chosen.outbox, letters, self._pause, system)
        self._lead.invalid = lambda: self._letters.count
        self._lead.state_manifest = 0 if chosen.aggregates else None

    def run(self, until_idle_s: float | None) -> None:
        register_publisher(self._settings, self._store, self._name)
        while self._lead.acquire(self._begin) is not None:
            try:
                self._lead_on(until_idle_s)
                return
            except Fenced:
                if not self._lead.fenced_by_operator():
                    raise
                log.info("a command has moved or paused the publisher", publisher=self._name)

    def _lead_on(self, until_idle_s: float | None) -> None:
        """Publish, session after session of the output, until it ends by itself. An error that
        trying again does not mend is in the log of positions, too: status shows it."""
        pause_s = _BACKOFF_S[0]
        while not self._stopping.is_set():
            begun = self._system.monotonic()
            try:
                self._publish(until_idle_s)
                break
            except Unavailable as error:
                self._lead.reason = error.message
                if self._stopping.is_set():
                    log.warning("stops while publishing is interrupted", reason=str(error))
                    break
                log.warning("publishing is interrupted; it is tried again", reason=str(error))
            except (Misconfigured, CorruptData) as error:
                self._lead.reason = error.message
                with suppress(TidelineError):
                    self._lead.append(self._logged(), released=True)
                raise
            if self._system.monotonic() - begun > 30:
                pause_s = _BACKOFF_S[0]
            self._lead.append(self._logged())
            self._pause(pause_s)
            pause_s = min(pause_s * 2, _BACKOFF_S[1])
        self._lead.reason = ""  # A signal has stopped it, and not what was in its way.
        self._lead.append(self._logged(), released=True)
        log.info("stopped", publisher=self._name, through_seq=self._logged().seq)

    def _publish(self, until_idle_s: float | None) -> None:
        """Run one session of the output."""
        output = OUTPUTS[self._chosen.output](self._context())
        try:
            position = output.open(self._logged())
            log.info(
                "publishing",
                publisher=self._name,
                output=self._chosen.output,
                from_seq=position.seq + 1,
            )
            if nothing := uncaptured(self._chosen, self._chain):
                log.warning(
                    "no table that is captured is like these: see `tideline status`",
                    tables=", ".join(nothing),
                )
            put_aside = self._letters.open(position.seq)
            with closing(self._feed(position, put_aside)) as feed:
                publisher = Publisher(
                    self._chosen,
                    feed,
                    output,
                    self._lead,
                    self._stopping,
                    self._system,
                    self._on_point,
                )
                publisher.run(until_idle_s)
        finally:
            self._letters.close()
            output.close()

    def _feed(self, position: ChainPosition, put_aside: PutAside | None) -> Feed:
        context = FeedContext(
            self._settings,
            self._name,
            self._chosen,
            self._store,
            self._chain,
            self._system,
            self._on_point,
        )
        return make_feed(context, position, put_aside)

    def _context(self) -> OutputContext:
        return OutputContext(
            self._settings.pipeline,
            self._name,
            self._chosen,
            self._system,
            self._pause,
            self._waits,
        )

    def _waits(self, reason: str) -> None:
        self._lead.reason = reason

    def _pause(self, seconds: float) -> bool:
        """Wait, with heartbeats; return False when stopped."""
        until = self._system.monotonic() + seconds
        while True:
            if self._lead.silent_s >= self._chosen.heartbeat_s:
                self._lead.append(self._logged())
            if self._stopping.is_set():
                return False
            left_s = until - self._system.monotonic()
            if left_s <= 0:
                return True
            self._stopping.wait(min(left_s, self._chosen.heartbeat_s))

    def _logged(self) -> ChainPosition:
        entry = self._lead.entry
        assert entry is not None
        return entry.position

    def _begin(self) -> ChainPosition | None:
        """Return where a new publisher begins; None while there is no chain."""
        return None if self._chain.read(1) is None else self._start.find(self._chain)
