"""The state of each publisher, from its log of positions."""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum

import msgspec

from tideline.contract.manifest import Manifest
from tideline.contract.publishing import PublisherEntry
from tideline.settings import Settings
from tideline.store.chain import Chain
from tideline.store.objects import ObjectStore
from tideline.store.publisher_log import PublisherLog

_RATE_OVER = 20
"""The rate is that of so many entries of the log, a second or a heartbeat apart."""


class PublisherState(StrEnum):
    """The state of a publisher: ``silent``: its worker has not logged a position for as long as
    another one waits before it takes over; ``new``: it never ran; ``waiting``: its output or a
    server that it needs does not answer, and it goes on by itself; ``blocked``: it stopped at
    something that an operator has to mend, and nothing is skipped."""

    PUBLISHING = "publishing"
    STOPPED = "stopped"
    PAUSED = "paused"
    SILENT = "silent"
    NEW = "new"
    WAITING = "waiting"
    BLOCKED = "blocked"


class PublisherStatus(msgspec.Struct, frozen=True):
    """A publisher. ``seq``: all changes up to it are published; ``waiting``: how many are captured
    behind it. ``lag_s``: the age of what is published, by this machine's clock, as a table's.
    ``events``: published in its life; ``per_s``: lately. ``writer`` logged last, at
    ``logged_at_us``. ``dead_letters``: events that its output put aside, because the receiver
    refused them. ``reason``: why it is waiting or blocked. What is not known is None."""

    name: str
    output: str
    state: PublisherState
    seq: int | None = None
    waiting: int | None = None
    lag_s: float | None = None
    events: int = 0
    per_s: float | None = None
    writer: str | None = None
    logged_at_us: int | None = None
    dead_letters: int = 0
    reason: str | None = None


def publisher_statuses(
    settings: Settings, store: ObjectStore, tail: Manifest | None, now_us: int
) -> Iterator[PublisherStatus]:
    """Yield the publishers of the settings, by name. Raises like the store."""
    chain = Chain(store, settings.pipeline)
    for name, chosen in sorted(settings.publish.items()):
        log = PublisherLog(store, settings.pipeline, name)
        entry = log.newest()
        if entry is None:
            yield PublisherStatus(name, chosen.output, PublisherState.NEW)
            continue
        silent_us = now_us - entry.written_at_us
        through_us = _through_us(chain, entry, tail)
        yield PublisherStatus(
            name,
            chosen.output,
            _state(entry, silent_us / 1_000_000 > chosen.takeover_after_s),
            entry.position.seq,
            None if tail is None else max(0, tail.last_seq - entry.position.seq),
            None if through_us is None else max(0.0, (now_us - through_us) / 1_000_000),
            entry.events,
            _rate(log, entry),
            entry.writer,
            entry.written_at_us,
            entry.dead_letters,
            entry.reason or None,
        )


def _state(entry: PublisherEntry, silent: bool) -> PublisherState:
    if entry.paused:
        return PublisherState.PAUSED
    if entry.released:
        return PublisherState.BLOCKED if entry.reason else PublisherState.STOPPED
    if silent:
        return PublisherState.SILENT
    return PublisherState.WAITING if entry.reason else PublisherState.PUBLISHING


def _through_us(chain: Chain, entry: PublisherEntry, tail: Manifest | None) -> int | None:
    """Return the source's clock up to which nothing is unpublished."""
    number = entry.position.manifest_number
    if tail is None or number == 0:
        return None
    if number >= tail.manifest_number:
        return tail.through_us
    found = chain.read(number)
    return None if found is None else found.manifest.through_us


def _rate(log: PublisherLog, entry: PublisherEntry) -> float | None:
    before = log.read(entry.number - _RATE_OVER) or log.read(1)
    if before is None or before.number == entry.number:
        return None
    seconds = (entry.written_at_us - before.written_at_us) / 1_000_000
    return None if seconds <= 0 else (entry.events - before.events) / seconds
