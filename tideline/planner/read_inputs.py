"""Reads the input of one plan: blocks where there are whole ones, manifests elsewhere.

Bounded, whatever the backlog: reading ends where the plan's caps are surely reached, at the latest
after `MANIFESTS_MAX`, and of a block that is read from its files only those are kept.
"""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

from msgspec.structs import replace

from tideline.contract import layout
from tideline.contract.block import Block, check_files
from tideline.contract.manifest import Manifest, Part
from tideline.contract.planning.spans import Rolled
from tideline.contract.planning.stops import FOLLOW_ALL, Policy, first_stop
from tideline.store.chain import Chain, ManifestRange

MANIFESTS_MAX = 20_000
"""Maximum manifests that one group of a plan reads; a longer backlog takes several plans."""
_LOOKS_AT_ONCE = 16


@dataclass(frozen=True, slots=True)
class Needs:
    """The needs of one table of a plan: what is applied of it, and where its reading stops.

    ``begin_seq``: nothing up to it is the table's. ``before_seq``: it stops before the manifest
    that holds this. ``uncut``: everything must be read, regardless of the caps. ``policy``: schema
    events above ``stops_above`` that it stops for set ``before_seq``.
    """

    from_manifest: int
    begin_seq: int = 0
    before_seq: int | None = None
    uncut: bool = False
    policy: Policy = FOLLOW_ALL
    stops_above: int = 0

    def stopped(self, name: str, manifests: Sequence[Manifest]) -> Needs:
        """Return the same, stopped in one of ``manifests`` if they show that it stops there."""
        if self.before_seq is not None:
            return self
        stop = first_stop(manifests, name, self.policy, self.stops_above)
        return self if stop is None else dataclasses.replace(self, before_seq=stop.seq)


@dataclass(slots=True)
class ReadInputs:
    """The manifests, in order, their digests by number, and the blocks among them that can be
    used."""

    manifests: list[Manifest] = field(default_factory=list)
    blocks: list[Rolled] = field(default_factory=list)
    digests: dict[int, str] = field(default_factory=dict)


def read_inputs(
    chain: Chain,
    exists: Callable[[str], bool],
    wanted: Mapping[str, Needs],
    span: tuple[int, int],
    caps: tuple[int, int],
) -> ReadInputs:
    """Read manifests of ``span`` (first, last), with the parts of the ``wanted`` tables only.

    ``caps`` are parts and bytes. ``exists`` returns whether there is an object: a block of which a
    table's roll-up is gone is not used for that table. Raises like the chain, and CorruptData for a
    block whose files do not hold what its manifests do.
    """
    found = ReadInputs()
    uncut = any(table.uncut for table in wanted.values())
    count = size = 0
    for manifest_range in chain.ranges(span[0], min(span[1], span[0] + MANIFESTS_MAX - 1)):
        given = [entry.manifest for entry in manifest_range.entries]
        wanted = {name: table.stopped(name, given) for name, table in wanted.items()}
        rolled = None
        block = manifest_range.block
        if block is not None and len(manifest_range.entries) == len(block.manifests):
            check_files(block, [entry.manifest for entry in manifest_range.entries])
            rolled = _rolled(block, wanted, exists)
        parts = _to_read(manifest_range, rolled, wanted)
        count += len(parts)
        size += sum(part.bytes for part in parts)
        above = count > caps[0] or size > caps[1]
        if rolled is not None:
            if not above and not uncut and _alone(rolled, wanted):
                rolled = dataclasses.replace(rolled, stripped=frozenset(rolled.files))
            found.blocks.append(rolled)
        found.manifests += _slim(manifest_range, wanted, rolled)
        found.digests |= {
            entry.manifest.manifest_number: entry.digest for entry in manifest_range.entries
        }
        if above and not uncut:
            chain.check_anchor(block, given[-1].manifest_number)
            break
    return found


def _to_read(
    manifest_range: ManifestRange, rolled: Rolled | None, wanted: Mapping[str, Needs]
) -> list[Part]:
    """Return what a plan reads of the range: files for the tables that can be read from them."""
    parts = [part for entry in manifest_range.entries for part in _parts(entry.manifest, wanted)]
    if rolled is None:
        return parts
    usable = {name for name, table in wanted.items() if _usable(rolled, name, table)}
    files = [file for name in usable for file in rolled.files.get(name, ())]
    return [*files, *(part for part in parts if part.table not in usable)]


def _usable(rolled: Rolled, name: str, table: Needs) -> bool:
    behind = table.from_manifest < rolled.first_manifest and table.begin_seq < rolled.first_seq
    return behind and table.before_seq is None and name not in rolled.loose


def _alone(rolled: Rolled, wanted: Mapping[str, Needs]) -> bool:
    """Return whether no table needs the parts of the block's manifests."""
    return all(
        _usable(rolled, name, table) or table.from_manifest >= rolled.last_manifest
        for name, table in wanted.items()
    )


def _parts(manifest: Manifest, wanted: Mapping[str, Needs]) -> list[Part]:
    """Return the parts that a plan may have to read."""

    def within(table: Needs) -> bool:
        ends = table.before_seq is not None and manifest.last_seq >= table.before_seq
        return table.from_manifest < manifest.manifest_number and not ends

    return [part for part in manifest.parts if part.table in wanted and within(wanted[part.table])]


def _slim(
    manifest_range: ManifestRange, wanted: Mapping[str, Needs], rolled: Rolled | None
) -> list[Manifest]:
    if rolled is not None and rolled.stripped:
        return [replace(entry.manifest, parts=(), state=None) for entry in manifest_range.entries]
    return [
        replace(entry.manifest, parts=tuple(_parts(entry.manifest, wanted)), state=None)
        for entry in manifest_range.entries
    ]


def _rolled(block: Block, wanted: Mapping[str, Needs], exists: Callable[[str], bool]) -> Rolled:
    files: dict[str, list[Part]] = defaultdict(list)
    for file in block.files:
        if file.table in wanted:
            files[file.table].append(file)
    made = [f for found in files.values() for f in found if layout.parse_rollup_key(f.key)]
    with ThreadPoolExecutor(_LOOKS_AT_ONCE, thread_name_prefix="look") as pool:
        there = list(pool.map(exists, [file.key for file in made]))
    gone = {file.table for file, is_there in zip(made, there, strict=True) if not is_there}
    return Rolled(
        block.first_manifest, block.last_manifest, block.first_seq, dict(files), frozenset(gone)
    )
