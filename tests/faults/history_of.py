"""The history of a real run under `LedgerWork`, for the same oracle that judges simulated ones.

The chain is read manifest by manifest, and what is wrong with it is the oracle's to say. The merges
are those of `Warehouse`, at manifests that a seed chooses; or of a real warehouse, whose rows the
caller hands in.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.parquet as pq

from devtools.simulation.fold_model import Change
from devtools.simulation.fold_model import Key as FoldKey
from devtools.simulation.history import (
    ChainEvent,
    ChainManifest,
    Digest,
    Key,
    LedgerEntry,
    LedgerTransaction,
    Liveness,
    MergeCommit,
    Remerge,
    Row,
    RunHistory,
)
from devtools.simulation.reported import reported
from tests.faults.warehouse import Target, Warehouse
from tests.fixtures.source_text import column_texts
from tests.support.ledger import (
    INITIAL_TXID,
    TABLES,
    TOTAL,
    LedgerWork,
    digest_of,
    key_of,
    key_text,
    md5,
    under_full_names,
)
from tideline.contract.errors import CorruptData
from tideline.contract.manifest import Manifest, Part, digest
from tideline.contract.open_state import OpenState, TableState
from tideline.contract.plan import TablePlan
from tideline.contract.position import PostgresPosition
from tideline.contract.schema import TableSchema
from tideline.settings import Settings
from tideline.store.chain import Chain
from tideline.store.objects import ObjectStore, open_store

Values = Mapping[str, str | None]
Texts = tuple[str | None, ...]
_DUMPED_TX = 0
BANK = "accounts"


@dataclass(slots=True)
class ChainRead:
    """All that the chain of a run holds; ``changes`` and ``events`` by the key of their part."""

    chain: Chain
    manifests: list[Manifest] = field(default_factory=list)
    digests: list[str] = field(default_factory=list)
    changes: dict[str, list[Change]] = field(default_factory=dict)
    events: dict[str, list[ChainEvent]] = field(default_factory=dict)
    schemas: dict[str, TableSchema] = field(default_factory=dict)

    def state_at(self, number: int) -> OpenState:
        entry = self.chain.read(number)
        return OpenState() if entry is None else self.chain.open_state(entry)

    @property
    def tail(self) -> int:
        return self.manifests[-1].manifest_number

    def schema_of(self, table: str) -> TableSchema:
        """As it is at the chain's end."""
        fingerprint = self.state_at(self.tail).tables[table].schema
        if fingerprint is None:
            raise CorruptData(f"the chain has no schema of {table}")
        return self.schemas[fingerprint]


@dataclass(frozen=True, slots=True)
class ChunkEvent:
    """A run's history."""

    history: RunHistory

    def pending(self) -> dict[str, tuple[tuple[str, ...], ...]]:
        """The keys, by table, of rows that in the end lack a value, which is to be read again."""
        newest = {commit.table: commit for commit in self.history.commits}
        found = {}
        for name, commit in newest.items():
            keys = [row.key for row in commit.rows if row.digest is None]
            if keys:
                found[name] = tuple(tuple(str(part) for part in key) for key in keys)
        return found

    @property
    def changes(self) -> int:
        """Committed changes, those of the ledger's own rows left out."""
        return sum(
            not entry.table.endswith(".ledger")
            for transaction in self.history.transactions
            for entry in transaction.entries
        )


def tell(
    settings: Settings,
    work: LedgerWork,
    *,
    prefix: str,
    seed: int = 0,
    merges: int = 12,
    liveness: Liveness | None = None,
    commits: Sequence[MergeCommit] = (),
) -> ChunkEvent:
    """The history of the run of ``work``, which has ended, with all of it captured.

    ``prefix``: what the tables' names in the chain begin with. ``commits``: real ones, which are
    judged in place of those made here. CorruptData for a part that is not what its manifest says.
    """
    names = {f"{prefix}{name}": name for name in TABLES}
    chain = read_chain(settings, names)
    cuts = _cuts(chain.tail, random.Random(seed), merges)
    warehouse = Warehouse(chain.manifests, chain.schemas, chain.changes)
    modelled = [c for cut in cuts for c in _merged(warehouse, chain, cut, names)]
    merged = {name: short for name, short in names.items() if name not in _ledgers(names)}
    at_once = Warehouse(chain.manifests, chain.schemas, chain.changes)
    at_once.merge(chain.tail, chain.state_at(chain.tail), but=_ledgers(names))
    history = RunHistory(
        transactions=_transactions(work, names),
        manifests=tuple(_manifests(chain)),
        rolled_back=under_full_names(work.rolled_back, _full(names)),
        commits=tuple(commits) or tuple(modelled),
        source={name: _source_rows(work, chain, name, names[name]) for name in merged},
        totals={f"{prefix}{BANK}": TOTAL},
        remerges=tuple(_remerges(warehouse, at_once, merged)),
        liveness=liveness,
        ordered=False,
    )
    return ChunkEvent(history)


def read_chain(settings: Settings, names: Mapping[str, str]) -> ChainRead:
    """The whole chain. ``names``: the ledger's short names of tables, by their full ones."""
    store = open_store(settings.store)
    found = ChainRead(Chain(store, settings.pipeline))
    for number in itertools.count(1):
        entry = found.chain.read(number)
        if entry is None:
            return found
        found.manifests.append(entry.manifest)
        found.digests.append(entry.digest)
        used = {part.schema for part in entry.manifest.parts}
        used |= {event.after for event in entry.manifest.schema_events}
        for fingerprint in used - found.schemas.keys():
            found.schemas[fingerprint] = found.chain.read_schema(fingerprint)
        for part in entry.manifest.parts:
            rows = _read_part(store, part)
            schema, short = found.schemas[part.schema], names.get(part.table, part.table)
            changes, events = _changes(rows, schema, short)
            found.changes[part.key], found.events[part.key] = changes, events
    raise AssertionError("the chain has no end")


def _read_part(store: ObjectStore, part: Part) -> pa.Table:
    data = store.get(part.key)
    if data is None or (len(data), digest(data)) != (part.bytes, part.digest):
        raise CorruptData(f"{part.key} is not what its manifest says")
    return pq.read_table(pa.BufferReader(data))


def _changes(
    table: pa.Table, schema: TableSchema, short: str
) -> tuple[list[Change], list[ChainEvent]]:
    """The rows of a part: as the fold takes them, and as the oracle does."""
    if not table.num_rows:
        return [], []
    batch = table.combine_chunks().to_batches()[0]
    names = set(batch.schema.names)
    texts = {c.name: column_texts(batch, c.name, c.logical) for c in schema.columns}
    keys: list[Texts] = list(zip(*(texts[name] for name in schema.key), strict=True))
    befores: list[Texts | None] = [None] * len(keys)
    if f"_tl_before_{schema.key[0]}" in names:
        columns = [
            column_texts(batch, f"_tl_before_{name}", schema.column(name).logical)
            for name in schema.key
        ]
        befores = [None if key[0] is None else key for key in zip(*columns, strict=True)]
    absent = batch.column("_tl_unchanged").to_pylist() if "_tl_unchanged" in names else None
    values = [name for name in schema.column_names if name not in schema.key]
    seqs, ops, txs = (batch.column(f"_tl_{name}").to_pylist() for name in ("seq", "op", "tx"))
    changes, events = [], []
    for at, (seq, op, key) in enumerate(zip(seqs, ops, keys, strict=True)):
        left_out = tuple(absent[at] or ()) if absent else ()
        carried: dict[str, str | None] = {}
        if op != "d":
            carried = {name: texts[name][at] for name in values if name not in left_out}
        stored = {name: (None, text) for name, text in carried.items()}
        changes.append(Change(seq, op, key, stored, befores[at]))
        ver, digest_ = version_of(short, key, carried)
        dumped = op == "r" or (op == "d" and txs[at] == _DUMPED_TX)
        before = None if befores[at] is None else key_of_texts(befores[at] or ())
        events.append(
            ChainEvent(
                seq, schema.table, key_of_texts(key), op, ver, digest_, before, left_out, dumped
            )
        )
    return changes, events


def version_of(short: str, key: FoldKey, values: Values) -> tuple[int | None, Digest | None]:
    """The version that a row's texts are of, and their digest; None for what they do not say.

    A row of the ledger itself has one version, and a digest of all its columns.
    """
    if short == "ledger":
        return (1, _ledger_digest(values.values())) if values else (None, None)
    if short not in TABLES or "ver" not in values:
        return None, None
    ver, v = int(values["ver"] or 0), values.get("v") or ""
    extra = {"accounts": "balance", "items": "doc"}.get(short)
    if extra is None:
        return ver, digest_of(short, key_text(key_of_texts(key)), ver, v, None)
    if extra not in values:
        return ver, None
    held = values[extra]
    if extra == "doc" and held is not None:
        held = md5(held)
    return ver, digest_of(short, key_text(key_of_texts(key)), ver, v, held)


def _ledger_digest(values: Iterable[object]) -> str:
    return md5("|".join("" if value is None else str(value) for value in values))


def key_of_texts(key: FoldKey) -> Key:
    return tuple(str(text) for text in key)


def _full(names: Mapping[str, str]) -> dict[str, str]:
    return {short: full for full, short in names.items()}


def _transactions(work: LedgerWork, names: Mapping[str, str]) -> tuple[LedgerTransaction, ...]:
    """What the source's own ledger says, a row of the ledger being a change as well."""
    full = _full(names)
    rows = work.database.rows(
        "SELECT txid, ord, tbl, k, ver, op, digest FROM ledger ORDER BY txid, ord"
    )
    found = []
    for txid, group in itertools.groupby(rows, key=lambda row: int(row[0])):
        entries: list[LedgerEntry] = []
        logged = txid != INITIAL_TXID
        for _, order, table, key, ver, op, digest_ in group:
            entries.append(LedgerEntry(full[table], key_of(key), int(ver), op, digest_, logged))
            own = _ledger_digest((table, key, ver, op, digest_))
            entries.append(
                LedgerEntry(full["ledger"], (str(txid), str(order)), 1, "c", own, logged)
            )
        found.append(LedgerTransaction(txid, tuple(entries)))
    return tuple(found)


def _manifests(chain: ChainRead) -> Iterable[ChainManifest]:
    for manifest, own in zip(chain.manifests, chain.digests, strict=True):
        events = [event for part in manifest.parts for event in chain.events[part.key]]
        position = manifest.position
        lsn = position.end_lsn if isinstance(position, PostgresPosition) else None
        yield reported(manifest, own, events, position=lsn)


def _cuts(tail: int, random_: random.Random, merges: int) -> list[int]:
    earlier = random_.sample(range(1, tail), min(merges, tail - 1)) if tail > 1 else []
    return [*sorted(earlier), tail]


def _merged(
    warehouse: Warehouse, chain: ChainRead, cut: int, names: Mapping[str, str]
) -> Iterable[MergeCommit]:
    """Each table that a merge up to manifest ``cut`` changed."""
    state = chain.state_at(cut)
    for plan in warehouse.merge(cut, state, but=_ledgers(names)):
        target = warehouse.targets[plan.table]
        yield _commit(target, plan, names[plan.table], state.tables[plan.table])


def _ledgers(names: Mapping[str, str]) -> set[str]:
    """The ledger's own rows are many and never change: that each is in the log once is enough."""
    return {name for name, short in names.items() if short == "ledger"}


def _commit(target: Target, plan: TablePlan, short: str, state: TableState) -> MergeCommit:
    rows = tuple(_row(short, key, target) for key in target.rows)
    balances = (row.values["balance"] for row in target.rows.values()) if short == BANK else ()
    return commit_of(plan, state, rows, balances=balances)


def commit_of(
    plan: TablePlan, state: TableState, rows: tuple[Row, ...], *, balances: Iterable[object] = ()
) -> MergeCommit:
    """What a table is after the merge of ``plan``; ``state`` is the chain's then, ``balances``
    those of the bank, if it is one."""
    whole = state.complete_seq is not None and plan.to_seq >= state.complete_seq
    total = sum(int(str(balance)) for balance in balances)
    return MergeCommit(
        table=plan.table,
        from_manifest=0 if plan.create else plan.from_manifest,
        to_manifest=plan.to_manifest,
        applied_seq=plan.to_seq,
        rows=rows,
        whole=whole,
        generation=plan.generation,
        starts_seq=state.generation_seq if state.generation else 0,
        total=total if whole and plan.table.endswith(f".{BANK}") else None,
    )


def _row(short: str, key: FoldKey, target: Target) -> Row:
    stored = target.rows[key]
    values = {name: text for name, text in stored.values.items() if name not in stored.pending}
    return Row(key_of_texts(key), *version_of(short, key, values))


def _source_rows(work: LedgerWork, chain: ChainRead, name: str, short: str) -> tuple[Row, ...]:
    schema = chain.schema_of(name)
    return tuple(rows_of(short, schema, work.database.texts(schema)))


def rows_of(short: str, schema: TableSchema, rows: Iterable[Sequence[str | None]]) -> Iterable[Row]:
    """Rows of texts in column order, as the oracle takes them."""
    for texts in rows:
        values = dict(zip(schema.column_names, texts, strict=True))
        key = tuple(values.pop(name) for name in schema.key)
        yield Row(key_of_texts(key), *version_of(short, key, values))


def _remerges(
    warehouse: Warehouse, at_once: Warehouse, names: Mapping[str, str]
) -> Iterable[Remerge]:
    """One merge of everything, against the many: the same rows under the same sequences. A value
    that is pending on either side is not compared."""
    for name, short in names.items():
        many, one = warehouse.targets[name], at_once.targets[name]
        either = {key for target in (many, one) for key, row in target.rows.items() if row.pending}
        yield Remerge(
            name, many.seq, _table_digest(short, many, either), _table_digest(short, one, either)
        )


def _table_digest(short: str, target: Target, but: set[FoldKey]) -> str:
    lines = []
    for key, stored in target.rows.items():
        ver, digest_ = version_of(short, key, stored.values)
        shown = "" if key in but else digest_
        lines.append(f"{key}|{stored.seq}|{ver}|{shown}")
    return md5("\n".join(sorted(lines)))
