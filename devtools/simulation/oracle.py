"""Judges one run's history: twelve checks, each named by its letter.

| | Fails when |
|---|---|
| L lost | a committed version is in no manifest; the warehouse lacks it, or a row in the end |
| D duplicate | two rows of one key; one sequence, version or place in the log reported twice |
| T time travel | an event, a dump's row or the warehouse takes a key back |
| P phantom | a version that was rolled back, or never written |
| R resurrection | a row lives after its delete, with no newer insert |
| G gap | a number or a sequence is missing; a merge passed over a manifest |
| F fork | two manifests under one number; an older term continues; a writer misled about its own |
| A atomicity | a manifest's or a merge's end splits a transaction |
| V value | a row is not what was written under its version |
| I idempotence | the same segments, merged in another way, make another table |
| E liveness | after the last fault no heartbeat arrives, or a request does not end |
| C claim | a manifest is complete through a time, and lacks what the log had before it |

A version is known by its key, ``ver`` and digest, and ``ver`` orders each key's versions without a
search or a clock: every check is linear in the history. No check looks at how a run came about.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterator

from devtools.simulation.history import (
    AppendOutcome,
    Attempt,
    ChainManifest,
    Key,
    LedgerEntry,
    MergeCommit,
    Row,
    RunHistory,
    Violation,
)
from devtools.simulation.replay import Replay, Sight, replay
from tideline.contract.errors import InvariantBroken

Check = Callable[[RunHistory, Replay], Iterator[Violation]]
ALL = "*"
"""The table of a violation that is not of one table."""


def check(history: RunHistory) -> list[Violation]:
    """Return every violation, by check.

    Raises InvariantBroken when the source contradicts its own ledger, which is a mistake of the
    rig.
    """
    _require_sound(history)
    walked = replay(history)
    if history.settled:
        walked.left_over.extend(_left_over(history))
    return [violation for one in CHECKS.values() for violation in one(history, walked)]


def lost(history: RunHistory, walked: Replay) -> Iterator[Violation]:
    for entry, owner in walked.untold:
        txid = history.transactions[owner].txid
        yield Violation("L", entry.table, None, f"a change of transaction {txid} is in no manifest")
    for kind in ("missing", "behind"):
        yield from _differences("L", kind, "the warehouse lacks what it has applied", walked)
    for table, seq, kind in walked.left_over:
        if kind in ("missing", "older"):
            yield Violation("L", table, seq, "in the end the warehouse lacks a row's state")


def duplicated(history: RunHistory, walked: Replay) -> Iterator[Violation]:
    for sight in walked.sights:
        if sight.repeated:
            yield _at(sight, "D", "the log's change is in the chain twice")
    seqs: set[int] = set()
    log_positions: dict[Hashable, int] = {}
    for manifest in history.manifests:
        for seq, table in _sequences(manifest):
            if seq in seqs:
                yield Violation("D", table, seq, "the sequence is used twice")
            seqs.add(seq)
        for event in manifest.events:
            if (
                event.log_position is not None
                and log_positions.setdefault(event.log_position, event.seq) != event.seq
            ):
                yield Violation("D", event.table, event.seq, "its place in the log came before")
    yield from _differences("D", "double", "the warehouse has two rows of one key", walked)


def travelled(history: RunHistory, walked: Replay) -> Iterator[Violation]:
    for sight in walked.sights:
        if sight.absent:
            if sight.live:
                yield _at(sight, "T", "a dump deletes a row that the log has")
        elif sight.overtaken:
            yield _at(sight, "T", "an event comes after the truncate that it was before")
        elif sight.entry is not None and sight.entry.ver < sight.ver:
            yield _at(sight, "T", "an event is older than one before it")
    yield from _differences("T", "back", "the warehouse went back", walked)


def phantom(history: RunHistory, walked: Replay) -> Iterator[Violation]:
    undone = _undone(history)
    for sight in walked.sights:
        event = sight.event
        if sight.deleted and sight.entry is None and not sight.repeated:
            yield _at(sight, "P", "a delete that was never committed")
        elif not sight.deleted and sight.entry is None and event.ver is not None:
            yield _at(sight, "P", "a version that was never committed")
        elif _is_undone(sight, undone):
            yield _at(sight, "P", "a version that was rolled back")
    yield from _differences("P", "unknown", "the warehouse has what was never committed", walked)
    for table, seq, kind in walked.left_over:
        if kind in ("newer", "unknown"):
            yield Violation("P", table, seq, "in the end the warehouse has what never was")


def resurrected(history: RunHistory, walked: Replay) -> Iterator[Violation]:
    for sight in walked.sights:
        if sight.deleted or sight.absent or sight.live or sight.entry is None or not sight.ver:
            continue
        if sight.entry.ver <= sight.ver:
            yield _at(sight, "R", "a deleted row comes back")
    yield from _differences("R", "gone", "the warehouse has a row that is deleted", walked)
    for table, seq, kind in walked.left_over:
        if kind == "gone":
            yield Violation("R", table, seq, "in the end a deleted row is in the warehouse")


def gap(history: RunHistory, walked: Replay) -> Iterator[Violation]:
    number, last = 0, 0
    position: int | None = None
    for manifest in history.manifests:
        name = f"manifest {manifest.number}"
        if manifest.number > number + 1:
            yield Violation("G", ALL, manifest.first_seq, f"{name} comes after {number}")
        if manifest.number > number and manifest.first_seq != last + 1:
            yield Violation("G", ALL, manifest.first_seq, f"{name} does not begin after {last}")
        if not _is_filled(manifest):
            yield Violation("G", ALL, manifest.first_seq, f"{name} lacks rows of its sequences")
        if position is not None and manifest.position is not None and manifest.position < position:
            yield Violation("G", ALL, manifest.first_seq, f"{name}: the log's position went back")
        number, last = manifest.number, manifest.last_seq
        position = manifest.position if manifest.position is not None else position
    yield from _passed_over(history)


def fork(history: RunHistory, walked: Replay) -> Iterator[Violation]:
    standing: dict[int, ChainManifest] = {}
    previous: ChainManifest | None = None
    for manifest in history.manifests:
        if manifest.number in standing:
            words = f"two manifests are number {manifest.number}"
            yield Violation("F", ALL, manifest.first_seq, words)
        standing.setdefault(manifest.number, manifest)
        wrong = None if previous is None else _unlawful(previous, manifest)
        if wrong is not None:
            words = f"manifest {manifest.number}: {wrong}"
            yield Violation("F", ALL, manifest.first_seq, words)
        previous = manifest
    for attempt in history.attempts:
        wrong = _misled(attempt, standing.get(attempt.number))
        if wrong is not None:
            yield Violation("F", ALL, None, f"manifest {attempt.number}: {wrong}")


def split(history: RunHistory, walked: Replay) -> Iterator[Violation]:
    numbers: dict[int, int] = {}
    for sight in walked.sights:
        if sight.early:
            yield _at(sight, "A", "a dump's row is ahead of the log")
        elif sight.entry is not None and not sight.event.dumped and sight.event.op != "r":
            first = numbers.setdefault(sight.owner, sight.number)
            if first != sight.number:
                txid = history.transactions[sight.owner].txid
                yield _at(sight, "A", f"transaction {txid} is split between manifests")
    yield from _differences("A", "ahead", "the warehouse is ahead of what it has applied", walked)
    for commit in history.commits:
        wanted = history.totals.get(commit.table)
        if wanted is not None and commit.total is not None and commit.total != wanted:
            words = f"the bank's sum is off after the merge of manifest {commit.to_manifest}"
            yield Violation("A", commit.table, commit.applied_seq, words)


def value(history: RunHistory, walked: Replay) -> Iterator[Violation]:
    undone = _undone(history)
    for sight in walked.sights:
        event = sight.event
        if sight.deleted or sight.absent:
            continue
        if event.ver is None:
            if not event.unchanged:
                yield _at(sight, "V", "a whole row has no version")
        elif sight.entry is not None and event.digest is not None:
            if event.digest != sight.entry.digest and not _is_undone(sight, undone):
                yield _at(sight, "V", "the row is not what was written")
        elif event.digest is None and not event.unchanged:
            yield _at(sight, "V", "a whole row has no digest")
    yield from _differences("V", "value", "a row is not what was written", walked)
    for table, seq, kind in walked.left_over:
        if kind == "value":
            yield Violation("V", table, seq, "in the end a row is not the source's")


def repeatable(history: RunHistory, walked: Replay) -> Iterator[Violation]:
    for one in history.remerges:
        if one.expected != one.found:
            yield Violation("I", one.table, one.applied_seq, "merged again, the table is another")


def alive(history: RunHistory, walked: Replay) -> Iterator[Violation]:
    live = history.liveness
    if live is None:
        return
    if live.heartbeat_s is None or live.heartbeat_s > live.faults_ended_s + live.bound_s:
        words = f"no heartbeat arrived within {live.bound_s:g} s of the last fault's end"
        yield Violation("E", ALL, None, words)
    for request_id in live.unended:
        yield Violation("E", ALL, None, f"request {request_id} was accepted and never ended")


def claimed(history: RunHistory, walked: Replay) -> Iterator[Violation]:
    for manifest in history.manifests:
        through, lacks = manifest.through_us, manifest.lacks_us
        if through is not None and lacks is not None and through > lacks:
            words = f"manifest {manifest.number} claims {(through - lacks) / 1e6:.1f} s too much"
            yield Violation("C", ALL, manifest.last_seq, words)


CHECKS: dict[str, Check] = {
    "L": lost,
    "D": duplicated,
    "T": travelled,
    "P": phantom,
    "R": resurrected,
    "G": gap,
    "F": fork,
    "A": split,
    "V": value,
    "I": repeatable,
    "E": alive,
    "C": claimed,
}


def _at(sight: Sight, letter: str, words: str) -> Violation:
    return Violation(letter, sight.event.table, sight.event.seq, words)


def _differences(letter: str, kind: str, words: str, walked: Replay) -> Iterator[Violation]:
    for one in walked.differences.get(kind, ()):
        where = f"{words}, after the merge of manifest {one.commit.to_manifest}"
        yield Violation(letter, one.commit.table, one.commit.applied_seq, where)


Undone = dict[tuple[str, Key, int], set[Hashable]]


def _undone(history: RunHistory) -> Undone:
    undone: Undone = defaultdict(set)
    for entry in history.rolled_back:
        undone[entry.table, entry.key, entry.ver].add(entry.digest)
    return undone


def _is_undone(sight: Sight, undone: Undone) -> bool:
    """Return whether the event is the version as it was rolled back, not as it was committed
    after."""
    event, entry = sight.event, sight.entry
    if entry is None or event.digest is None or event.digest == entry.digest or sight.deleted:
        return False
    return event.digest in undone.get((event.table, event.key, entry.ver), ())


def _sequences(manifest: ChainManifest) -> Iterator[tuple[int, str]]:
    for event in manifest.events:
        yield event.seq, event.table
    for truncate in manifest.truncates:
        yield truncate.seq, truncate.table
    for seq in manifest.others:
        yield seq, ALL


def _is_filled(manifest: ChainManifest) -> bool:
    seqs = {seq for seq, _ in _sequences(manifest)}
    count = manifest.last_seq - manifest.first_seq + 1
    return len(seqs) == count and (
        not seqs or (min(seqs), max(seqs)) == (manifest.first_seq, manifest.last_seq)
    )


def _passed_over(history: RunHistory) -> Iterator[Violation]:
    """Find merges whose ranges do not touch, or that end where no manifest does."""
    lasts = {manifest.number: manifest.last_seq for manifest in history.manifests}
    held: dict[str, list[tuple[int, int]]] = defaultdict(list)
    for manifest in history.manifests:
        for table, seq in {table: seq for seq, table in _sequences(manifest)}.items():
            held[table].append((manifest.number, seq))
    newest: dict[tuple[str, int], MergeCommit] = {}
    for commit in history.commits:
        before = newest.get((commit.table, commit.generation))
        done = 0 if before is None else before.to_manifest
        newest[commit.table, commit.generation] = commit
        skipped = any(
            done < number <= commit.from_manifest and seq > commit.starts_seq
            for number, seq in (held[commit.table] if commit.from_manifest > done else ())
        )
        if skipped or (before is not None and commit.from_manifest < done):
            words = f"the merge after manifest {commit.from_manifest} follows one up to {done}"
            yield Violation("G", commit.table, commit.applied_seq, words)
        if lasts.get(commit.to_manifest) != commit.applied_seq:
            words = f"the merge of manifest {commit.to_manifest} does not end where that ends"
            yield Violation("G", commit.table, commit.applied_seq, words)


def _unlawful(previous: ChainManifest, manifest: ChainManifest) -> str | None:
    if manifest.term < previous.term:
        return f"term {manifest.term} goes on after term {previous.term}"
    if manifest.term - previous.term != int(manifest.takeover):
        return "the term and the takeover do not agree"
    if manifest.writer != previous.writer and not manifest.takeover:
        return "another writer without a takeover"
    digests = manifest.previous_digest, previous.digest
    if all(digests) and digests[0] != digests[1]:
        return "its predecessor is another manifest"
    return None


def _misled(attempt: Attempt, standing: ChainManifest | None) -> str | None:
    """Find writers whose belief about an append differs from what stands in the chain."""
    own = standing is not None and standing.digest == attempt.digest
    if attempt.outcome is AppendOutcome.ACCEPTED and not own:
        return f"writer {attempt.writer} of term {attempt.term} believes that it stands there"
    if attempt.outcome is AppendOutcome.FENCED and own:
        return f"writer {attempt.writer} of term {attempt.term} is fenced by its own manifest"
    return None


def _left_over(history: RunHistory) -> Iterator[tuple[str, int | None, str]]:
    """Return where the warehouse is not the source in the end: (table, applied sequence, kind)."""
    newest = {commit.table: commit for commit in history.commits}
    for table, wanted in history.source.items():
        commit = newest.get(table)
        if commit is None:
            if wanted:
                yield table, None, "missing"
            continue
        if not commit.whole:
            continue
        yield from ((table, commit.applied_seq, kind) for kind in _kinds(wanted, commit, history))


def _kinds(wanted: tuple[Row, ...], commit: MergeCommit, history: RunHistory) -> Iterator[str]:
    found = {row.key: row for row in commit.rows}
    for row in wanted:
        there = found.pop(row.key, None)
        if there is None or there.ver is None:
            yield "missing" if there is None else "value"
        elif there.ver != row.ver:
            yield "older" if row.ver is None or there.ver < row.ver else "newer"
        elif there.digest != row.digest or not _same_shape(there, row):
            yield "value"
    if found:
        lived = {
            entry.key
            for transaction in history.transactions
            for entry in transaction.entries
            if entry.table == commit.table
        }
        for key in found:
            yield "gone" if key in lived else "unknown"


def _same_shape(one: Row, other: Row) -> bool:
    return None in (one.shape, other.shape) or one.shape == other.shape


def _require_sound(history: RunHistory) -> None:
    """Require that the source's rows in the end are those of its ledger."""
    if not history.ordered and any(
        entry.op == "t" for transaction in history.transactions for entry in transaction.entries
    ):
        raise InvariantBroken("a ledger with truncates needs its commit order")
    rows: dict[str, dict[Key, LedgerEntry]] = {table: {} for table in history.source}
    versions: dict[tuple[str, Key], int] = {}
    for transaction in history.transactions:
        for entry in transaction.entries:
            if entry.table not in rows:
                continue
            if entry.op == "t":
                rows[entry.table].clear()
            elif versions.get((entry.table, entry.key), 0) < entry.ver:
                versions[entry.table, entry.key] = entry.ver
                if entry.op == "d":
                    rows[entry.table].pop(entry.key, None)
                else:
                    rows[entry.table][entry.key] = entry
    for table, found in history.source.items():
        wanted = {(key, entry.ver, entry.digest) for key, entry in rows[table].items()}
        if wanted != {(row.key, row.ver, row.digest) for row in found}:
            raise InvariantBroken(f"the source's rows of {table} are not what its ledger says")
