"""Keeps up to where each table was last verified equal, and checks that this still
holds.

A verification is of one version of the target. Later merges of ours are covered by it; an external
commit is not, and ends it; it then names the commit. One that holds ends every doubt that there was
before its rows were read, at the source and in the warehouse, as a dump would.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

import msgspec
from msgspec.structs import replace

from tideline.contract import layout
from tideline.contract.document import with_checksum
from tideline.contract.errors import CorruptData, Unavailable
from tideline.contract.external_commits import external_since
from tideline.contract.manifest import Manifest
from tideline.contract.open_state import OpenState, TableCondition, TableState
from tideline.contract.plan import app_id
from tideline.contract.schema import parse_table
from tideline.contract.target_properties import build_of_properties
from tideline.contract.verification import (
    Verification,
    VerificationOutcome,
    Verified,
    decode_verification,
    decode_verified,
    encode_verification,
    encode_verified,
)
from tideline.planner.stored import read_stored
from tideline.planner.targets import live_url
from tideline.settings import Settings
from tideline.store.objects import ObjectStore, open_store
from tideline.warehouse.base import unreadable
from tideline.warehouse.registry import open_reader

COMMITS_MAX = 10_000


class VerifiedThrough(msgspec.Struct, frozen=True):
    """The record that a table was equal to its source at sequence ``seq``, source clock
    ``source_time_us``.

    ``invalid`` names a later event that it does not cover: in the target, or a doubt.
    """

    seq: int
    manifest_number: int
    source_time_us: int | None = None
    verify_id: str = ""
    invalid: str | None = None


def store_verification(settings: Settings, result: Verification) -> None:
    """Keep ``result``, and the sequence of each table that it verified in full. Idempotent."""
    store = open_store(settings.store)
    result_key = layout.verification_key(settings.pipeline, result.verify_id)
    store.put(result_key, with_checksum(encode_verification(result)))
    for table in result.tables:
        if (
            table.outcome is not VerificationOutcome.EQUAL
            or not table.whole
            or table.target_version is None
        ):
            continue
        key = layout.verified_key(settings.pipeline, parse_table(table.table))
        found = read_stored(store, key, decode_verified)
        verified = Verified(
            table=table.table,
            seq=table.seq,
            manifest_number=table.manifest_number,
            target_version=table.target_version,
            app_id=table.app_id,
            verify_id=result.verify_id,
            source_time_us=table.source_time_us,
            doubts=table.doubts,
            target_commit=_commit_of(settings, table.table, table.target_version),
        )
        if found is None or _gives_way(settings, found, verified):
            store.put(key, with_checksum(encode_verified(verified)))


def _gives_way(settings: Settings, found: Verified, newer: Verified) -> bool:
    """Return whether ``newer`` replaces ``found``; not if only their ``target_commit`` differs."""
    if replace(found, target_commit=newer.target_commit) == newer:
        return False
    return found.app_id != newer.app_id or found.seq <= newer.seq or not _stands(settings, found)


def _stands(settings: Settings, verified: Verified) -> bool:
    """Return whether the target's log has the version that was verified, as far as is known."""
    if not verified.target_commit:
        return True
    return _commit_of(settings, verified.table, verified.target_version) == verified.target_commit


def read_verification(settings: Settings, verify_id: str) -> Verification | None:
    """Read the result of a verification; None while there is none."""
    key = layout.verification_key(settings.pipeline, verify_id)
    return read_stored(open_store(settings.store), key, decode_verification)


@dataclass(frozen=True, slots=True)
class LastVerification:
    """The newest equal verification of a table, and (``broken``) the later event in its target that
    it does not cover; None: there is none."""

    verified: Verified
    broken: str | None = None

    def through(self, state: TableState) -> VerifiedThrough:
        """Return the verification as it holds while the table's state in the chain is ``state``."""
        verified = self.verified
        return VerifiedThrough(
            verified.seq,
            verified.manifest_number,
            verified.source_time_us,
            verified.verify_id,
            self.broken or self._doubt(state),
        )

    def settled(self, state: TableState) -> TableState:
        """Return ``state`` without the doubts that the verification ended. For a table that was
        never dumped whole it has shown that nothing is missing."""
        if self.broken is not None or self._doubt(state) is not None:
            return state
        if state.condition is TableCondition.NEEDS_RESNAPSHOT and self._ends_doubts(state):
            state = replace(
                state, condition=TableCondition.ACTIVE, since_seq=None, reason=None, hint=None
            )
        if state.condition is TableCondition.ACTIVE and state.complete_seq is None:
            return replace(state, complete_seq=self.verified.seq)
        return state

    def _ends_doubts(self, state: TableState) -> bool:
        """Return whether the verification ends all doubts; a worker that does not count them is
        taken to have none."""
        return state.doubts > 0 and self.verified.doubts == state.doubts

    def _doubt(self, state: TableState) -> str | None:
        """Return the doubt about the verified rows themselves, which was found too late for the
        verification."""
        if state.condition is not TableCondition.NEEDS_RESNAPSHOT or self._ends_doubts(state):
            return None
        if state.since_seq is not None and self.verified.seq < state.since_seq:
            return None
        since = "" if state.since_seq is None else f" since seq {state.since_seq}"
        return f"its state is {state.condition.shown}{since}: {state.reason or 'no reason given'}"


def last_verification(
    settings: Settings, store: ObjectStore, tail: Manifest, name: str, state: TableState
) -> LastVerification | None:
    """Return the last equal verification of the table called ``name``; None without one."""
    key = layout.verified_key(settings.pipeline, parse_table(name))
    verified = read_stored(store, key, decode_verified)
    return (
        None
        if verified is None
        else LastVerification(verified, _invalid(settings, tail, state, verified))
    )


def settled_tables(
    settings: Settings,
    store: ObjectStore,
    tail: Manifest,
    state: OpenState,
    names: Collection[str],
) -> OpenState:
    """Return ``state`` without the doubts that verifications of the named tables ended
    (`LastVerification.settled`). One request or more for each that is in doubt."""
    tables = dict(state.tables)
    for name in names:
        table = tables[name]
        never = table.condition is TableCondition.ACTIVE and table.complete_seq is None
        if table.schema is not None and (
            table.condition is TableCondition.NEEDS_RESNAPSHOT or never
        ):
            result = last_verification(settings, store, tail, name, table)
            tables[name] = table if result is None else result.settled(table)
    return replace(state, tables=tables)


def _commit_of(settings: Settings, table: str, version: int) -> str:
    """Return the digest of a version's commit in the table's log; "" where it cannot be read."""
    try:
        url = live_url(settings, table)
        found = open_reader(url, settings.warehouse_storage)
        return "" if found is None else found.commit_digest(version)
    except Unavailable:
        return ""


def _invalid(settings: Settings, tail: Manifest, now: TableState, verified: Verified) -> str | None:
    url = ""
    try:
        url = live_url(settings, verified.table)
        table = open_reader(url, settings.warehouse_storage)
        if table is None:
            return "the table is gone"
        build = build_of_properties(table.properties)
        since = max(0, table.version - verified.target_version)
        commits = list(table.commits(min(since, COMMITS_MAX)))
    except Unavailable as error:
        return error.message
    except (ValueError, CorruptData) as error:
        return unreadable(url, error).message
    version = table.version
    app = app_id(tail.pipeline, tail.incarnation, verified.table, now.generation, build)
    if verified.app_id != app:
        return "the table was started or rebuilt"
    if version < verified.target_version:
        return "the table was recreated"
    external = external_since(commits, verified.target_version, verified.app_id)
    if external:
        return f"changed by others: {external[-1]}"
    if len(commits) < since:
        return f"its log does not show who made the versions up to {version - len(commits)}"
    if not _stands(settings, verified):
        return (
            f"its log has another version {verified.target_version} than the one that was verified"
        )
    return None
