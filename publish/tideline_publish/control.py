"""Commands to a publisher: its log of positions takes them, and its workers find them there."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, field

from msgspec.structs import replace

from tideline.contract.errors import Fenced
from tideline.contract.publishing import PublisherEntry
from tideline.settings import PublishSettings, Settings
from tideline.store.chain import Chain
from tideline.store.objects import open_store
from tideline.store.publisher_log import PublisherLog
from tideline.system import RealSystem, System
from tideline_publish.events import ChangeEvent
from tideline_publish.feeds import FeedContext, make_feed
from tideline_publish.selection import uncaptured
from tideline_publish.start import StartPlace

_TRIES = 20
"""Its worker appends, too: of two that append one is repeated."""


@dataclass(slots=True)
class Preview:
    """The events that a publisher would publish now: ``events`` by table and operation, ``largest``
    the bytes of a table's largest event. ``from_seq`` and ``to_seq``: the changes that were
    read. ``uncaptured``: the publisher's tables of which none is captured."""

    from_seq: int
    to_seq: int
    events: Counter[tuple[str, str]] = field(default_factory=Counter)
    bytes: Counter[str] = field(default_factory=Counter)
    largest: dict[str, int] = field(default_factory=dict)
    uncaptured: tuple[str, ...] = ()


def pause(settings: Settings, name: str, *, paused: bool) -> PublisherEntry:
    """Pause a publisher, or let it go on; return the entry. Its workers follow within the time of
    its heartbeat."""
    return _append(settings, name, lambda entry: replace(entry, paused=paused))


def move(settings: Settings, name: str, to: str) -> PublisherEntry:
    """Have a publisher go on from the place ``to`` (`StartPlace`); return the entry. What is behind
    that place is published again, what is before it never."""
    chain = Chain(open_store(settings.store), settings.pipeline)
    found = StartPlace.parse(to).find(chain)

    def moved(entry: PublisherEntry) -> PublisherEntry:
        return replace(entry, position=replace(found, epoch=entry.position.epoch + 1))

    return _append(settings, name, moved)


def preview(settings: Settings, name: str) -> Preview:
    """Read what a publisher would publish now, to the chain's end, and publish nothing. Raises like
    the chain: what stops the publisher stops this."""
    chosen = settings.publisher(name)
    store = open_store(settings.store)
    chain = Chain(store, settings.pipeline)
    entry = PublisherLog(store, settings.pipeline, name).newest()
    position = StartPlace.parse(chosen.start).find(chain) if entry is None else entry.position
    put_aside = _passed_by if chosen.outbox.on_invalid == "dead_letter" else None
    context = FeedContext(settings, name, _unregistered(chosen), store, chain, RealSystem())
    found = Preview(position.seq + 1, position.seq, uncaptured=uncaptured(chosen, chain))
    with closing(make_feed(context, position, put_aside)) as feed:
        for batch in feed.batches():
            for event in batch.events:
                size = event.size
                found.events[event.table, event.op] += 1
                found.bytes[event.table] += size
                found.largest[event.table] = max(size, found.largest.get(event.table, 0))
            found.to_seq = batch.position.seq
    return found


def _unregistered(chosen: PublishSettings) -> PublishSettings:
    """Return the settings without a schema registry: to look changes nothing there."""
    return chosen.model_copy(update={"avro": chosen.avro.model_copy(update={"registry": None})})


def _passed_by(event: ChangeEvent, reason: str) -> None:
    """Leave out what the publisher would put into its dead letters."""


def _append(
    settings: Settings, name: str, change: Callable[[PublisherEntry], PublisherEntry]
) -> PublisherEntry:
    settings.publisher(name)
    store, system = open_store(settings.store), RealSystem()
    log = PublisherLog(store, settings.pipeline, name)
    for _ in range(_TRIES):
        newest = log.newest() or _first(settings, name, Chain(store, settings.pipeline), system)
        entry = replace(
            change(newest),
            number=newest.number + 1,
            writer="operator",
            written_at_us=system.wall_us(),
            released=True,
            by_operator=True,
        )
        try:
            log.append(entry)
        except Fenced:
            continue
        return entry
    raise Fenced(
        f"the publisher {name} logs its positions faster than this command",
        hint="run it again",
    )


def _first(settings: Settings, name: str, chain: Chain, system: System) -> PublisherEntry:
    """Return the entry before the first one, of a publisher that never ran."""
    start = StartPlace.parse(settings.publisher(name).start).find(chain)
    return PublisherEntry(name, 0, "", start, system.wall_us())
