"""One run's history: what was written at the source, and what chain and warehouse hold of it.

Plain values that any rig can fill in, the simulator as well as real servers; `oracle.check` judges
them. The ledger has one `LedgerEntry` per change of a key, written with the change in the same
transaction. ``ver`` counts the changes of a key: 1, 2, 3 … over all its lives, its deletions
included, without a gap; a transaction that rolls back gives its versions back, and the next one
takes them again under another digest. So each key's order is known without a clock.

A change that moves a row to another key is two entries, a ``d`` of the old key and a ``c`` of the
new one. A truncate is one entry of op ``t`` with the key ``()``; it takes no version of any row.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

Key = tuple[str | int, ...]
Digest = str | int
"""The digest of a row's canonical text, ``ver`` included; other rows and other versions have other
ones."""


@dataclass(frozen=True, slots=True)
class LedgerEntry:
    """One change of one key. ``op``: ``c`` insert, ``u`` update, ``d`` delete, ``t`` truncate.

    ``digest`` is of the row after the change, None when there is none. ``logged``: the change is
    one that the chain must have as an event; False for what was committed before capture began,
    while the table was quarantined, or without row events.
    """

    table: str
    key: Key
    ver: int
    op: str
    digest: Digest | None = None
    logged: bool = True


@dataclass(frozen=True, slots=True)
class LedgerTransaction:
    """A committed transaction; its entries in the order of its statements."""

    txid: int
    entries: tuple[LedgerEntry, ...]


@dataclass(frozen=True, slots=True)
class ChainEvent:
    """One row of a part. ``op`` as in parts: ``c``, ``u``, ``d``, and ``r`` for a dump's row.

    ``ver`` and ``digest`` are None where the row does not carry them: in deletes, and where
    ``unchanged`` names columns without a value (then ``ver`` may stand without ``digest``).
    ``before_key`` is the key that the change moved the row from. ``dumped``: it is a dump's, as
    every ``r`` is, and the deletes of keys that the source no longer has. ``log_position`` is its
    position in the source's log (position and index), if that is known.
    """

    seq: int
    table: str
    key: Key
    op: str
    ver: int | None = None
    digest: Digest | None = None
    before_key: Key | None = None
    unchanged: tuple[str, ...] = ()
    dumped: bool = False
    log_position: Hashable | None = None


@dataclass(frozen=True, slots=True)
class TableSeq:
    """A truncate or a floor of ``table`` at ``seq``."""

    table: str
    seq: int


@dataclass(frozen=True, slots=True)
class ChainManifest:
    """A manifest that readers of the chain accept, with the rows of all its parts.

    ``takeover``: its writer took the chain over with it. ``others`` are the sequences of its schema
    events. ``position`` is where the source's log continues after it, if positions are an order.
    ``through_us``: the time through which it claims to be complete; ``lacks_us``: when the first
    transaction that it lacks was in the log. None: that is not known.
    """

    number: int
    term: int
    writer: str
    first_seq: int
    last_seq: int
    digest: str = ""
    previous_digest: str = ""
    takeover: bool = False
    position: int | None = None
    events: tuple[ChainEvent, ...] = ()
    truncates: tuple[TableSeq, ...] = ()
    deletes_before: tuple[TableSeq, ...] = ()
    others: tuple[int, ...] = ()
    through_us: int | None = None
    lacks_us: int | None = None


class AppendOutcome(StrEnum):
    """The outcome of an append, as its writer learned it."""

    ACCEPTED = "accepted"
    FENCED = "fenced"
    UNKNOWN = "unknown"
    """The writer died, or gave up, before it knew."""


@dataclass(frozen=True, slots=True)
class Attempt:
    """A manifest that a writer tried to append, forks included."""

    number: int
    term: int
    writer: str
    digest: str
    outcome: AppendOutcome


@dataclass(frozen=True, slots=True)
class Row:
    """A row of the warehouse or of the source.

    ``digest`` None: a value of it is still pending. ``shape``: all that it holds, by the columns'
    names at that time; None: that is not known.
    """

    key: Key
    ver: int | None
    digest: Digest | None
    shape: Digest | None = None


@dataclass(frozen=True, slots=True)
class MergeCommit:
    """A warehouse table right after a merge of what comes after ``from_manifest``, up to
    ``to_manifest``, committed.

    ``applied_seq`` is the last sequence of ``to_manifest``. ``rows`` is all of the table, doubles
    included. ``whole``: a dump of all of it is applied, so that no row of the source may be
    missing. A new ``generation`` restarts the table, with what the chain has above ``starts_seq``.
    ``total`` is the sum over a bank's table, where the source's has the same at every commit.
    """

    table: str
    from_manifest: int
    to_manifest: int
    applied_seq: int
    rows: tuple[Row, ...]
    whole: bool = True
    generation: int = 0
    starts_seq: int = 0
    total: int | None = None


@dataclass(frozen=True, slots=True)
class Remerge:
    """The same segments merged once more in another way: repeated, or cut into other plans.

    ``expected`` and ``found`` are digests of the whole table.
    """

    table: str
    applied_seq: int
    expected: Digest
    found: Digest


@dataclass(frozen=True, slots=True)
class Liveness:
    """The progress of a run after its last fault; moments in seconds of the run's clock.

    ``heartbeat_s``: when a heartbeat of the source that is younger than the last fault reached the
    warehouse, None for never. ``unended`` are the ids of requests that were accepted and have ended
    in no recorded state after ``bound_s`` more.
    """

    faults_ended_s: float
    bound_s: float
    heartbeat_s: float | None
    unended: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class RunHistory:
    """The whole history of one run.

    ``transactions``: every committed one; in commit order if ``ordered`` (needed only for
    truncates). ``rolled_back``: what work that was undone had written, savepoints included.
    ``manifests`` in the order in which a reader meets them. ``commits``: in the order they were
    made. ``source``: the rows of each table in the end. ``settled``: everything captured is merged,
    so that the newest commit of each table must equal the source. ``totals``: what `MergeCommit`'s
    must be.
    """

    transactions: tuple[LedgerTransaction, ...]
    manifests: tuple[ChainManifest, ...]
    rolled_back: tuple[LedgerEntry, ...] = ()
    attempts: tuple[Attempt, ...] = ()
    commits: tuple[MergeCommit, ...] = ()
    source: Mapping[str, tuple[Row, ...]] = field(default_factory=dict)
    totals: Mapping[str, int] = field(default_factory=dict)
    remerges: tuple[Remerge, ...] = ()
    liveness: Liveness | None = None
    settled: bool = True
    ordered: bool = True


@dataclass(frozen=True, slots=True)
class Violation:
    """A promise that did not hold. ``check`` is the letter of one of the oracle's checks.

    ``seq`` is where in the chain, None where the chain has nothing of it. ``words`` name
    transactions and manifests by number, and no value of a row.
    """

    check: str
    table: str
    seq: int | None
    words: str

    def __str__(self) -> str:
        where = "" if self.seq is None else f" at sequence {self.seq}"
        return f"{self.check} {self.table}{where}: {self.words}"
