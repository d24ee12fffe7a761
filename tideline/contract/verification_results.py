"""Combines the passes of a verification into one result. Pure.

The first pass compares all that was requested, and sets aside keys that changed in the meantime.
Later passes read just those keys again; and, once a difference was repaired, the keys that
differed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from hashlib import sha256

import msgspec
from msgspec.structs import replace

from tideline.contract.verification import KEYS_MAX, TableResult, VerificationOutcome

PASSES_MAX = 5
"""Maximum passes over keys that keep changing; those that still do are reported as changing."""
BATCH_KEYS_MAX = 10_000
_BATCH_BYTES_MAX = 512 * 1024

Keys = Sequence[tuple[str, ...]]


def batches(keys: Keys) -> Iterator[tuple[tuple[str, ...], ...]]:
    """Split ``keys`` into lists that a request can hold."""
    batch: list[tuple[str, ...]] = []
    size = 0
    for key in keys:
        weight = len(msgspec.json.encode(key)) + 1
        if batch and (len(batch) == BATCH_KEYS_MAX or size + weight > _BATCH_BYTES_MAX):
            yield tuple(batch)
            batch, size = [], 0
        batch.append(key)
        size += weight
    if batch:
        yield tuple(batch)


def keys_to_read(results: Iterable[TableResult]) -> list[tuple[str, Keys]]:
    """List what another pass reads: each a table and some of the keys that it has set aside."""
    return [(one.table, keys) for one in results for keys in batches(one.changed_keys)]


def with_passes(first: Iterable[TableResult], later: Iterable[TableResult]) -> list[TableResult]:
    """Join each table of ``first`` with the ``later`` passes of it, if there are any."""
    passes: dict[str, list[TableResult]] = {}
    for one in later:
        passes.setdefault(one.table, []).append(one)
    return [with_pass(one, passes[one.table]) if one.table in passes else one for one in first]


def short(table: str) -> str:
    """Shorten a table's name for a request's id."""
    return sha256(table.encode()).hexdigest()[:12]


def with_pass(first: TableResult, later: Sequence[TableResult]) -> TableResult:
    """Combine ``first`` with the ``later`` passes over the keys that it set aside: their rows count
    there, and nowhere else.

    Keys that these set aside still change, and so do those that ``first`` does not list.
    """
    lost = [one for one in later if one.outcome is VerificationOutcome.NOT_COMPARED]
    if lost:
        return replace(first, reason=lost[0].reason, hint=lost[0].hint)
    not_listed = max(0, first.changing - len(first.changed_keys))
    changing = not_listed + sum(one.changing for one in later)
    keys = tuple(key for one in later for key in one.changed_keys)
    summed = _summed(first, later)
    result = VerificationOutcome.CHANGING if changing else VerificationOutcome.EQUAL
    return replace(
        summed,
        outcome=VerificationOutcome.DIFFERS if summed.differences else result,
        rows=first.rows + sum(one.rows for one in later),
        changing=changing,
        changed_keys=keys,
        compared_later=first.compared_later + first.changing - changing,
        later_seq=max(one.seq for one in later),
    )


def without_differences(result: TableResult) -> TableResult:
    """Remove from ``result`` the keys that differ, all of which it lists: they are to be compared
    again."""
    extra = {different.key for different in result.keys if different.kind == "extra"}
    differing = {different.key for different in result.keys} - extra
    return replace(
        result,
        outcome=VerificationOutcome.CHANGING if result.changing else VerificationOutcome.EQUAL,
        rows=result.rows - len(differing),
        missing=0,
        extra=0,
        different=0,
        sequence=0,
        duplicates=0,
        columns={},
        keys=(),
    )


def repaired(before: TableResult, later: Sequence[TableResult]) -> TableResult:
    """Combine ``before`` with ``later``, after its differing keys were dumped, merged and compared
    again."""
    lost = [one for one in later if one.outcome is VerificationOutcome.NOT_COMPARED]
    if lost:
        return replace(before, reason=lost[0].reason, hint=lost[0].hint)
    rest = _summed(without_differences(before), later)
    changing = before.changing + sum(one.changing for one in later)
    result = VerificationOutcome.CHANGING if changing else VerificationOutcome.EQUAL
    keys = {different.key for different in before.keys} - {d.key for d in rest.keys}
    return replace(
        rest,
        outcome=VerificationOutcome.DIFFERS if rest.differences else result,
        rows=rest.rows + sum(one.rows for one in later),
        changing=changing,
        changed_keys=(*before.changed_keys, *(key for one in later for key in one.changed_keys)),
        repaired=before.repaired + len(keys),
        later_seq=max(one.seq for one in later),
    )


def keys_to_repair(result: TableResult) -> tuple[tuple[str, ...], ...] | None:
    """Return the keys that differ, each once; None when not all are known."""
    if result.differences > len(result.keys):
        return None
    return tuple(dict.fromkeys(different.key for different in result.keys))


def _summed(first: TableResult, later: Sequence[TableResult]) -> TableResult:
    columns = dict(first.columns)
    for one in later:
        for name, count in one.columns.items():
            columns[name] = columns.get(name, 0) + count
    every = (first, *later)
    return replace(
        first,
        missing=sum(one.missing for one in every),
        extra=sum(one.extra for one in every),
        different=sum(one.different for one in every),
        sequence=sum(one.sequence for one in every),
        duplicates=sum(one.duplicates for one in every),
        columns=columns,
        keys=tuple(key for one in every for key in one.keys)[:KEYS_MAX],
        pending=sum(one.pending for one in every),
    )
