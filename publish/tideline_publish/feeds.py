"""The feed of a publisher: the changes of rows, or documents of several tables."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

from tideline.contract.publishing import ChainPosition
from tideline.programs.points import OnPoint, pass_by
from tideline.settings import Settings
from tideline.store.chain import Chain
from tideline.store.objects import ObjectStore
from tideline.system import System
from tideline_publish.aggregates.checkpoints import Checkpoints
from tideline_publish.aggregates.encoding import encoder_of
from tideline_publish.aggregates.feed import AggregateFeed, DocumentOptions
from tideline_publish.events import EventBatch
from tideline_publish.feed import ChainFeed
from tideline_publish.formats.registry import FORMATS
from tideline_publish.selection import Selection


class Feed(Protocol):
    """Follows the chain from ``position``, which moves with what was yielded.

    ``state_manifest``: see `PublisherEntry`.
    """

    position: ChainPosition
    state_manifest: int | None

    def batches(self) -> Iterator[EventBatch]:
        """Yield what is behind the position now, to the chain's end as it is then."""
        ...

    def checkpoint(self, position: ChainPosition) -> Iterator[None]:
        """Write down, in steps, what is needed to go on behind ``position``, which is settled."""
        ...

    def close(self) -> None:
        """Let go of what is local."""
        ...


def make_feed(
    settings: Settings,
    name: str,
    store: ObjectStore,
    chain: Chain,
    position: ChainPosition,
    system: System,
    on_point: OnPoint = pass_by,
) -> Feed:
    """Return the feed of the publisher of that name, from ``position``."""
    chosen = settings.publisher(name)
    if not chosen.aggregates:
        event_format = FORMATS[chosen.format](settings.pipeline, chosen)
        return ChainFeed(store, chain, event_format, Selection(chosen), position)
    found = [settings.aggregates[one].aggregate(one) for one in chosen.aggregates]
    return AggregateFeed(
        store,
        chain,
        DocumentOptions(
            found,
            encoder_of(chosen.format, settings.pipeline),
            chosen.operations,
            chosen.state_interval_s,
        ),
        Checkpoints(store, settings.pipeline, name, found),
        position,
        system,
        on_point,
    )
