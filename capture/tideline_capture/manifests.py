"""Makes this worker's manifests; each follows the chain's tail."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterable
from dataclasses import fields
from typing import Any

from msgspec.structs import replace

from tideline.contract.manifest import (
    STATE_DISTANCE_MAX,
    Check,
    Manifest,
    ManifestKind,
    OpenState,
    Part,
    tables_in,
)
from tideline.contract.position import SourceIdentity, SourcePosition
from tideline.contract.request import Answer
from tideline.store.chain import Link
from tideline_capture.core.segment import Segment

_BODY = {one.name for one in fields(Segment)} & set(Manifest.__struct_fields__) - {"state"}
"""The fields that a closed segment and its manifest share."""


def make_manifest(after: Link | None, **body: Any) -> Manifest:
    """Make a manifest: a heartbeat, but for what ``body`` says.

    It repeats the source's log position and clock, and nothing else that ``after`` holds. The first
    of a chain has its pipeline, writer, position and identity from ``body``.
    """
    if after is None:
        made = {
            "incarnation": uuid.uuid4().hex,
            "manifest_number": 1,
            "term": 1,
            "previous_digest": "",
            "first_seq": 1,
            "last_seq": 0,
        }
    else:
        last = after.manifest
        made = {
            "pipeline": last.pipeline,
            "incarnation": last.incarnation,
            "manifest_number": last.manifest_number + 1,
            "term": last.term,
            "writer": last.writer,
            "previous_digest": after.digest,
            "first_seq": last.last_seq + 1,
            "last_seq": last.last_seq,
            "position": last.position,
            "identity": last.identity,
            "source_time_us": last.through_us,
        }
    common = {"kind": ManifestKind.HEARTBEAT, "written_at_us": time.time_ns() // 1000}
    return Manifest(**{**common, **made, **body})


def first_manifest(
    pipeline: str, writer: str, identity: SourceIdentity, begin: SourcePosition
) -> Manifest:
    """Make the first manifest of a chain."""
    return make_manifest(
        None,
        pipeline=pipeline,
        writer=writer,
        identity=identity,
        position=begin,
        state=OpenState(),
    )


def takeover(tail: Link, writer: str, state: OpenState) -> Manifest:
    """Make the manifest by which ``writer`` takes the chain over, with its open state in full."""
    return make_manifest(
        tail,
        writer=writer,
        kind=ManifestKind.TAKEOVER,
        term=tail.manifest.term + 1,
        state=state,
    )


class Manifests:
    """Makes one manifest after the other; ``last`` is the tail, moved on by `appended`."""

    def __init__(self, tail: Link, state: OpenState) -> None:
        manifest = tail.manifest
        self.last = tail
        self._state_at = manifest.state_at or manifest.manifest_number
        self._data = {name: table.last_data_manifest for name, table in state.tables.items()}
        self._state = state

    @property
    def next_number(self) -> int:
        return self.last.manifest.manifest_number + 1

    @property
    def state(self) -> OpenState:
        """The open state after the last manifest, in full."""
        tables = {
            name: replace(table, last_data_manifest=self._data.get(name, 0))
            for name, table in self._state.tables.items()
        }
        return replace(self._state, tables=tables)

    def segment(
        self, sealed: Segment, parts: Iterable[Part], checks: Iterable[Check] = ()
    ) -> Manifest:
        """Make the manifest that commits ``sealed``, with its rows in ``parts``, and its
        verification parts in ``checks``."""
        empty = sealed.last_seq < sealed.first_seq and not sealed.state_changed
        body = {name: getattr(sealed, name) for name in _BODY}
        body |= {
            "kind": ManifestKind.HEARTBEAT if empty else ManifestKind.SEGMENT,
            "parts": tuple(parts),
            "checks": tuple(checks),
            "finished": self._ended_here(sealed.finished),
            "refused": self._ended_here(sealed.refused),
        }
        manifest = make_manifest(self.last, **body)
        for table in tables_in(manifest):
            self._data[table] = manifest.manifest_number
        self._state = _numbered(sealed.state, manifest.manifest_number)
        return self._with_state(manifest, changed=sealed.state_changed)

    def heartbeat(self, uploading: Iterable[int], *, released: bool = False) -> Manifest:
        """Make an empty manifest.

        ``uploading``: the prefixes of parts that no manifest names yet. ``released``: this writer
        stops.
        """
        beat = make_manifest(self.last, uploading=tuple(uploading), released=released)
        return self._with_state(beat, changed=False)

    def _ended_here(self, answers: Iterable[Answer]) -> tuple[Answer, ...]:
        """Return the answers with the number of their manifest: clients check there whether they
        are true."""
        return tuple(replace(answer, manifest_number=self.next_number) for answer in answers)

    def appended(self, link: Link) -> None:
        """Note that ``link`` is in the chain; the next manifest follows it."""
        self.last = link
        if link.manifest.state is not None:
            self._state_at = link.manifest.manifest_number

    def _with_state(self, manifest: Manifest, *, changed: bool) -> Manifest:
        """Return the manifest with the open state in full where it must be, else where to find
        it."""
        if not changed and manifest.manifest_number - self._state_at < STATE_DISTANCE_MAX:
            return replace(manifest, state_at=self._state_at)
        return replace(manifest, state=self.state)


def _numbered(state: OpenState, number: int) -> OpenState:
    """Return ``state`` of manifest ``number``, in which the answers that have none yet become
    durable."""
    recent = tuple(
        one if one.manifest_number is not None else replace(one, manifest_number=number)
        for one in state.recent
    )
    return replace(state, recent=recent)
