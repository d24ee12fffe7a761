"""Limits how far a plan goes, and chooses its files: parts, or roll-ups of whole blocks.

The caps bound what one plan reads. What must not be cut (a dump that heals, a schema event whose
steps a target has taken) is taken whole even beyond them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tideline.contract.errors import InvariantBroken
from tideline.contract.manifest import Manifest, Part
from tideline.contract.plan import PlanScope
from tideline.contract.planning.spans import Rolled, Span, columns_at, healed_at


def last_within_caps(
    run: Sequence[Manifest],
    spans: Sequence[Span],
    scope: PlanScope,
    blocks: Mapping[int, Rolled],
) -> int:
    """Return the plan's last manifest: as far as the caps allow, at least one that holds anything.

    A block that fits is taken whole, of another as many manifests as fit. A dump that heals a
    target which was set back is never cut: without its delete-before sequence it heals nothing. Nor
    is a plan cut before a schema event whose steps a target has taken.
    """
    healed = [healed_at(span, run) for span in spans if span.applied.went_back]
    healed += [columns_at(span, run) for span in spans]
    to_manifest = run[0].manifest_number - 1
    count = size = at = 0
    while at < len(run):
        taken = run[at : at + _length(run, at, blocks)]
        parts = [part for span in spans for part in parts_of(span, taken, blocks)]
        if len(taken) > 1 and not _fit(parts, count, size, scope):
            if blocks[taken[0].manifest_number].stripped:
                break
            taken = taken[:1]
            parts = [part for span in spans for part in span.parts(taken[0])]
        if count > 0 and parts and not _fit(parts, count, size, scope):
            break
        count += len(parts)
        size += sum(part.bytes for part in parts)
        to_manifest = taken[-1].manifest_number
        at += len(taken)
    to_manifest = max([to_manifest, *(number for number in healed if number is not None)])
    for block in blocks.values():
        if block.stripped and block.first_manifest <= to_manifest < block.last_manifest:
            raise InvariantBroken(
                f"a plan that ends at manifest {to_manifest} lacks the parts before it"
            )
    return to_manifest


def _fit(parts: Sequence[Part], count: int, size: int, scope: PlanScope) -> bool:
    """Return whether ``parts`` may be read in addition to ``count`` others with ``size`` bytes."""
    if count + len(parts) > scope.parts_max:
        return False
    return size + sum(part.bytes for part in parts) <= scope.bytes_max


def _length(run: Sequence[Manifest], at: int, blocks: Mapping[int, Rolled]) -> int:
    """Return how many manifests of ``run`` belong together from ``at`` on: a whole block's, or
    one."""
    block = blocks.get(run[at].manifest_number)
    if block is None or run[-1].manifest_number < block.last_manifest:
        return 1
    return block.last_manifest - block.first_manifest + 1


def parts_of(span: Span, manifests: Sequence[Manifest], blocks: Mapping[int, Rolled]) -> list[Part]:
    """Return what to read for the table in ``manifests``: files of blocks that lie in them whole,
    and parts."""
    found: list[Part] = []
    at = 0
    while at < len(manifests):
        length = _length(manifests, at, blocks)
        block = blocks.get(manifests[at].manifest_number) if length > 1 else None
        files = None if block is None else span.files(block)
        if files is None and block is not None and span.lacks(block):
            raise InvariantBroken(f"the plan's manifests lack the parts of {span.table}")
        if files is None:
            files = [p for m in manifests[at : at + length] for p in span.parts(m)]
        found += files
        at += length
    return found
