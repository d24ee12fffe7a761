"""Builds the oracle's view of a manifest: the same from the simulator and from real servers."""

from __future__ import annotations

from collections.abc import Iterable

from devtools.simulation.history import ChainEvent, ChainManifest, TableSeq
from tideline.contract.manifest import Manifest, ManifestKind


def reported(
    manifest: Manifest, digest: str, events: Iterable[ChainEvent], *, position: int | None
) -> ChainManifest:
    """Return ``manifest``, with its digest, and the rows of all its parts in any order.

    ``position`` is where the log continues after it, if positions are an order.
    """
    return ChainManifest(
        number=manifest.manifest_number,
        term=manifest.term,
        writer=manifest.writer,
        first_seq=manifest.first_seq,
        last_seq=manifest.last_seq,
        digest=digest,
        previous_digest=manifest.previous_digest,
        takeover=manifest.kind is ManifestKind.TAKEOVER,
        position=position,
        events=tuple(sorted(events, key=lambda event: event.seq)),
        truncates=tuple(TableSeq(one.table, one.seq) for one in manifest.truncates),
        deletes_before=tuple(TableSeq(one.table, one.seq) for one in manifest.deletes_before),
        others=tuple(one.seq for one in manifest.schema_events),
    )
