"""Finds what would be lost of a table's past: modes that keep it are made from all its parts."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

from tideline.contract.block import check_files
from tideline.contract.layout import parse_rollup_key
from tideline.contract.modes import Mode
from tideline.contract.open_state import TableState
from tideline.contract.printable import command
from tideline.store.chain import Chain, ManifestRange
from tideline.store.objects import ObjectStore
from tideline.warehouse.state import TargetState

_LOOKS_AT_ONCE = 16


def parts_lost(
    chain: Chain, store: ObjectStore, name: str, table: TableState, until: int
) -> int | None:
    """Return the newest manifest, up to ``until``, of which a part of the table's generation is
    gone.

    None when all are there: by themselves, or as roll-ups of whole blocks.
    """
    first = table.generation_manifest + 1
    if until < first:
        return None
    lost: int | None = None
    with ThreadPoolExecutor(_LOOKS_AT_ONCE, thread_name_prefix="look") as pool:
        for manifest_range in chain.ranges(first, until):
            if _rolled_up(manifest_range, store, name):
                continue
            parts = [
                (entry.manifest.manifest_number, part.key)
                for entry in manifest_range.entries
                for part in entry.manifest.parts
                if part.table == name and part.last_seq > table.generation_seq
            ]
            there = pool.map(store.exists, [key for _, key in parts])
            gone = [number for (number, _), found in zip(parts, there, strict=True) if not found]
            lost = max(gone, default=lost)
    return lost


def lost_history_remedy(name: str, mode: Mode, lost: int, seq: int, *, rebuilding: bool) -> str:
    """Return the remedy where parts of the past up to manifest ``lost`` are gone, so that only the
    past from ``seq`` on is available. A rebuild takes a live table's place, so there must be one;
    the rebuild that finds this is under way, and is to begin otherwise."""
    first = "" if rebuilding else "set its mode to current and merge it, then "
    switches = ["--mode", mode.value, "--since-dump", *["--restart"] * rebuilding]
    return (
        f"to be kept as {mode.value} the table needs every change since its generation began, and"
        f" of those parts up to manifest {lost} are removed; what can be had begins at sequence"
        f" {seq}, with the latest full dump:"
        f" {first}{command('rebuild', name, *switches)} starts there"
    )


def recreate_refusal(name: str, table: TableState, target: TargetState, wanted: Mode) -> str | None:
    """Return why a merge does not replace ``target`` by another generation; None where it may. No
    one who knows the table's content decides on a merge."""
    if not target.exists or target.applied is not None or not target.mode.keeps_history:
        return None
    switch = [] if wanted is target.mode else ["--mode", target.mode.value]
    return (
        f"generation {table.generation} of it has begun, and making its target again drops the past"
        f" that this keeps as {target.mode.value}: {command('rebuild', name, *switch)} does that,"
        " with what a full dump of this generation and the changes since hold; what the target"
        " holds now is then in the earlier versions of its log, until vacuum"
    )


def gone_for_good(name: str) -> str:
    """Return the message for a table that is neither in the source nor in the warehouse any
    more."""
    return (
        "the source has it no longer, all of it was merged, and its target was removed since: it is"
        f" not recreated. {command('merge', name)} does that, as long as its parts are kept"
    )


def _rolled_up(manifest_range: ManifestRange, store: ObjectStore, name: str) -> bool:
    """Return whether the whole range is a block whose files for the table are all there."""
    block = manifest_range.block
    if block is None or len(manifest_range.entries) != len(block.manifests):
        return False
    check_files(block, [entry.manifest for entry in manifest_range.entries])
    files = [file.key for file in block.files if file.table == name]
    return bool(files) and all(parse_rollup_key(key) and store.exists(key) for key in files)
