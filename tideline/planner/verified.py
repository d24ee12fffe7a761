"""Up to where each table was last proven equal, and whether that still holds.

A proof is of one version of the target. What our own merges make of it later is as right as they
are; what anybody else commits is not, and ends the proof by name.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any
from urllib.parse import unquote, urlsplit

import msgspec
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError, TableNotFoundError

from tideline.contract import layout
from tideline.contract.manifest import Manifest, OpenState, TableState
from tideline.contract.plan import Stamp, app_id
from tideline.contract.schema import parse_table
from tideline.contract.verification import (
    Proof,
    Verification,
    Verified,
    decode_verification,
    decode_verified,
    encode_verification,
    encode_verified,
)
from tideline.planner.targets import HARMLESS
from tideline.settings import Settings
from tideline.store.objects import ObjectStore, open_store

COMMITS_MAX = 10_000


class VerifiedThrough(msgspec.Struct, frozen=True):
    """A table was equal to its source at sequence ``seq``, source clock ``source_time_us``.

    ``invalid`` says what has happened to the target since that no proof covers.
    """

    seq: int
    manifest_number: int
    source_time_us: int | None = None
    verify_id: str = ""
    invalid: str | None = None


def store_verification(settings: Settings, result: Verification) -> None:
    """Keep ``result``, and of each table that it proves in full how far. Idempotent."""
    store = open_store(settings.store)
    key = layout.verification_key(settings.pipeline, result.verify_id)
    store.put(key, encode_verification(result))
    for table in result.tables:
        if table.proof is not Proof.EQUAL or not table.whole or table.target_version is None:
            continue
        place = layout.verified_key(settings.pipeline, parse_table(table.table))
        found = _kept(store, place)
        if found is None or found.app_id != table.app_id or found.seq <= table.seq:
            kept = Verified(
                table=table.table,
                seq=table.seq,
                manifest_number=table.manifest_number,
                target_version=table.target_version,
                app_id=table.app_id,
                verify_id=result.verify_id,
                source_time_us=table.source_time_us,
            )
            store.put(place, encode_verified(kept))


def read_verification(settings: Settings, verify_id: str) -> Verification | None:
    """The result of a verification; None while there is none."""
    key = layout.verification_key(settings.pipeline, verify_id)
    raw = open_store(settings.store).get(key)
    return None if raw is None else decode_verification(raw)


def verified_through(
    settings: Settings, tail: Manifest, state: OpenState, tables: Iterable[str]
) -> Mapping[str, VerifiedThrough]:
    """What is kept of ``tables``; those that were never proven are not in it."""
    store = open_store(settings.store)
    found = {}
    for name in tables:
        kept = _kept(store, layout.verified_key(settings.pipeline, parse_table(name)))
        if kept is not None:
            now = state.tables.get(name, TableState())
            found[name] = VerifiedThrough(
                kept.seq,
                kept.manifest_number,
                kept.source_time_us,
                kept.verify_id,
                _invalid(settings, tail, now, kept),
            )
    return found


def _kept(store: ObjectStore, key: str) -> Verified | None:
    raw = store.get(key)
    return None if raw is None else decode_verified(raw)


def _invalid(settings: Settings, tail: Manifest, now: TableState, kept: Verified) -> str | None:
    url = layout.table_path(settings.warehouse.url, parse_table(kept.table))
    parts = urlsplit(url)
    try:
        table = DeltaTable(unquote(parts.path) if parts.scheme == "file" else url)
        version = table.version()
        build = int(table.metadata().configuration.get("tideline.build") or 0)
        since = max(0, version - kept.target_version)
        commits = table.history(min(since, COMMITS_MAX)) if since else []
    except TableNotFoundError:
        return "the table is gone"
    except (DeltaError, OSError) as error:
        return f"the table's log cannot be read: {type(error).__name__}"
    app = app_id(tail.pipeline, tail.incarnation, kept.table, now.generation, build)
    if kept.app_id != app:
        return "the table was started or built anew"
    if version < kept.target_version:
        return "the table was made anew"
    foreign = [text for commit in commits if (text := _foreign(commit, kept))]
    if not foreign and len(commits) < since:
        return f"its log does not tell who made the versions up to {version - len(commits)}"
    return f"changed by others: {foreign[-1]}" if foreign else None


def _foreign(commit: Mapping[str, Any], kept: Verified) -> str | None:
    """What a commit by others after the proof is called; None for ours, and for harmless ones."""
    stamp = Stamp.parse(commit.get("userMetadata"))
    operation = str(commit.get("operation", "unknown"))
    version = int(commit["version"])
    ours = stamp is not None and stamp.app_id == kept.app_id
    if version <= kept.target_version or ours or operation in HARMLESS:
        return None
    return f"version {version}: {operation}"
