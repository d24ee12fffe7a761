"""Walks the chain once against the ledger, for `oracle`'s checks.

Each log event finds its ledger entry: a write by its key and ``ver``, a delete as the next one of
its key that the chain has not had. So far as the chain has been walked, the newest version of every
key is known, and the warehouse after each merge is compared with that. Nothing is judged here.
Linear in events, ledger entries and rows of the warehouse.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field

from devtools.simulation.history import (
    ChainEvent,
    ChainManifest,
    Key,
    LedgerEntry,
    MergeCommit,
    Row,
    RunHistory,
)
from tideline.contract.errors import InvariantBroken

TRUNCATED: Key = ()
"""The key under which a table's truncates are entered."""


@dataclass(slots=True)
class KeyState:
    """One key: its ledger, what the chain has reported of it, and its state at this point of the
    walk.

    ``entries[n - 1]`` is version n, ``owners`` their transactions' places; ``logged_vers`` are the
    versions that the chain has reported.
    """

    entries: list[LedgerEntry] = field(default_factory=list)
    owners: list[int] = field(default_factory=list)
    logged_vers: set[int] = field(default_factory=set)
    expected: int = 1
    """The next version that the log should report."""
    ver: int = 0
    seq: int = 0
    live: bool = False

    def entry(self, ver: int) -> LedgerEntry | None:
        return self.entries[ver - 1] if 1 <= ver <= len(self.entries) else None

    def next_deletion(self, op: str) -> int | None:
        """Return the next version that is a logged ``op``, else one that is not logged, else None.

        The search begins at the expected version.
        """
        other = None
        for ver in range(self.expected, len(self.entries) + 1):
            entry = self.entries[ver - 1]
            if entry.op == op and entry.logged:
                return ver
            if entry.op == op and other is None:
                other = ver
        return other

    def loose(self) -> bool:
        """Return whether the chain need not report the next version."""
        following = self.entry(self.ver + 1)
        return following is not None and not following.logged


@dataclass(slots=True)
class Sight:
    """An event and its ledger entry, None if there is no such version of the key.

    ``ver``, ``live`` and ``expected`` are the key's before it; ``repeated``: the log had reported
    this version already; ``absent``: a dump says that the source has no such key. ``overtaken``: a
    truncate after the entry was reported already.
    """

    event: ChainEvent
    number: int
    key: Key
    entry: LedgerEntry | None
    owner: int
    ver: int
    live: bool
    repeated: bool = False
    absent: bool = False
    overtaken: bool = False
    deleted: bool = False
    early: bool = False
    """A dump's row of a version that the log must report and has not yet reported."""


@dataclass(slots=True)
class StateDifference:
    """A row of the warehouse after ``commit`` that differs from the chain up to there.

    ``kind``: ``double``, ``missing``, ``behind``, ``ahead``, ``gone`` (deleted, and there),
    ``unknown`` (no such version), ``value``, ``back`` (it was newer once). ``entry`` is the
    ledger's of what should be there.
    """

    kind: str
    commit: MergeCommit
    entry: LedgerEntry | None


@dataclass(slots=True)
class Replay:
    """The results of a walk; ``sights`` in chain order within each table.

    ``untold``: logged entries that no event reports, with the place of their transaction.
    ``left_over``: where the warehouse is not the source in the end (table, applied sequence, kind),
    once all is merged.
    """

    sights: list[Sight] = field(default_factory=list)
    differences: dict[str, list[StateDifference]] = field(default_factory=lambda: defaultdict(list))
    untold: list[tuple[LedgerEntry, int]] = field(default_factory=list)
    left_over: list[tuple[str, int | None, str]] = field(default_factory=list)


class _Table:
    """The walk through one table."""

    def __init__(self, replay: Replay) -> None:
        self.keys: dict[Key, KeyState] = defaultdict(KeyState)
        self.moves: list[tuple[int, int, ChainEvent]] = []
        self._replay = replay
        self._newest: dict[Key, int] = {}
        self._generation = 0
        self._truncated_by = -1

    def enter(self, entry: LedgerEntry, owner: int) -> None:
        state = self.keys[entry.key]
        state.entries.append(entry)
        state.owners.append(owner)

    def put_in_order(self) -> None:
        """Sort the ledger, which may come in any order; each key's versions have no gap."""
        for state in self.keys.values():
            if any(entry.ver != n for n, entry in enumerate(state.entries, 1)):
                pairs = sorted(zip(state.entries, state.owners, strict=True), key=_ver_of)
                state.entries = [entry for entry, _ in pairs]
                state.owners = [owner for _, owner in pairs]
                if any(entry.ver != n for n, entry in enumerate(state.entries, 1)):
                    raise InvariantBroken(
                        f"the ledger's versions of a key of {state.entries[0].table} have a gap"
                    )

    def walk(self, commits: list[MergeCommit], *, ordered: bool) -> None:
        moves, at, applied = self.moves, 0, -1
        for commit in commits:
            if commit.generation != self._generation:
                self._generation, self._newest, applied = commit.generation, {}, -1
            while at < len(moves) and moves[at][0] <= commit.applied_seq:
                self._move(*moves[at], ordered=ordered)
                at += 1
            if commit.applied_seq < applied:
                self._differ("back", commit, None)
            else:
                self._compare(commit)
            applied = max(applied, commit.applied_seq)
        for move in moves[at:]:
            self._move(*move, ordered=ordered)

    def _move(self, seq: int, number: int, event: ChainEvent, *, ordered: bool) -> None:
        if event.key == TRUNCATED:
            sight = self._deletion(event, number, event.key, "t")
            if sight.entry is not None and ordered:
                self._truncated_by = sight.owner
            for state in self.keys.values():
                if state.live:
                    state.live, state.seq = False, seq
            return
        if event.dumped and event.op == "d":
            state = self.keys[event.key]
            sight = self._see(event, number, event.key, state, ver=None)
            sight.absent, sight.live = True, state.live and not state.loose()
            state.live, state.seq = False, seq
            return
        if event.before_key is not None and event.before_key != event.key:
            self._deletion(event, number, event.before_key, "d")
        if event.op == "d":
            self._deletion(event, number, event.key, "d")
        else:
            self._write(event, number)

    def _write(self, event: ChainEvent, number: int) -> None:
        state = self.keys[event.key]
        ver = event.ver
        sight = self._see(event, number, event.key, state, ver=ver)
        if sight.entry is not None and sight.entry.digest is None:
            sight.entry = None  # That version is a deletion: no row was ever written under it.
        if ver is None or sight.entry is None:
            return
        logged_vers = ver in state.logged_vers
        if event.dumped or event.op == "r":
            sight.early = sight.entry.logged and not logged_vers
        else:
            sight.repeated = logged_vers
            state.logged_vers.add(ver)
            state.expected = max(state.expected, ver + 1)
        sight.overtaken = sight.owner < self._truncated_by
        if ver > state.ver or (ver == state.ver and not sight.overtaken):
            state.ver, state.seq, state.live = ver, event.seq, True

    def _deletion(self, event: ChainEvent, number: int, key: Key, op: str) -> Sight:
        """Return the key's next deletion (or truncate) that was not reported yet, for one in the
        log."""
        state = self.keys[key]
        ver = state.next_deletion(op)
        sight = self._see(event, number, key, state, ver=ver)
        sight.deleted = True
        if ver is not None:
            state.logged_vers.add(ver)
            state.expected = ver + 1
            state.ver = max(state.ver, ver)
        else:
            sight.repeated = any(state.entries[one - 1].op == op for one in state.logged_vers)
        state.seq, state.live = event.seq, False
        return sight

    def _see(
        self, event: ChainEvent, number: int, key: Key, state: KeyState, *, ver: int | None
    ) -> Sight:
        entry = None if ver is None else state.entry(ver)
        owner = -1 if entry is None else state.owners[entry.ver - 1]
        sight = Sight(event, number, key, entry, owner, state.ver, state.live)
        self._replay.sights.append(sight)
        return sight

    def _compare(self, commit: MergeCommit) -> None:
        newest, keys = self._newest, self.keys
        found: set[Key] = set()
        for row in commit.rows:
            key, ver = row.key, row.ver
            if key in found:
                self._differ("double", commit, None)
            found.add(key)
            state = keys.get(key)
            if state is None or ver is None or state.ver != ver or not state.live:
                self._judge(commit, row, state)
            else:
                entry = state.entries[ver - 1]
                if row.digest is not None and row.digest != entry.digest:
                    self._differ("value", commit, entry)
            if ver is not None:
                if newest.get(key, 0) > ver:
                    self._differ("back", commit, None)
                newest[key] = ver
        for key, state in keys.items():
            current = state.live and state.seq > commit.starts_seq
            if current and key not in found and not state.loose():
                self._differ("missing", commit, state.entry(state.ver))

    def _judge(self, commit: MergeCommit, row: Row, state: KeyState | None) -> None:
        entry = None if state is None or row.ver is None else state.entry(row.ver)
        if row.ver is None:
            self._differ("value", commit, None)
        elif state is None or entry is None or entry.op in ("d", "t"):
            self._differ("unknown", commit, None)
        elif row.ver > state.ver:
            self._differ("ahead", commit, entry)
        elif not state.live:
            self._differ("gone", commit, entry)
        else:
            self._differ("behind", commit, state.entry(state.ver))

    def _differ(self, kind: str, commit: MergeCommit, entry: LedgerEntry | None) -> None:
        self._replay.differences[kind].append(StateDifference(kind, commit, entry))

    def untold(self) -> Iterator[tuple[LedgerEntry, int]]:
        for state in self.keys.values():
            if len(state.logged_vers) < len(state.entries):
                for entry, owner in zip(state.entries, state.owners, strict=True):
                    if entry.logged and entry.ver not in state.logged_vers:
                        yield entry, owner


def replay(history: RunHistory) -> Replay:
    """Walk the chain of ``history`` once.

    Raises InvariantBroken for a ledger that contradicts itself.
    """
    found = Replay()
    tables: dict[str, _Table] = defaultdict(lambda: _Table(found))
    for owner, transaction in enumerate(history.transactions):
        for entry in transaction.entries:
            tables[entry.table].enter(entry, owner)
    for manifest in history.manifests:
        for event in _events(manifest):
            tables[event.table].moves.append((event.seq, manifest.number, event))
    commits: dict[str, list[MergeCommit]] = defaultdict(list)
    for commit in history.commits:
        commits[commit.table].append(commit)
    for name in commits.keys() - tables.keys():
        tables[name] = _Table(found)
    for name, table in tables.items():
        table.put_in_order()
        table.walk(commits[name], ordered=history.ordered)
        found.untold.extend(table.untold())
    return found


def _events(manifest: ChainManifest) -> list[ChainEvent]:
    """Return the rows and truncates of a manifest in the order of their sequences."""
    events = [ChainEvent(one.seq, one.table, TRUNCATED, "t") for one in manifest.truncates]
    return sorted([*manifest.events, *events], key=_seq_of)


def _seq_of(event: ChainEvent) -> int:
    return event.seq


def _ver_of(pair: tuple[LedgerEntry, int]) -> int:
    return pair[0].ver
