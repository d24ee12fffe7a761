"""A correct run, told step by step, for tests that break one thing of it."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from devtools.simulation.history import (
    AppendOutcome,
    Attempt,
    ChainEvent,
    ChainManifest,
    Key,
    LedgerEntry,
    LedgerTransaction,
    Liveness,
    MergeCommit,
    Remerge,
    Row,
    RunHistory,
    TableSeq,
)

T, U = "public.t", "public.u"


@dataclass(slots=True)
class Story:
    """Keys are given as letters; the ledger, the chain and the warehouse follow from the steps."""

    transactions: list[LedgerTransaction] = field(default_factory=list)
    rolled_back: list[LedgerEntry] = field(default_factory=list)
    manifests: list[ChainManifest] = field(default_factory=list)
    commits: list[MergeCommit] = field(default_factory=list)
    rows: dict[str, dict[Key, Row]] = field(default_factory=lambda: {T: {}, U: {}})
    captured: bool = True
    _versions: dict[tuple[str, Key], int] = field(default_factory=dict)
    _events: list[ChainEvent] = field(default_factory=list)
    _truncates: list[TableSeq] = field(default_factory=list)
    _others: list[int] = field(default_factory=list)
    _seq: int = 0
    _sealed: int = 0
    _merged: dict[str, int] = field(default_factory=dict)

    def commit(self, *changes: str, table: str = T) -> None:
        """One transaction of changes such as ``c a``, ``u a``, ``d a``, ``m a b`` (move), ``t``."""
        entries: list[LedgerEntry] = []
        for change in changes:
            op, *names = change.split()
            entries += getattr(self, f"_do_{op}")(table, *((name,) for name in names))
        self.transactions.append(LedgerTransaction(len(self.transactions) + 1, tuple(entries)))

    def roll_back(self, name: str, *, table: str = T) -> None:
        """A change whose version the next change of the key takes again."""
        ver = self._versions.get((table, (name,)), 0) + 1
        self.rolled_back.append(LedgerEntry(table, (name,), ver, "u", f"undone {name} {ver}"))

    def dump(self, table: str = T) -> None:
        for row in self.rows[table].values():
            self._event(table, row.key, "r", row.ver, row.digest, dumped=True)

    def absent(self, name: str, *, table: str = T) -> None:
        """A dump finds that the source has no such key."""
        self._event(table, (name,), "d", dumped=True)

    def schema_event(self) -> None:
        self._seq += 1
        self._others.append(self._seq)

    def seal(self, *, takeover: bool = False) -> None:
        number, term, before = len(self.manifests) + 1, 1, ""
        if self.manifests:
            term = self.manifests[-1].term + takeover
            before = self.manifests[-1].digest
        self.manifests.append(
            ChainManifest(
                number=number,
                term=term,
                writer=f"w{term}",
                first_seq=self._sealed + 1,
                last_seq=self._seq,
                digest=f"m{number}",
                previous_digest=before,
                takeover=takeover,
                position=number * 10,
                events=tuple(self._events),
                truncates=tuple(self._truncates),
                others=tuple(self._others),
            )
        )
        self._events, self._truncates, self._others = [], [], []
        self._sealed = self._seq

    def merge(self, table: str = T) -> None:
        assert self._sealed == self._seq, "the rows are those of the newest change"
        from_manifest, to_manifest = self._merged.get(table, 0), len(self.manifests)
        rows = tuple(self.rows[table].values())
        self.commits.append(
            MergeCommit(table, from_manifest, to_manifest, self._seq, rows, total=0)
        )
        self._merged[table] = to_manifest

    def history(self) -> RunHistory:
        return RunHistory(
            transactions=tuple(self.transactions),
            manifests=tuple(self.manifests),
            rolled_back=tuple(self.rolled_back),
            attempts=tuple(
                Attempt(m.number, m.term, m.writer, m.digest, AppendOutcome.ACCEPTED)
                for m in self.manifests
            ),
            commits=tuple(self.commits),
            source={table: tuple(rows.values()) for table, rows in self.rows.items()},
            totals={T: 0},
            remerges=(Remerge(T, 1, "same", "same"),),
            liveness=Liveness(faults_ended_s=10.0, bound_s=5.0, heartbeat_s=12.0),
        )

    def _do_c(self, table: str, key: Key) -> list[LedgerEntry]:
        return [self._write(table, key, "c")]

    def _do_u(self, table: str, key: Key) -> list[LedgerEntry]:
        return [self._write(table, key, "u")]

    def _do_d(self, table: str, key: Key) -> list[LedgerEntry]:
        del self.rows[table][key]
        if self.captured:
            self._event(table, key, "d")
        return [LedgerEntry(table, key, self._next(table, key), "d", logged=self.captured)]

    def _do_m(self, table: str, key: Key, to: Key) -> list[LedgerEntry]:
        del self.rows[table][key]
        gone = LedgerEntry(table, key, self._next(table, key), "d", logged=self.captured)
        return [gone, self._write(table, to, "u", before=key)]

    def _do_t(self, table: str) -> list[LedgerEntry]:
        self.rows[table].clear()
        self._seq += 1
        self._truncates.append(TableSeq(table, self._seq))
        return [LedgerEntry(table, (), self._next(table, ()), "t")]

    def _write(self, table: str, key: Key, op: str, *, before: Key | None = None) -> LedgerEntry:
        ver = self._next(table, key)
        row = Row(key, ver, f"{key[0]} {ver}")
        self.rows[table][key] = row
        if self.captured:
            self._event(
                table, key, op, ver, row.digest, before_key=before, log_position=len(self._events)
            )
        return LedgerEntry(table, key, ver, "c" if before else op, row.digest, logged=self.captured)

    def _next(self, table: str, key: Key) -> int:
        self._versions[table, key] = self._versions.get((table, key), 0) + 1
        return self._versions[table, key]

    def _event(self, table: str, key: Key, op: str, *fields: Any, **more: Any) -> None:
        self._seq += 1
        more.setdefault("log_position", None)
        if more["log_position"] is not None:
            more["log_position"] = (self._seq, 0)
        self._events.append(ChainEvent(self._seq, table, key, op, *fields, **more))


def events_of(history: RunHistory) -> list[ChainEvent]:
    return list(itertools.chain.from_iterable(m.events for m in history.manifests))


def with_events(
    history: RunHistory, change: Callable[[list[ChainEvent]], list[ChainEvent]]
) -> RunHistory:
    """The rows of each manifest changed, and its last sequence with them, so that there is no gap:
    sequences are given again in the order of the rows, which the warehouse's commits follow."""
    new_seq: dict[int, int] = {0: 0}
    manifests, seq = [], 0
    for manifest in history.manifests:
        first, parts = seq + 1, Counter[str]()
        held: dict[str, list[Any]] = {"events": [], "truncates": [], "others": []}
        for item in _in_order(manifest, change(list(manifest.events))):
            seq += 1
            if isinstance(item, ChainEvent):
                parts["event"] += 1
                log_position = (manifest.number, parts["event"])
                held["events"].append(replace(item, seq=seq, log_position=log_position))
            elif isinstance(item, TableSeq):
                held["truncates"].append(replace(item, seq=seq))
            else:
                held["others"].append(seq)
        new_seq[manifest.last_seq] = seq
        fields: dict[str, Any] = {name: tuple(items) for name, items in held.items()}
        manifests.append(replace(manifest, **fields, first_seq=first, last_seq=seq))
    commits = [replace(c, applied_seq=new_seq[c.applied_seq]) for c in history.commits]
    return replace(history, manifests=tuple(manifests), commits=tuple(commits))


def _in_order(
    manifest: ChainManifest, events: list[ChainEvent]
) -> list[ChainEvent | TableSeq | int]:
    """All of the manifest; a truncate after the event that it came after, wherever that is now."""
    before = {e.seq: n for n, e in enumerate(manifest.events)}
    items: list[ChainEvent | TableSeq | int] = [*manifest.others, *events]
    for truncate in manifest.truncates:
        earlier = [n for n, item in enumerate(items) if _was_before(item, truncate, before)]
        items.insert(max(earlier, default=-1) + 1, truncate)
    return items


def _was_before(item: ChainEvent | TableSeq | int, one: TableSeq, known: dict[int, int]) -> bool:
    if isinstance(item, ChainEvent):
        return item.seq in known and item.seq == max((s for s in known if s < one.seq), default=0)
    return not isinstance(item, TableSeq) and item < one.seq
