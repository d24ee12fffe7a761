"""``tideline inspect``: shows the chain. Only ``rows`` shows column values, and keys in a manifest
are shown only on request.

Everything is read from the store; no worker needs to run, and nothing is changed.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import msgspec

from tideline.contract.errors import CorruptData, Misconfigured
from tideline.contract.manifest import Manifest, digest
from tideline.contract.open_state import OpenState
from tideline.contract.schema import parse_table
from tideline.settings import Settings
from tideline.store.chain import Chain, ManifestEntry
from tideline.store.objects import open_store
from tideline_console.output import say, write_document, write_json
from tideline_console.tables import moment, print_table

_BATCH_ROWS = 1_000
_KEY_FIELDS = frozenset(("keys", "key_range", "after_key", "last_key", "key_min", "key_max"))


def manifests(settings: Settings, *, last: int) -> None:
    """Print a line for each of the ``last`` newest manifests, oldest first."""
    print_table(
        (
            "manifest",
            "kind",
            "term",
            "first seq",
            "last seq",
            "parts",
            "rows",
            "chunks",
            "position",
            "written",
        ),
        (
            (
                one.manifest_number,
                one.kind.value + (" released" if one.released else ""),
                one.term,
                one.first_seq,
                one.last_seq,
                len(one.parts) + len(one.logged_messages),
                sum(part.rows for part in (*one.parts, *one.logged_messages)),
                len(one.verification_chunks),
                one.position,
                moment(one.written_at_us),
            )
            for one in _newest(settings, last)
        ),
    )


def manifest(settings: Settings, number: int, *, values: bool) -> None:
    """Print one manifest's JSON, indented, with the digest of its raw bytes.

    Without ``values`` the keys in it (requested, last dumped, bounds of parts) are masked.
    """
    entry = _chain(settings).read(number)
    if entry is None:
        raise Misconfigured(f"there is no manifest {number} in the pipeline {settings.pipeline}")
    document = msgspec.json.decode(entry.raw)
    shown = document if values else _masked(document)
    write_document(shown, indent=2)
    say(f"sha256 {entry.digest}")


def parts(settings: Settings, *, table: str | None, last: int) -> None:
    """Print a line per part in the ``last`` newest manifests, of one table or of all."""
    wanted = None if table is None else str(parse_table(table))
    print_table(
        ("manifest", "table", "rows", "operations", "bytes", "first seq", "last seq", "key"),
        (
            (
                one.manifest_number,
                part.table,
                part.rows,
                " ".join(f"{kind}:{count}" for kind, count in sorted(part.operations.items())),
                part.bytes,
                part.first_seq,
                part.last_seq,
                part.key,
            )
            for one in _newest(settings, last)
            for part in (*one.parts, *one.logged_messages)
            if wanted in (None, part.table)
        ),
    )


def rows(settings: Settings, key: str, *, limit: int) -> None:
    """Print the first ``limit`` rows of a part as JSON lines, values included."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        raw = open_store(settings.store).get(key)
    except ValueError:  # no key of an object, such as one with ".." in it
        raw = None
    if raw is None:
        raise Misconfigured(f"there is no part {key}", hint="see `tideline inspect parts`")
    try:
        file = pq.ParquetFile(pa.BufferReader(raw))
    except pa.ArrowInvalid:
        raise CorruptData(f"{key} is not a Parquet file, sha256 {digest(raw)}") from None
    left = limit
    for batch in file.iter_batches(batch_size=min(limit, _BATCH_ROWS)):
        for row in batch.slice(0, left).to_pylist():
            write_json(json.dumps(row, default=_plain, ensure_ascii=False))
        left -= batch.num_rows
        if left <= 0:
            break


def state(settings: Settings) -> None:
    """Print the open state at the chain's end: tables and requests, as a successor finds them."""
    chain = _chain(settings)
    tail = _tail(chain, settings)
    found = chain.open_state(tail)
    say(f"after manifest {tail.manifest.manifest_number}, seq {tail.manifest.last_seq}")
    say()
    _print_tables(found)
    _print_requests(found)


def _print_tables(found: OpenState) -> None:
    print_table(
        ("table", "condition", "schema", "last data in", "generation", "since seq", "reason"),
        (
            (
                name,
                one.condition.shown,
                one.schema,
                one.last_data_manifest,
                one.generation,
                one.since_seq,
                one.reason,
            )
            for name, one in sorted(found.tables.items())
        ),
    )


def _print_requests(found: OpenState) -> None:
    """Print open requests by table, and recently ended ones; keys are counted, not shown."""
    print_table(
        ("open request", "table", "state", "low seq", "chunks", "rows", "keys asked for"),
        (
            (
                one.request.request_id,
                dump.table,
                dump.state,
                dump.first_low_seq,
                dump.chunks,
                dump.rows,
                None if one.request.keys is None else len(one.request.keys),
            )
            for one in found.requests
            for dump in one.dumps
        ),
    )
    print_table(
        ("ended request", "state", "manifest", "error"),
        ((one.request_id, one.state.value, one.manifest_number, one.error) for one in found.recent),
    )


def _newest(settings: Settings, last: int) -> Iterator[Manifest]:
    chain = _chain(settings)
    end = _tail(chain, settings).manifest.manifest_number
    for entry in chain.entries(max(1, end - last + 1), end):
        yield entry.manifest


def _chain(settings: Settings) -> Chain:
    return Chain(open_store(settings.store), settings.pipeline)


def _tail(chain: Chain, settings: Settings) -> ManifestEntry:
    tail = chain.tail()
    if tail is None:
        raise Misconfigured(
            f"the pipeline {settings.pipeline} has no manifest in {settings.store.url}",
            hint="run `tideline capture` first, or correct store.url or pipeline",
        )
    return tail


def _masked(value: Any) -> Any:
    """Replace every field of the document that holds keys of rows."""
    if isinstance(value, list):
        return [_masked(item) for item in value]
    if isinstance(value, dict):
        return {
            name: "(masked)" if name in _KEY_FIELDS else _masked(item)
            for name, item in value.items()
        }
    return value


def _plain(value: object) -> str:
    """Convert values without a JSON form: bytes to hex, decimals and times to text."""
    return value.hex() if isinstance(value, bytes) else str(value)
