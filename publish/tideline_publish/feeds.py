"""The feed of a publisher: the changes of rows, or documents of several tables."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

from tideline.contract.publishing import ChainPosition
from tideline.programs.points import OnPoint, pass_by
from tideline.settings import PublishSettings, Settings
from tideline.store.chain import Chain
from tideline.store.objects import ObjectStore
from tideline.system import System
from tideline_publish.aggregates.checkpoints import Checkpoints
from tideline_publish.aggregates.encoding import encoder_of
from tideline_publish.aggregates.feed import AggregateFeed, DocumentOptions
from tideline_publish.events import EventBatch
from tideline_publish.feed import ChainFeed
from tideline_publish.formats.registry import FORMATS
from tideline_publish.outbox.encoding import Outbox
from tideline_publish.outbox.event import PutAside
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


@dataclass(frozen=True, slots=True)
class FeedContext:
    """The surroundings of the publisher ``name``, which has the settings ``chosen``."""

    settings: Settings
    name: str
    chosen: PublishSettings
    store: ObjectStore
    chain: Chain
    system: System
    on_point: OnPoint = pass_by


def make_feed(
    context: FeedContext, position: ChainPosition, put_aside: PutAside | None = None
) -> Feed:
    """Return the feed of a publisher, from ``position``. ``put_aside`` takes what of its outbox is
    no event; None: such a row is an error."""
    chosen, pipeline = context.chosen, context.settings.pipeline
    if chosen.aggregates:
        return _documents(context, position)
    return ChainFeed(
        context.store,
        context.chain,
        FORMATS[chosen.format](pipeline, chosen),
        Selection(chosen),
        position,
        Outbox(pipeline, chosen, put_aside),
    )


def _documents(context: FeedContext, position: ChainPosition) -> AggregateFeed:
    settings, chosen = context.settings, context.chosen
    found = [settings.aggregates[one].aggregate(one) for one in chosen.aggregates]
    options = DocumentOptions(
        found,
        encoder_of(chosen.format, settings.pipeline),
        chosen.operations,
        chosen.state_interval_s,
    )
    return AggregateFeed(
        context.store,
        context.chain,
        options,
        Checkpoints(context.store, settings.pipeline, context.name, found),
        position,
        context.system,
        context.on_point,
    )
