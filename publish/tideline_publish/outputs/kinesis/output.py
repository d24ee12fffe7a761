"""Events as records of a Kinesis data stream, those of one row in order."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

import structlog

from tideline.contract.errors import Unavailable
from tideline.contract.publishing import ChainPosition
from tideline_publish.events import TRUNCATED, ChangeEvent
from tideline_publish.outputs.base import OrderScope, OutputContext
from tideline_publish.outputs.envelope import in_envelopes
from tideline_publish.outputs.kinesis.client import KinesisClient
from tideline_publish.outputs.kinesis.lanes import Lanes, OutgoingRecord
from tideline_publish.outputs.kinesis.records import partition_key, record_of

_PAUSES_S = (0.1, 5.0)

log = structlog.get_logger("tideline.publisher")


class KinesisOutput:
    """See `Output`."""

    def __init__(self, context: OutputContext) -> None:
        self._context = context
        self._settings = context.settings.kinesis
        self._client: KinesisClient | None = None
        self._lanes = Lanes(self._settings.request_bytes_max)
        self._pause_s = 0.0
        self.order = OrderScope.KEY
        self.record_bytes_max: int | None = self._settings.record_bytes_max
        self.keeps_position = False
        self.whole_only = False
        self.gathers_s = 0.0
        self.dead_letters = 0

    def open(self, logged: ChainPosition) -> ChainPosition:
        """See `Output`."""
        self.close()
        self._client = KinesisClient(self._settings)
        # What is wrong with stream or access is known before the first event.
        self._client.shards()
        return logged

    def write(self, events: Sequence[ChangeEvent]) -> None:
        """See `Output`."""
        for event in in_envelopes(events):
            if event.op == TRUNCATED:
                self._truncate(event)
                continue
            if event.value is None:  # A tombstone is for logs that are compacted.
                continue
            self._lanes.add(record_of(event, self._settings))
            while self._lanes.is_full:
                self._request()

    def settle(self, position: ChainPosition) -> None:
        """See `Output`."""
        self._drain()

    def close(self) -> None:
        """See `Output`."""
        client, self._client = self._client, None
        self._lanes = Lanes(self._settings.request_bytes_max)
        self._pause_s = 0.0
        if client is not None:
            with suppress(OSError):
                client.close()

    def _truncate(self, event: ChangeEvent) -> None:
        """Put a truncate into every shard, behind all that came before it: it is about rows of all
        keys. A shard that came to be meanwhile gets it, too."""
        client = self._opened()
        self._drain()
        reached: set[str] = set()
        while left := {shard: at for shard, at in client.shards().items() if shard not in reached}:
            for shard, hash_key in left.items():
                record = OutgoingRecord(partition_key(event), event.value or b"", hash_key)
                self._lanes.add(record, lane=shard)
            self._drain()
            reached |= left.keys()

    def _drain(self) -> None:
        while self._lanes:
            self._request()

    def _request(self) -> None:
        """Make one request; what failed in it comes first in the next one, after a pause."""
        if not self._context.pause(self._pause_s):
            raise Unavailable("stopped before Kinesis took all events")
        records = self._lanes.take()
        codes = self._opened().put([record for _, record in records])
        lanes = [lane for lane, _ in records]
        failed = [lane for lane, code in zip(lanes, codes, strict=True) if code]
        taken = [lane for lane, code in zip(lanes, codes, strict=True) if not code]
        self._lanes.settle(taken, failed)
        if not failed:
            self._pause_s = 0.0
            return
        reasons = sorted({code for code in codes if code})
        if self._pause_s and not taken:
            self._context.waits(f"Kinesis took no event of the last requests: {', '.join(reasons)}")
        first, longest = _PAUSES_S
        self._pause_s = min(max(first, self._pause_s * 2), longest)
        log.warning(
            "Kinesis took some events only; the others are sent again",
            failed=len(failed),
            records=len(records),
            reasons=reasons,
        )

    def _opened(self) -> KinesisClient:
        assert self._client is not None
        return self._client
