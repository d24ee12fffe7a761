"""The manifest that follows the chain's tail, made from a sealed segment or from nothing."""

from __future__ import annotations

import time
from collections.abc import Iterable

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
from tideline.contract.request import Answer
from tideline.store.chain import Link
from tideline_capture.core.draft import Sealed
from tideline_capture.segments import EncodedPart


class Manifests:
    """Makes one manifest after the other; ``last`` is the tail, moved on by `appended`."""

    def __init__(self, tail: Link, state: OpenState) -> None:
        manifest = tail.manifest
        self.last = tail
        self._writer = manifest.writer
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
        self, sealed: Sealed, parts: Iterable[Part], checks: Iterable[Check] = ()
    ) -> Manifest:
        """The manifest that commits ``sealed``, whose rows are in ``parts``, and what was read to
        verify in ``checks``."""
        empty = sealed.last_seq < sealed.first_seq and not sealed.state_changed
        manifest = replace(
            self._following(),
            kind=ManifestKind.HEARTBEAT if empty else ManifestKind.SEGMENT,
            first_seq=sealed.first_seq,
            last_seq=sealed.last_seq,
            position=sealed.position,
            identity=sealed.identity,
            source_time_us=sealed.source_time_us,
            parts=tuple(parts),
            schema_events=sealed.schema_events,
            truncates=sealed.truncates,
            floors=sealed.floors,
            accepted=sealed.accepted,
            finished=self._ended_here(sealed.finished),
            refused=self._ended_here(sealed.refused),
            checks=tuple(checks),
        )
        for table in tables_in(manifest):
            self._data[table] = manifest.manifest_number
        self._state = _numbered(sealed.state, manifest.manifest_number)
        return self._with_state(manifest, changed=sealed.state_changed)

    def heartbeat(self, uploading: Iterable[int]) -> Manifest:
        """An empty manifest; ``uploading``: the prefixes of parts that no manifest names yet."""
        beat = replace(self._following(), uploading=tuple(uploading))
        return self._with_state(beat, changed=False)

    def _ended_here(self, answers: Iterable[Answer]) -> tuple[Answer, ...]:
        """The answers with the manifest that has them: askers look there whether they are true."""
        return tuple(replace(answer, manifest_number=self.next_number) for answer in answers)

    def appended(self, link: Link) -> None:
        """``link`` is in the chain, the next one follows it."""
        self.last = link
        if link.manifest.state is not None:
            self._state_at = link.manifest.manifest_number

    def _following(self) -> Manifest:
        """An empty heartbeat after the last manifest; `_with_state` completes it."""
        return following(self.last, self._writer)

    def _with_state(self, manifest: Manifest, *, changed: bool) -> Manifest:
        """The manifest with the open state in full where it must be, else where to find it."""
        if not changed and manifest.manifest_number - self._state_at < STATE_DISTANCE_MAX:
            return replace(manifest, state_at=self._state_at)
        return replace(manifest, state=self.state)


def following(link: Link, writer: str) -> Manifest:
    """An empty heartbeat of ``writer`` after ``link``, in its term, without an open state: what
    every manifest but the first begins as. It repeats where the source's log and clock are, and
    nothing that ``link`` holds."""
    last = link.manifest
    return Manifest(
        pipeline=last.pipeline,
        incarnation=last.incarnation,
        manifest_number=last.manifest_number + 1,
        term=last.term,
        writer=writer,
        previous_digest=link.digest,
        kind=ManifestKind.HEARTBEAT,
        first_seq=last.last_seq + 1,
        last_seq=last.last_seq,
        position=last.position,
        identity=last.identity,
        source_time_us=last.through_us,
        written_at_us=time.time_ns() // 1000,
    )


def _numbered(state: OpenState, number: int) -> OpenState:
    """``state`` of manifest ``number``, in which the answers that have none yet become durable."""
    recent = tuple(
        one if one.manifest_number is not None else replace(one, manifest_number=number)
        for one in state.recent
    )
    return replace(state, recent=recent)


def named_part(key: str, part: EncodedPart) -> Part:
    """What a manifest says of ``part``, which lies under ``key``."""
    return Part(
        key=key,
        table=part.schema.table,
        schema=part.schema.fingerprint,
        rows=part.rows,
        operations=part.operations,
        bytes=len(part.data),
        digest=part.digest,
        first_seq=part.first_seq,
        last_seq=part.last_seq,
        key_min=part.key_min,
        key_max=part.key_max,
        unchanged_rows=part.unchanged_rows,
        before_rows=part.before_rows,
        overflow_rows=part.overflow_rows,
        before_image_rows=part.image_rows,
    )
