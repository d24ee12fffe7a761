"""Makes this worker's manifests; each follows the chain's tail."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import fields
from typing import Any

from msgspec.structs import replace

from tideline.contract.manifest import (
    STATE_DISTANCE_MAX,
    Manifest,
    ManifestKind,
    Part,
    VerificationChunk,
    tables_in,
)
from tideline.contract.messages import FEATURE as MESSAGES_FEATURE
from tideline.contract.messages import is_message_table
from tideline.contract.open_state import OpenState
from tideline.contract.position import SourceIdentity, SourcePosition
from tideline.contract.request import Answer
from tideline.store.chain import ManifestEntry
from tideline.system import System
from tideline_capture.core.segment import Segment

_BODY = {one.name for one in fields(Segment)} & set(Manifest.__struct_fields__) - {"state"}
"""The fields that a closed segment and its manifest share."""


def make_manifest(after: ManifestEntry | None, system: System, **body: Any) -> Manifest:
    """Make a manifest: a heartbeat, but for what ``body`` says.

    It repeats the source's log position and clock, and nothing else that ``after`` holds. The first
    of a chain has its pipeline, writer, position and identity from ``body``.
    """
    if after is None:
        made = {
            "incarnation": system.new_id(),
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
    common = {"kind": ManifestKind.HEARTBEAT, "written_at_us": system.wall_us()}
    return Manifest(**{**common, **made, **body})


def first_manifest(
    pipeline: str,
    writer: str,
    identity: SourceIdentity,
    begin: SourcePosition,
    system: System,
) -> Manifest:
    """Make the first manifest of a chain."""
    return make_manifest(
        None,
        system,
        pipeline=pipeline,
        writer=writer,
        identity=identity,
        position=begin,
        state=OpenState(),
    )


def takeover(tail: ManifestEntry, writer: str, state: OpenState, system: System) -> Manifest:
    """Make the manifest by which ``writer`` takes the chain over, with its open state in full."""
    return make_manifest(
        tail,
        system,
        writer=writer,
        kind=ManifestKind.TAKEOVER,
        term=tail.manifest.term + 1,
        state=state,
    )


class Manifests:
    """Makes one manifest after the other; ``last`` is the tail, moved on by `appended`."""

    def __init__(self, tail: ManifestEntry, state: OpenState, system: System) -> None:
        manifest = tail.manifest
        self.last = tail
        self._state_at = manifest.state_at or manifest.manifest_number
        self._data = {name: table.last_data_manifest for name, table in state.tables.items()}
        self._state = state
        self._system = system

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
        self, segment: Segment, parts: Iterable[Part], chunks: Iterable[VerificationChunk] = ()
    ) -> Manifest:
        """Make the manifest that commits ``segment``, with its rows in ``parts``, and its
        verification parts as ``chunks`` say."""
        uploaded = tuple(parts)
        messages = tuple(part for part in uploaded if is_message_table(part.table, part.schema))
        empty = segment.last_seq < segment.first_seq and not segment.state_changed
        body = {name: getattr(segment, name) for name in _BODY}
        body |= {
            "kind": ManifestKind.HEARTBEAT if empty else ManifestKind.SEGMENT,
            "parts": tuple(part for part in uploaded if part not in messages),
            "verification_chunks": tuple(chunks),
            "finished": self._ended_here(segment.finished),
            "refused": self._ended_here(segment.refused),
        }
        if messages:
            body |= {"logged_messages": messages, "requires": (MESSAGES_FEATURE,)}
        manifest = make_manifest(self.last, self._system, **body)
        for table in tables_in(manifest):
            self._data[table] = manifest.manifest_number
        self._state = _numbered(segment.state, self._state.recent, manifest.finished)
        return self._with_state(manifest, changed=segment.state_changed)

    def heartbeat(self, uploading: Iterable[int], *, released: bool = False) -> Manifest:
        """Make an empty manifest.

        ``uploading``: the prefixes of parts that no manifest names yet. ``released``: this writer
        stops.
        """
        beat = make_manifest(self.last, self._system, uploading=tuple(uploading), released=released)
        return self._with_state(beat, changed=False)

    def _ended_here(self, answers: Iterable[Answer]) -> tuple[Answer, ...]:
        """Return the answers with the number of their manifest: clients check there whether they
        are true."""
        return tuple(replace(answer, manifest_number=self.next_number) for answer in answers)

    def appended(self, entry: ManifestEntry) -> None:
        """Note that ``entry`` is in the chain; the next manifest follows it."""
        self.last = entry
        if entry.manifest.state is not None:
            self._state_at = entry.manifest.manifest_number

    def _with_state(self, manifest: Manifest, *, changed: bool) -> Manifest:
        """Return the manifest with the open state in full where it must be, else where to find
        it."""
        if not changed and manifest.manifest_number - self._state_at < STATE_DISTANCE_MAX:
            return replace(manifest, state_at=self._state_at)
        return replace(manifest, state=self.state)


def _numbered(state: OpenState, *durable: Iterable[Answer]) -> OpenState:
    """Return ``state`` with the numbers that its answers have in ``durable``.

    A segment may be closed before those ahead of it are uploaded; its state then has their answers
    without a number, too.
    """
    numbered = {answer.request_id: answer for answers in durable for answer in answers}
    recent = tuple(
        one if one.manifest_number is not None else numbered.get(one.request_id, one)
        for one in state.recent
    )
    return replace(state, recent=recent)
