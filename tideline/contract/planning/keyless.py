"""Plans of tables without a key: the rows of a copy count all together, or not at all.

Such a table is copied in one snapshot (`manifest.Copied`), whose rows lie in many manifests. A plan
that held only some of them would apply a state that never was. So a plan ends before a copy begins,
or with the manifest in which it ended, or behind that.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tideline.contract.manifest import Copied, DeleteBefore, Manifest
from tideline.contract.open_state import OpenState
from tideline.contract.part import DUMPED

NOT_COPIED = (
    "it has no key, and no copy of it has ended yet: its target is made with the first one that"
    " does"
)

NEEDS_KEY = (
    "it has no key, and to be kept as {mode} it needs one: name columns that are one in the"
    " settings (`key`), or keep it as current or append"
)


def copies_in(
    manifests: Sequence[Manifest], table: str
) -> Iterator[tuple[int, DeleteBefore, Copied]]:
    """Yield the copies of ``table`` that ended in ``manifests``, with the numbers of these."""
    for manifest in manifests:
        for delete_before in manifest.deletes_before:
            if delete_before.table == table and delete_before.copied is not None:
                yield manifest.manifest_number, delete_before, delete_before.copied


def last_whole(
    table: str, run: Sequence[Manifest], state: OpenState, *, from_manifest: int, at_end: bool
) -> int:
    """Return the last manifest of ``run`` that a plan of ``table``, which has no key, may end with.

    ``state`` is the open state at the chain's tail; ``at_end``: that is where ``run`` ends.
    """
    limits = [run[-1].manifest_number]
    for item in state.requests:
        for dump in item.dumps:
            # Other tables of the same request may take long after this one has ended.
            ended = dump.state in ("done", "failed")
            if dump.table == table and dump.first_low_seq is not None and not ended:
                limits.append(dump.first_manifest or 0)
    if not at_end:
        newest = max((number for number, _, _ in copies_in(run, table)), default=0)
        limits += [
            manifest.manifest_number - 1
            for manifest in run
            if manifest.manifest_number > newest
            for part in manifest.parts
            if part.table == table and part.operations.get(DUMPED)
        ]
    return max(from_manifest, min(limits))


def ends_copy(table: str, run: Sequence[Manifest], to_manifest: int) -> int:
    """Return ``to_manifest``, or the manifest in which the copy ends that it would cut."""
    for number, _, copied in copies_in(run, table):
        if copied.first_manifest < to_manifest < number:
            to_manifest = number
    return to_manifest


def newest_copy(
    manifests: Sequence[Manifest], table: str, delete_before: int | None
) -> Copied | None:
    """Return the copy that is the state at ``delete_before``; None where something later
    emptied the table."""
    found = [copied for _, one, copied in copies_in(manifests, table) if one.seq == delete_before]
    return found[-1] if found else None
