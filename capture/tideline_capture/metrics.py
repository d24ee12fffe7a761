"""The worker's Prometheus metrics, and its status for the control queue.

The metrics are listed in ``docs/METRICS.md``. No label holds a row's value.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator, Sequence

from prometheus_client import CollectorRegistry, Counter, Gauge
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from tideline.contract.manifest import Manifest
from tideline.contract.request import Answer, TableProgress
from tideline.control import WorkerStatus
from tideline.store.chain import ManifestEntry
from tideline.system import System
from tideline_capture.core.facts import SourceLoad
from tideline_capture.core.worker import Worker
from tideline_capture.uploader import Uploader

TABLES_MAX = 1_000
"""Tables shown per request. If it has more, those that have not ended come first and the rest is
left out."""
_REASONS = {
    "replica lag": "replica_lag",
    "running queries": "running_queries",
    "log backlog": "log_backlog",
}
"""The governor's words, and the label ``by``."""


class Progress(Collector):
    """The progress of each request.

    What has no value has no sample, and what ended has none at all.
    """

    def __init__(self) -> None:
        self.answers: Sequence[Answer] = ()

    def collect(self) -> Iterator[GaugeMetricFamily]:
        answers = self.answers
        requests = GaugeMetricFamily(
            "tideline_request_state", "1: the request is in that state", labels=["request", "state"]
        )
        for answer in answers:
            requests.add_metric([answer.request_id, answer.state.value], 1)
        yield requests
        states = GaugeMetricFamily(
            "tideline_dump_state",
            "1: the table's dump is in that state",
            labels=["request", "table", "state"],
        )
        for request, table in _tables(answers):
            states.add_metric([request, table.table, table.state.value], 1)
        yield states
        for name, text, field in (
            ("chunks", "Chunks read", "chunks"),
            ("rows", "Rows read", "rows"),
            ("rows_estimate", "About how many rows there are to read", "rows_estimate"),
            ("rows_per_second", "Rate of the last chunks", "rows_per_s"),
            ("remaining_seconds", "How long the rest takes at that rate", "remaining_s"),
        ):
            family = GaugeMetricFamily(f"tideline_dump_{name}", text, labels=["request", "table"])
            for request, table in _tables(answers):
                value = getattr(table, field)
                if value is not None:
                    family.add_metric([request, table.table], value)
            yield family


def _tables(answers: Sequence[Answer]) -> Iterator[tuple[str, TableProgress]]:
    for answer in answers:
        tables = sorted(answer.tables, key=lambda table: table.state.final)
        for table in tables[:TABLES_MAX]:
            yield answer.request_id, table


class Metrics:
    """The metrics of one worker, in ``registry``; `tideline_capture.web` serves them."""

    def __init__(self, pipeline: str, system: System) -> None:
        self.registry = registry = CollectorRegistry()
        self._pipeline = pipeline
        self._system = system
        self._progress = Progress()
        registry.register(self._progress)
        self._ended = Counter(
            "tideline_requests_ended", "Requests that ended", ["state"], registry=registry
        )
        self._throttled = Gauge(
            "tideline_throttled", "1: dumps wait for the source, and why", ["by"], registry=registry
        )
        self._rows = Counter(
            "tideline_rows_committed", "Row changes in durable manifests", ["op"], registry=registry
        )
        self._bytes = Counter(
            "tideline_part_bytes_committed",
            "Bytes of parts in durable manifests",
            registry=registry,
        )
        self._manifests = Counter(
            "tideline_manifests", "Manifests appended by this worker", registry=registry
        )
        self._sequence = Gauge("tideline_last_seq", "Newest sequence minted", registry=registry)
        self._source_time = Gauge(
            "tideline_source_time_seconds",
            "Source's clock in the newest durable heartbeat",
            registry=registry,
        )
        self._pending = Gauge(
            "tideline_pending_bytes", "Bytes read and not durable yet", registry=registry
        )
        self._unavailable = Gauge(
            "tideline_store_unavailable_seconds",
            "For how long the store has not taken what is uploaded; 0: it does",
            registry=registry,
        )
        self._redone = Gauge(
            "tideline_chunks_redone", "Chunks read again, since the start", registry=registry
        )
        self._strange = Gauge(
            "tideline_strange_marks",
            "Of this session: what looked like a watermark of ours in the log, and was none",
            registry=registry,
        )
        self._open = Gauge("tideline_open_requests", "Requests not ended", registry=registry)
        self._lag = Gauge(
            "tideline_replica_lag_seconds", "Lag of the slowest replica", registry=registry
        )
        self._running = Gauge(
            "tideline_running_queries", "Sessions at work in the source", registry=registry
        )
        self._backlog = Gauge(
            "tideline_log_backlog_bytes", "What the source keeps of its log", registry=registry
        )
        self._expiring = Gauge(
            "tideline_log_expiring", "1: the source will remove its log soon", registry=registry
        )

    def committed(self, manifest: Manifest) -> None:
        self._manifests.inc()
        if manifest.through_us is not None:
            self._source_time.set(manifest.through_us / 1e6)
        for answer in manifest.finished:
            if answer.tables:  # A command has none.
                self._ended.labels(answer.state.value).inc()
        for part in manifest.parts:
            self._bytes.inc(part.bytes)
            for operation, count in part.operations.items():
                self._rows.labels(operation).inc(count)

    def loaded(self, load: SourceLoad) -> None:
        """Record the source's load; what is not known has no new value."""
        for gauge, value in (
            (self._lag, load.replica_lag_s),
            (self._running, load.running_queries),
            (self._backlog, load.log_backlog_bytes),
        ):
            if value is not None:
                gauge.set(value)
        self._expiring.set(load.log_warning is not None)

    def observe(
        self, core: Worker, uploader: Uploader, answers: Sequence[Answer] = (), *, now: float
    ) -> None:
        """Record the state at ``now`` (monotonic seconds, of the uploader's clock).

        ``answers`` are those of the open requests.
        """
        self._progress.answers = tuple(answers)
        self._sequence.set(core.state.last_seq)
        self._pending.set(uploader.pending_bytes)
        self._redone.set(core.dumps.redone)
        self._strange.set(core.unknown_watermarks)
        self._open.set(len(core.state.requests))
        reason = core.dumps.scheduler.governor.throttled_by(now=now) or ""
        for words, by in _REASONS.items():
            self._throttled.labels(by).set(words in reason)
        since = uploader.unavailable_since
        self._unavailable.set(0 if since is None else now - since)

    def status(
        self,
        writer: str,
        entry: ManifestEntry,
        *,
        answers: Sequence[Answer] = (),
        note: str | None = None,
        passive: bool = False,
        restart_for: tuple[str, ...] = (),
    ) -> WorkerStatus:
        """Build the status to publish; ``entry`` is the chain's end as this worker knows it."""
        manifest = entry.manifest
        return WorkerStatus(
            writer=writer,
            pipeline=self._pipeline,
            state="passive" if passive else "live",
            host=socket.gethostname(),
            pid=os.getpid(),
            term=manifest.term,
            manifest_number=manifest.manifest_number,
            last_seq=manifest.last_seq,
            updated_at_us=self._system.wall_us(),
            position=str(manifest.position),
            source_time_us=manifest.through_us,
            note=note,
            dumps=tuple(answers),
            restart_for=restart_for,
        )
