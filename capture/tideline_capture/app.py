"""Builds the worker from settings and runs it."""

from __future__ import annotations

import socket
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

import structlog
from redis import Redis

from tideline.contract.errors import Misconfigured, SourceLost, Unavailable
from tideline.contract.schema import parse_table
from tideline.contract.steps import StepKind
from tideline.programs.logs import keep_to_lines, log_retries
from tideline.programs.points import OnPoint, pass_by
from tideline.programs.stopping import stop_on_signals, unless_stopped
from tideline.redis_client import connect
from tideline.settings import Control, Settings, Store
from tideline.settings.source_kinds import SOURCE_KINDS
from tideline.store.chain import Chain, ManifestEntry
from tideline.store.objects import ObjectStore, open_store
from tideline.store.probe import probe_clients
from tideline.system import Event, RealSystem, System
from tideline_capture.control_thread import ControlThread
from tideline_capture.core.limits import Applies, DumpPolicy
from tideline_capture.health import health_of, limit_of
from tideline_capture.leadership import Candidate, Lead
from tideline_capture.live import LiveSettings, SettingsFile
from tideline_capture.metrics import Metrics
from tideline_capture.queue import TIMEOUT_S, RequestQueue
from tideline_capture.runtime import CaptureSession, Ended, WorkerRuntime
from tideline_capture.sources.base import Source
from tideline_capture.sources.registry import source_of
from tideline_capture.store_maintenance import StoreMaintenance
from tideline_capture.uploader import Restart, Uploader
from tideline_capture.web import serve

_SWITCH_S = 0.0002
"""The dumper takes the interpreter's lock once per row. With the default of 5 ms, a busy log reader
would leave it only a few hundred rows per second."""
_BACKOFF_S = (0.2, 5.0)

log = structlog.get_logger("tideline.worker")


@dataclass(frozen=True, slots=True)
class Surroundings:
    """The surroundings of a worker: this machine's own, or the simulator's.

    ``open_store`` makes a separate client at each call; ``chain``, ``source`` and ``redis`` send
    nothing yet. ``stopping`` is set to stop the worker.
    """

    system: System
    host: str
    stopping: Event
    open_store: Callable[[Store], ObjectStore]
    chain: Callable[[ObjectStore, str], Chain]
    source: Callable[[Settings], Source]
    redis: Callable[[Control], Redis]
    metrics: Metrics


def run_worker(
    settings: Settings,
    *,
    file: SettingsFile | None = None,
    until_idle_s: float | None = None,
    on_point: OnPoint = pass_by,
) -> None:
    """Capture until a stop signal (or ``until_idle_s`` without work); then all that was read is
    durable.

    Raises Fenced when another worker took over, and whatever stops a pipeline: SourceLost,
    Misconfigured, CorruptData. ``file`` is followed while the worker runs. ``on_point`` is called
    at named points, for fault tests.
    """
    sys.setswitchinterval(_SWITCH_S)
    keep_to_lines()
    system = RealSystem()
    log_retries(system.monotonic)
    stopping = system.event()
    stop_on_signals(stopping)
    around = Surroundings(
        system,
        socket.gethostname(),
        stopping,
        open_store,
        lambda store, pipeline: Chain(store, pipeline, system),
        lambda current: source_of(current, on_point=on_point),
        lambda control: connect(control, timeout_s=TIMEOUT_S),
        Metrics(settings.pipeline, system),
    )
    run_within(around, settings, file=file, until_idle_s=until_idle_s, on_point=on_point)


def run_within(
    around: Surroundings,
    settings: Settings,
    *,
    file: SettingsFile | None = None,
    until_idle_s: float | None = None,
    on_point: OnPoint = pass_by,
) -> None:
    """Capture like `run_worker`, with nothing outside the process but what ``around`` has."""
    process = _WorkerProcess(around, settings, file, on_point)
    address, port = settings.capture.metrics_address, settings.capture.metrics_port
    serve(address, port, around.metrics.registry, process.health)
    unless_stopped(around.stopping, lambda: _probe(around, settings), around.system)
    if around.stopping.is_set():
        log.info("stopped before it began")
        return
    process.control_thread.start()
    try:
        process.run(until_idle_s)
    finally:
        process.control_thread.stop(process.writer)


class _WorkerProcess:
    """The parts of a worker that outlive its sessions. Making it sends nothing."""

    def __init__(
        self, around: Surroundings, settings: Settings, file: SettingsFile | None, on_point: OnPoint
    ) -> None:
        clock = around.system.monotonic
        self._around = around
        self._settings = settings
        self._on_point = on_point
        self._store = around.open_store(settings.store)
        self._chain = around.chain(self._store, settings.pipeline)
        self._live = LiveSettings(settings, file, clock=clock)
        self.writer = f"{around.host}-{around.system.new_id()[:12]}"
        self.health = health_of(settings, around.stopping, clock)
        self.control_thread = ControlThread(
            _requests(around, settings, self.writer), around.system, on_point=on_point
        )

    def run(self, until_idle_s: float | None) -> None:
        """Wait for the lead of the chain, then capture until a session ends by itself."""
        around, live = self._around, self._live
        source = around.source(self._settings)
        lead = self._lead(source)
        if lead is None:
            return
        self._on_point("after-takeover")
        if live.current is not self._settings:
            source = around.source(live.current)  # They changed while it waited.
        runtime = self._runtime(lead)
        maintenance = StoreMaintenance(
            lambda: live.current,
            self._store,
            self._chain,
            lambda: runtime.uploader.last.manifest.manifest_number,
            around.system,
        )
        maintenance.start()
        try:
            _lead(around.source, source, runtime, lead, until_idle_s)
        finally:
            maintenance.stop()

    def _lead(self, source: Source) -> Lead | None:
        """Return the lead once it is this worker's; None when it was stopped before."""
        stopping, system = self._around.stopping, self._around.system
        candidate = Candidate(
            self._chain,
            writer=self.writer,
            takeover_after_s=self._settings.capture.takeover_after_s,
            stopping=stopping,
            system=system,
            on_passive=self._report_passive,
            health=self.health,
        )
        return unless_stopped(
            stopping, lambda: candidate.acquire(lambda: (source.identity(), source.begin())), system
        )

    def _report_passive(self, entry: ManifestEntry) -> None:
        self._live.changed()  # The first session begins with the settings in force then.
        status = self._around.metrics.status(
            self.writer, entry, passive=True, restart_for=self._live.restart_for
        )
        self.control_thread.publish(status)

    def _runtime(self, lead: Lead) -> WorkerRuntime:
        """Return what sessions share, with an uploader behind the tail of ``lead``."""
        around = self._around
        uploader = Uploader(
            self._store,
            self._chain,
            lead,
            around.system,
            heartbeat_s=self._settings.capture.heartbeat_s,
            on_point=self._on_point,
            health=self.health,
        )
        patience_s = self._settings.capture.takeover_after_s

        def owns() -> bool:
            return uploader.failure is None and uploader.silent_s < patience_s

        self.control_thread.owns = owns
        self.health.active(owns)
        return WorkerRuntime(
            self._chain,
            uploader,
            self.control_thread,
            around.metrics,
            self.writer,
            around.stopping,
            self._on_point,
            self._live,
            self.health,
            around.system,
        )


def _probe(around: Surroundings, settings: Settings) -> None:
    first, second = around.open_store(settings.store), around.open_store(settings.store)
    probe_clients(first, second, settings.pipeline, around.system)


def _requests(around: Surroundings, settings: Settings, writer: str) -> RequestQueue:
    return RequestQueue(
        around.redis(settings.control),
        settings.control,
        settings.pipeline,
        writer,
        clock=around.system.monotonic,
        claim_idle_s=settings.capture.request_claim_s,
    )


def _lead(
    make_source: Callable[[Settings], Source],
    source: Source,
    runtime: WorkerRuntime,
    lead: Lead,
    until_idle_s: float | None,
) -> None:
    """Run session after session until one ends by itself; release the chain at the end."""
    live, clock = runtime.live, runtime.system.monotonic
    runtime.uploader.start()
    entry, state, pause = lead.entry, lead.state, _BACKOFF_S[0]
    try:
        if clock() - lead.since > live.current.capture.heartbeat_s:
            # This process was suspended. If there is another worker, the source is its to touch.
            _prove_ownership(runtime)
            entry, state = runtime.uploader.last, runtime.uploader.state
        runtime.control_thread.claiming = True
        while True:
            begun = clock()
            session: CaptureSession | None = None
            try:
                session = CaptureSession(
                    source,
                    runtime,
                    entry,
                    state,
                    settings=live.current.capture,
                    policy=_policy(live.current),
                    until_idle_s=until_idle_s,
                )
                if session.run() is not Ended.CHANGED:
                    break
                log.info("the settings changed: the session starts again with them")
                source, pause = make_source(live.current), 0.0
                runtime.health.limit_s = limit_of(live.current)
            except Unavailable as error:
                log.warning(
                    "the session ended; it starts again from what is durable", reason=str(error)
                )
            except (SourceLost, Misconfigured):
                # Or another worker took over and has moved the source on: then report that.
                with suppress(Unavailable):
                    _prove_ownership(runtime, live.current.capture.stop_timeout_s)
                raise
            if clock() - begun > 30:
                pause = _BACKOFF_S[0]
            if runtime.stopping.wait(pause):
                break
            pause = min(max(pause * 2, _BACKOFF_S[0]), _BACKOFF_S[1])
            _prove_ownership(runtime)
            if session is not None:
                session.report()
            entry, state = runtime.uploader.last, runtime.uploader.state
        runtime.control_thread.claiming = False
        runtime.uploader.release(live.current.capture.stop_timeout_s)
    finally:
        runtime.uploader.stop()
    log.info("stopped", manifest_number=runtime.uploader.last.manifest.manifest_number)


def _prove_ownership(runtime: WorkerRuntime, timeout_s: float | None = None) -> None:
    """Append to the chain, whatever is in progress; raise Fenced if another worker has taken
    over."""
    runtime.uploader.submit(Restart())
    runtime.uploader.drain(timeout_s)


def _policy(current: Settings) -> DumpPolicy:
    return DumpPolicy(
        initial=current.source.initial == "dump",
        doubted=current.source.schema_policy == "auto",
        applies=_applies(current),
        whole_rows=SOURCE_KINDS[current.source.kind].whole_rows,
    )


def _applies(current: Settings) -> Applies:
    """Return whether a dump by the worker follows a change that no target can take."""

    def applies(table: str, kind: StepKind) -> bool:
        chosen = current.of_table(parse_table(table)).on_change
        reaction = {StepKind.RETYPE: chosen.retype, StepKind.KEY: chosen.key}.get(kind, "park")
        return reaction == "apply"

    return applies
