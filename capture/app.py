"""Builds the worker from settings and runs it: the only place that names a concrete source."""

from __future__ import annotations

import signal
import socket
import sys
import threading
import time
import uuid

import structlog

from capture.assistants import OnPoint
from capture.core.events import Limits
from capture.desk import Desk
from capture.leadership import Candidate, Lead
from capture.metrics import Metrics
from capture.queue import RequestQueue
from capture.runtime import Crew, Session
from capture.sources.base import Source
from capture.sources.mysql.source import MysqlSource
from capture.sources.postgres.source import PostgresSource
from capture.uploader import Restart, Uploader
from tideline.contract.errors import Unavailable
from tideline.settings import Settings
from tideline.store.chain import Chain, Link
from tideline.store.objects import open_store
from tideline.store.probe import probe_store

_SWITCH_S = 0.0002
"""The dumper takes the interpreter's lock once per row; with the default of 5 ms a busy log reader
would let it have a few hundred rows per second."""
_BACKOFF_S = (0.2, 5.0)

log = structlog.get_logger("tideline.worker")


def run_worker(
    settings: Settings,
    *,
    until_idle_s: float | None = None,
    on_point: OnPoint = lambda name: None,
) -> None:
    """Capture until SIGTERM or SIGINT (or idle for ``until_idle_s``); then all read is durable.

    Raises Fenced when another worker took over, and what stops a pipeline: SourceLost,
    Misconfigured, CorruptData. ``on_point`` is called at named points, for fault tests.
    """
    sys.setswitchinterval(_SWITCH_S)
    stopping = threading.Event()
    _stop_on_signals(stopping)
    probe_store(settings.store, settings.pipeline)
    store = open_store(settings.store)
    chain = Chain(store, settings.pipeline)
    writer = f"{socket.gethostname()}-{uuid.uuid4().hex[:12]}"
    metrics = Metrics(settings.pipeline, settings.capture.metrics_port)
    desk = Desk(
        RequestQueue(
            settings.control,
            settings.pipeline,
            writer,
            claim_idle_s=settings.capture.request_claim_s,
        )
    )
    desk.start()
    try:
        source = _source(settings)

        def tell_passive(link: Link) -> None:
            desk.publish(metrics.status(writer, link, passive=True))

        candidate = Candidate(
            chain,
            pipeline=settings.pipeline,
            writer=writer,
            takeover_after_s=settings.capture.takeover_after_s,
            stopping=stopping,
            on_passive=tell_passive,
        )
        lead = candidate.acquire(lambda: (source.identity(), source.begin()))
        if lead is None:
            return
        uploader = Uploader(
            store,
            chain,
            lead.link,
            lead.state,
            heartbeat_s=settings.capture.heartbeat_s,
            on_point=on_point,
        )
        crew = Crew(chain, uploader, desk, metrics, writer, stopping, on_point)
        _lead(settings, source, crew, lead, until_idle_s)
    finally:
        desk.stop(writer)


def _source(settings: Settings) -> Source:
    if settings.source.kind == "postgres":
        return PostgresSource(settings)
    return MysqlSource(settings)


def _lead(
    settings: Settings, source: Source, crew: Crew, lead: Lead, until_idle_s: float | None
) -> None:
    """Session after session, until one ends by itself. The chain is released at the end."""
    crew.uploader.start()
    crew.desk.claiming = True
    link, state, pause = lead.link, lead.state, _BACKOFF_S[0]
    try:
        while True:
            begun = time.monotonic()
            session: Session | None = None
            try:
                session = Session(
                    source,
                    crew,
                    link,
                    state,
                    settings=settings.capture,
                    limits=_limits(settings),
                    until_idle_s=until_idle_s,
                )
                session.run()
                break
            except Unavailable as error:
                log.warning(
                    "the session ended; it begins anew from what is durable", reason=str(error)
                )
            if time.monotonic() - begun > 30:
                pause = _BACKOFF_S[0]
            if crew.stopping.wait(pause):
                break
            pause = min(pause * 2, _BACKOFF_S[1])
            crew.uploader.submit(Restart())
            crew.uploader.drain()
            if session is not None:
                session.tell()
            link, state = crew.uploader.last, crew.uploader.state
        crew.desk.claiming = False
        crew.uploader.release(settings.capture.stop_timeout_s)
    finally:
        crew.uploader.stop()
    log.info("stopped", manifest_number=crew.uploader.last.manifest.manifest_number)


def _limits(settings: Settings) -> Limits:
    capture = settings.capture
    return Limits(
        flush_interval_s=capture.flush_interval_s,
        heartbeat_s=capture.heartbeat_s,
        segment_bytes_max=capture.segment_bytes_max,
        chunk_rows=capture.chunk_rows,
        chunk_bytes_max=capture.chunk_bytes_max,
        delay_ms=capture.delay_ms,
        chunk_redo_max=capture.chunk_redo_max,
        unseen_transactions_max=capture.unseen_transactions_max,
        open_requests_max=capture.open_requests_max,
        initial_dump=settings.source.initial == "dump",
        dump_unproven=settings.source.schema_policy == "auto",
    )


def _stop_on_signals(stopping: threading.Event) -> None:
    if threading.current_thread() is not threading.main_thread():
        return
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stopping.set())
