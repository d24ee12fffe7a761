"""Removes the parts and roll-ups that no reader needs any more, and those that no manifest names;
and what `old_objects` finds.

A part may go when **all** of these hold: every known consumer has applied it; it is older than the
retention; the table's latest finished full dump began after it, so that a rebuild of the table does
not need it; and no open plan names it. An orphan may go when no manifest names it or lists its
prefix as still being uploaded, and it is older than any upload takes. Only objects in blocks are
examined: a block shows in one request which manifest names what.

Each removal is independent: after a kill in between, what is left is whole and is found again.
Manifests, blocks and schemas are never removed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from itertools import islice

from tideline.contract import layout
from tideline.contract.block import block_of, manifests_of
from tideline.contract.errors import CorruptData
from tideline.contract.manifest import Manifest, Part
from tideline.contract.messages import is_message_table
from tideline.contract.open_state import OpenState
from tideline.contract.plan import decode_plan
from tideline.contract.receipt import DONE, decode_receipt
from tideline.planner.block_facts import BlockFacts, block_of_key
from tideline.planner.chain_index import ChainIndex
from tideline.planner.consumers import Consumer, known_consumers
from tideline.planner.old_objects import old_plans, old_records, old_verification_parts
from tideline.planner.stored import read_stored
from tideline.settings import Settings
from tideline.store.chain import Chain
from tideline.store.objects import Entry, ObjectStore

_REMOVALS_AT_ONCE = 16
_READS_AT_ONCE = 16
_SETTLED_AT_ONCE = 1_000
_BLOCKS_KEPT = 4


class Fate(StrEnum):
    """The fate of an object, and the reason."""

    UNNEEDED = "removed: no one needs it"
    ORPHAN = "removed: no manifest names it"
    YOUNG = "kept: younger than the retention"
    UNAPPLIED = "kept: not applied everywhere"
    REBUILD = "kept: needed to build the table again"
    PINNED = "kept: an open plan names it"
    VERIFIED = "removed: a verification part that is compared"
    VERIFYING = "kept: a verification part that is young, or still to be compared"
    RECORD_OLD = "removed: a record of a run that is over"
    RECORD = "kept: a record of a run that is young"
    PLAN_OLD = "removed: a merger's plan that is over, or its receipt"
    PLAN = "kept: a merger's plan that is young or its table's last, or its receipt"
    UPLOADING = "kept: its upload may still be under way"

    @property
    def removed(self) -> bool:
        return self in (Fate.UNNEEDED, Fate.ORPHAN, Fate.VERIFIED, Fate.RECORD_OLD, Fate.PLAN_OLD)


@dataclass(frozen=True, slots=True)
class Rules:
    """The facts by which garbage is judged.

    ``applied``: per consumer, by table the manifest up to which all is applied; with no consumer
    nothing is. ``deletes_before``: by table the ``first_low_seq`` of its latest finished full dump.
    ``pinned``: keys that open plans name. Objects written before ``parts_before`` are older than
    the retention, before ``orphans_before`` older than any upload. ``messages_applied``: as
    ``applied``, of logical messages.
    """

    applied: Sequence[Mapping[str, int]]
    deletes_before: Mapping[str, int]
    pinned: frozenset[str]
    parts_before: datetime
    orphans_before: datetime
    messages_applied: Sequence[int] = ()


@dataclass(slots=True)
class Found:
    """Objects and bytes by fate, of those that were examined."""

    objects: Counter[Fate] = field(default_factory=Counter)
    bytes: Counter[Fate] = field(default_factory=Counter)

    def add(self, entry: Entry, fate: Fate) -> None:
        self.objects[fate] += 1
        self.bytes[fate] += entry.bytes


def fate_of(part: Part, manifest_number: int, modified: datetime, rules: Rules) -> Fate:
    """Return the fate of ``part``, which manifest ``manifest_number`` or one before it names."""
    if modified >= rules.parts_before:
        return Fate.YOUNG
    if is_message_table(part.table, part.schema):  # They build no table.
        applied = min(rules.messages_applied, default=0)
        return Fate.UNAPPLIED if applied < manifest_number else Fate.UNNEEDED
    delete_before = rules.deletes_before.get(part.table)
    if delete_before is None or part.last_seq > delete_before:
        return Fate.REBUILD
    if not rules.applied:
        return Fate.UNAPPLIED
    if any(one.get(part.table, 0) < manifest_number for one in rules.applied):
        return Fate.UNAPPLIED
    return Fate.PINNED if part.key in rules.pinned else Fate.UNNEEDED


class Garbage:
    """Collects a pipeline's garbage. Keep it from one search to the next: it continues where it
    stopped, and does not read again what cannot change."""

    def __init__(
        self,
        settings: Settings,
        store: ObjectStore,
        *,
        stopping: Callable[[], bool] = lambda: False,
    ) -> None:
        self._settings = settings
        self._store = store
        self._chain = Chain(store, settings.pipeline)
        self._chain_index = ChainIndex(self._chain)
        self._stopping = stopping
        self._newest = 0
        self._facts: dict[int, BlockFacts] = {}
        self._after: dict[str, str] = {}
        self._ended: set[str] = set()

    def collect(
        self, now: datetime, *, blocks_max: int | None = None, dry_run: bool = False
    ) -> Found:
        """Remove what may go, and return what was found: of everything or, with ``blocks_max``, of
        as much as so many blocks cover; the next call continues behind it.

        ``dry_run`` removes nothing. Raises Unavailable when the store, or a consumer, does not
        answer, and CorruptData for a chain, block or record that does not hold.
        """
        found = Found()
        tail = self._chain.tail(manifests_of(self._newest)[1])
        if tail is None:
            return found
        state = self._chain.open_state(tail)
        end = (tail.manifest, state)
        for entries, (over, stays) in (
            (
                old_verification_parts(self._settings, self._store, state, now),
                (Fate.VERIFIED, Fate.VERIFYING),
            ),
            (old_records(self._settings, self._store, now), (Fate.RECORD_OLD, Fate.RECORD)),
            (old_plans(self._settings, self._store, end, now), (Fate.PLAN_OLD, Fate.PLAN)),
        ):
            ours = ((entry, over if goes else stays) for entry, goes in entries)
            while judged := list(islice(ours, _SETTLED_AT_ONCE)):  # There may be millions.
                self._settle(found, judged, dry_run=dry_run)
                if self._stopping():
                    return found
        rules = self._rules(*end, now)
        self._newest = self._chain.newest_block(self._newest)
        if not self._newest:
            return found
        pipeline = self._settings.pipeline
        read = 0
        for prefix in (layout.parts_prefix(pipeline), layout.blocks_prefix(pipeline)):
            for page in self._pages(prefix):
                fates = [(entry, self._fate(entry, rules)) for entry in page]
                judged = [(entry, fate) for entry, fate in fates if fate is not None]
                self._settle(found, judged, dry_run=dry_run)
                read += len({block for entry, _ in judged if (block := block_of_key(entry.key))})
                self._after[prefix] = page[-1].key
                if blocks_max is not None and read >= blocks_max:
                    return found
            self._after.pop(prefix, None)
        return found

    def _settle(self, found: Found, judged: Sequence[tuple[Entry, Fate]], *, dry_run: bool) -> None:
        for entry, fate in judged:
            found.add(entry, fate)
        if not dry_run:
            self._remove([entry.key for entry, fate in judged if fate.removed])

    def _pages(self, prefix: str) -> Iterator[Sequence[Entry]]:
        """Yield the objects in blocks, by key, from where the last search stopped."""
        for page in self._store.entries(prefix, self._after.get(prefix, "")):
            if self._stopping():
                return
            yield page
            if (block_of_key(page[-1].key) or 0) > self._newest + 1:
                return

    def _rules(self, tail: Manifest, state: OpenState, now: datetime) -> Rules:
        retention = self._settings.retention
        number = tail.manifest_number
        dumps = {
            name: self._chain_index.full_dump(name, t, number) for name, t in state.tables.items()
        }
        deletes_before = {
            name: dump.first_low_seq for name, dump in dumps.items() if dump is not None
        }
        plans_since = now - timedelta(days=retention.plans_days)
        consumers = known_consumers(self._settings, self._store, plans_since)
        reached = [consumer.messages_applied(tail) for consumer in consumers]
        unneeded = _no_longer_needed(consumers, tail, state)
        return Rules(
            applied=[consumer.applied(tail, state) for consumer in consumers],
            deletes_before={**deletes_before, **dict.fromkeys(unneeded, tail.last_seq)},
            pinned=frozenset(self._pinned(plans_since)),
            parts_before=now - timedelta(days=retention.parts_days),
            orphans_before=now - timedelta(days=retention.orphans_days),
            messages_applied=[one for one in reached if one is not None],
        )

    # -- plans ---------------------------------------------------------------------------------

    def _pinned(self, since: datetime) -> Iterator[str]:
        """Yield the keys in plans that were made after ``since`` and have not ended well."""
        young: set[str] = set()
        with ThreadPoolExecutor(_READS_AT_ONCE, thread_name_prefix="plans") as pool:
            for page in self._store.entries(layout.plans_prefix(self._settings.pipeline)):
                keys = [entry.key for entry in page if entry.modified >= since]
                young.update(keys)
                left = [key for key in keys if key not in self._ended]
                for named in pool.map(self._named_by, left):
                    yield from named
        self._ended &= young

    def _named_by(self, plan_key: str) -> Iterable[str]:
        receipt = read_stored(self._store, layout.receipt_key_of(plan_key), decode_receipt)
        outcomes = set() if receipt is None else {one.outcome for one in receipt.tables}
        if outcomes and outcomes <= DONE:  # A receipt has every table of its plan.
            self._ended.add(plan_key)
            return ()
        plan = read_stored(self._store, plan_key, decode_plan)
        if plan is None:
            return ()
        done = set() if receipt is None else {t.table for t in receipt.tables if t.outcome in DONE}
        left = [table for table in plan.tables if table.table not in done]
        if not left:
            self._ended.add(plan_key)
        return [part.key for table in left for part in table.parts]

    # -- objects -------------------------------------------------------------------------------

    def _fate(self, entry: Entry, rules: Rules) -> Fate | None:
        """Return an object's fate; None for one that is not judged: not a part, or not in a block
        yet."""
        block = block_of_key(entry.key)
        if block is None or block > self._newest:
            return None
        if entry.modified >= max(rules.parts_before, rules.orphans_before):
            return Fate.YOUNG
        if (prefix := layout.parse_part_key(entry.key)) is not None:
            return self._fate_of_part(entry, prefix, rules)
        facts = self._block(block)
        file = facts.files.get(entry.key)
        if file is not None:
            return fate_of(file, facts.last_manifest, entry.modified, rules)
        return Fate.ORPHAN if entry.modified < rules.orphans_before else Fate.UPLOADING

    def _fate_of_part(self, entry: Entry, prefix: int, rules: Rules) -> Fate:
        """Return a part's fate. The manifest that names it comes at, or behind, the number of its
        prefix: as long as manifests list that as uploading."""
        number = block_of(prefix)
        while number < self._newest:
            facts = self._block(number)
            named = facts.named.get(entry.key) or self._block(number + 1).named.get(entry.key)
            if named is not None:
                return fate_of(named[1], named[0], entry.modified, rules)
            if facts.settled(prefix):
                old = entry.modified < rules.orphans_before
                return Fate.ORPHAN if old else Fate.UPLOADING
            number += 1
        named = self._block(number).named.get(entry.key)
        if named is not None:
            return fate_of(named[1], named[0], entry.modified, rules)
        return Fate.UPLOADING

    def _block(self, number: int) -> BlockFacts:
        """Return the block's facts; a few are kept, because neighbours ask for the same ones."""
        facts = self._facts.get(number)
        if facts is None:
            block = self._chain.read_block(number)
            if block is None:
                raise CorruptData(f"block {number} is missing, although later ones are there")
            # One that a restore of the store has left behind does not describe the parts here.
            self._chain.check_anchor(block, block.last_manifest)
            if len(self._facts) >= _BLOCKS_KEPT:
                self._facts.pop(next(iter(self._facts)))
            facts = self._facts[number] = BlockFacts.of(block)
        return facts

    def _remove(self, keys: Sequence[str]) -> None:
        if keys:
            with ThreadPoolExecutor(_REMOVALS_AT_ONCE, thread_name_prefix="remove") as pool:
                list(pool.map(self._store.delete, keys))


def _no_longer_needed(consumers: Sequence[Consumer], tail: Manifest, state: OpenState) -> list[str]:
    """Return the tables that the source no longer has and no consumer will have rebuilt."""
    return [
        name
        for name, table in state.tables.items()
        if table.removed
        and consumers
        and not any(consumer.needs(name, tail, state) for consumer in consumers)
    ]
