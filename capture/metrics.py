"""What the worker tells about itself: Prometheus metrics, and its status for the control queue."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Sequence

from prometheus_client import CollectorRegistry, Counter, Gauge, start_http_server

from capture.core.worker import Worker
from capture.uploader import Uploader
from tideline.contract.errors import Misconfigured
from tideline.contract.manifest import Manifest
from tideline.contract.request import Answer
from tideline.control import WorkerStatus
from tideline.store.chain import Link


class Metrics:
    """The metrics of one worker. ``port`` 0: kept, but not served."""

    def __init__(self, pipeline: str, port: int) -> None:
        registry = CollectorRegistry()
        self._pipeline = pipeline
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
        self._redone = Gauge(
            "tideline_chunks_redone", "Chunks read again, since the start", registry=registry
        )
        self._open = Gauge("tideline_open_requests", "Requests not ended", registry=registry)
        if port:
            _serve(port, registry)

    def committed(self, manifest: Manifest) -> None:
        self._manifests.inc()
        if manifest.source_time_us is not None:
            self._source_time.set(manifest.source_time_us / 1e6)
        for part in manifest.parts:
            self._bytes.inc(part.bytes)
            for operation, count in part.operations.items():
                self._rows.labels(operation).inc(count)

    def observe(self, core: Worker, uploader: Uploader) -> None:
        self._sequence.set(core.sequencer.last)
        self._pending.set(uploader.pending_bytes)
        self._redone.set(core.dumps.redone)
        self._open.set(len(core.requests))

    def status(
        self,
        writer: str,
        link: Link,
        *,
        answers: Sequence[Answer] = (),
        note: str | None = None,
        passive: bool = False,
    ) -> WorkerStatus:
        """The status to publish; ``link`` is the chain's end as this worker knows it."""
        manifest = link.manifest
        return WorkerStatus(
            writer=writer,
            pipeline=self._pipeline,
            state="passive" if passive else "live",
            host=socket.gethostname(),
            pid=os.getpid(),
            term=manifest.term,
            manifest_number=manifest.manifest_number,
            last_seq=manifest.last_seq,
            updated_at_us=time.time_ns() // 1000,
            position=str(manifest.position),
            source_time_us=manifest.source_time_us,
            note=note,
            dumps=tuple(answers),
        )


def _serve(port: int, registry: CollectorRegistry) -> None:
    try:
        start_http_server(port, addr="127.0.0.1", registry=registry)
    except OSError as error:
        raise Misconfigured(
            f"metrics cannot be served on port {port}: {error.strerror}",
            hint="set capture.metrics_port to a port that is free, or to 0",
        ) from None
