"""Verification plans: which chunks, which version, which changes; and how long a result holds."""

from __future__ import annotations

import json
import shutil
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from tests.fixtures.parts import Emptied, History, Row, Shaped, schema_of
from tests.unit.planner.test_planner import apply
from tideline.contract import layout
from tideline.contract.errors import CorruptData
from tideline.contract.manifest import ManifestKind, VerificationChunk
from tideline.contract.open_state import OpenRequest, TableCondition, TableDump
from tideline.contract.request import Answer, DumpRequest, KeyRange, RequestState
from tideline.contract.schema import parse_table
from tideline.contract.steps import ColumnStep, StepKind
from tideline.contract.verification import Scope, TableResult, Verification, VerificationOutcome
from tideline.planner.garbage import Fate, Garbage
from tideline.planner.verified import last_verification, read_verification, store_verification
from tideline.planner.verifying import Planned, plan_verification, stuck
from tideline.settings.tables import OnChange, TableSettings
from tideline.store.objects import open_store

T = "public.t"
SCHEMA = schema_of(T, {"id": "int32", "v": "string"}, ["id"])
EMPTY = ("parts", "schema_events", "truncates", "deletes_before", "accepted", "verification_chunks")
VERIFY = DumpRequest("v", (T,), purpose="verify")


@pytest.fixture
def history(tmp_path: Path) -> History:
    """Manifest 1: the schema; 2: row 1; 3: row 2."""
    found = History(tmp_path)
    found.commit(Shaped(SCHEMA))
    found.commit(row(1))
    found.commit(row(2))
    return found


def row(key: int, op: str = "c", **more: Any) -> Row:
    return Row(T, op, {"id": key, "v": "x"}, **more)


def add(history: History, **changes: Any) -> int:
    """Append a manifest without changes of tables; its number."""
    previous = history.chain.tail()
    assert previous is not None
    manifest = msgspec.structs.replace(
        previous.manifest,
        manifest_number=previous.manifest.manifest_number + 1,
        previous_digest=previous.digest,
        kind=ManifestKind.SEGMENT,
        first_seq=previous.manifest.last_seq + 1,
        **{**dict.fromkeys(EMPTY, ()), **changes},
    )
    history._link = history.chain.append(manifest)
    return manifest.manifest_number


def accept(history: History, request: DumpRequest = VERIFY) -> int:
    tail = history.chain.tail()
    assert tail is not None
    state = tail.manifest.state
    assert state is not None
    item = OpenRequest(request, (TableDump(T, first_manifest=tail.manifest.manifest_number),))
    open_ = msgspec.structs.replace(state, requests=(item,))
    return add(history, accepted=(request.request_id,), state=open_)


def read(history: History, *chunks: int, low: int | None = None, complete: bool = True) -> int:
    """A manifest with chunks, the last of which ends the table if ``complete``."""
    seq = history.last_seq
    read = tuple(
        VerificationChunk(
            "v",
            T,
            SCHEMA.fingerprint,
            chunk,
            low_seq=seq if low is None else low,
            high_seq=seq,
            after_key=(str(chunk * 10),) if chunk else None,
            last_key=(str(chunk * 10 + 10),),
            complete=complete and chunk == chunks[-1],
        )
        for chunk in chunks
    )
    tail = history.chain.tail()
    assert tail is not None
    assert tail.manifest.state is not None
    done = msgspec.structs.replace(tail.manifest.state, requests=())
    return add(history, verification_chunks=read, state=done)


def end(history: History, chunks: tuple[VerificationChunk, ...], **changes: Any) -> int:
    """A manifest in which the request ends, with its last chunks."""
    tail = history.chain.tail()
    assert tail is not None
    assert tail.manifest.state is not None
    number = tail.manifest.manifest_number + 1
    answer = Answer("v", RequestState.DONE, manifest_number=number)
    done = msgspec.structs.replace(tail.manifest.state, requests=(), recent=(answer,))
    return add(history, verification_chunks=chunks, state=done, **changes)


def planned(history: History, finished_in: int, name: str = "v.1", **more: Any) -> Planned:
    return plan_verification(
        history.settings, "v", verify_id=name, finished_in=finished_in, tables=[T], **more
    )


def test_it_waits_for_what_came_before_its_last_high_mark(history: History) -> None:
    apply(history, 2)
    accept(history)
    finished = read(history, 0)
    history.commit(row(3))
    assert planned(history, finished).waiting == (T,)
    apply(history, 3)
    plan = planned(history, finished).plan
    [table] = plan.tables
    # Nothing of the table came between: what is applied counts as far as the chunk's manifest.
    assert (table.number, table.applied, table.applied_seq) == (3, finished, 3)
    assert table.touched == ()
    assert (table.scope, table.target_version) == (Scope.WHOLE, 2)
    assert planned(history, finished, name="v.1").plan == plan


def test_last_call_names_what_is_not_merged(history: History) -> None:
    accept(history)
    finished = read(history, 0)
    plan = planned(history, finished, last_call=True).plan
    assert plan.tables == ()
    assert "not merged" in plan.delayed[T]


def test_a_table_whose_merge_failed_is_held_back_with_the_error(history: History) -> None:
    accept(history)
    finished = read(history, 0)
    found = planned(history, finished, failed={T: "the disk is full", "public.u": "another"})
    assert found.waiting == ()
    assert dict(found.plan.delayed) == {
        T: f"it is not merged up to manifest {finished}: the disk is full"
    }


def test_changes_from_the_earliest_low_mark_on_are_set_aside(history: History) -> None:
    accept(history)
    read(history, 0, complete=False)  # Low mark at 3.
    history.commit(row(7, "u"), row(8, "r"))
    history.commit(row(9, "r"))
    finished = read(history, 1)
    last = history.commit(row(10, "d")).manifest_number
    history.commit(row(11))
    apply(history, last)
    [table] = planned(history, finished).plan.tables
    assert table.low_seq == 3
    assert [dict(part.operations) for part in table.touched] == [{"u": 1, "r": 1}, {"d": 1}]
    assert [chunk.chunk for chunk in table.chunks] == [0, 1]


def test_a_change_that_is_emitted_before_its_chunk_counts(history: History) -> None:
    """Between L and H the log goes on, in manifests of its own."""
    accept(history)
    low = history.last_seq
    for number in range(20, 24):
        history.commit(row(number))
    finished = read(history, 0, low=low)
    apply(history, finished)
    [table] = planned(history, finished).plan.tables
    assert [part.first_seq for part in table.touched] == [low + 1, low + 2, low + 3, low + 4]


@pytest.mark.parametrize(
    ("event", "reason"),
    [
        (Emptied(T), "truncated"),
        (Shaped(schema_of(T, {"id": "int32", "v": "string", "w": "string"}, ["id"])), "columns"),
    ],
)
def test_a_table_that_changed_as_a_whole_is_held(history: History, event: Any, reason: str) -> None:
    accept(history)
    finished = read(history, 0)
    last = history.commit(event).manifest_number
    apply(history, last)
    assert reason in planned(history, finished).plan.delayed[T]


def test_a_dump_that_healed_a_doubt_may_hold_what_no_change_tells(history: History) -> None:
    """Rows changed without changes in the log, and were dumped after they had been read."""
    accept(history)
    finished = read(history, 0)
    low = history.last_seq
    history.commit(states={T: {"condition": TableCondition.NEEDS_RESNAPSHOT, "since_seq": low}})
    healed = {T: {"condition": TableCondition.ACTIVE}}
    last = history.commit(row(1, "r"), deletes_before=[(T, low)], states=healed).manifest_number
    apply(history, last)
    assert "in doubt" in planned(history, finished).plan.delayed[T]


def test_a_dump_of_a_table_in_no_doubt_brings_nothing_new(history: History) -> None:
    accept(history)
    finished = read(history, 0)
    low = history.last_seq
    last = history.commit(row(1, "r"), deletes_before=[(T, low)]).manifest_number
    apply(history, last)
    [table] = planned(history, finished).plan.tables
    assert table.touched == ()


def test_a_blocked_table_is_held(history: History) -> None:
    accept(history)
    finished = read(history, 0)
    history.commit(
        states={T: {"condition": TableCondition.SCHEMA_BLOCKED, "reason": "another type"}}
    )
    apply(history, finished)
    assert planned(history, finished).plan.delayed == {T: "it is blocked: another type"}


def test_a_table_that_no_merge_brings_there_is_held_at_once(history: History) -> None:
    renamed = schema_of(T, {"id": "int32", "w": "string"}, ["id"])
    step = ColumnStep(StepKind.RENAME, "w", was="v")
    history.commit(Shaped(renamed, (step,)), Row(T, "c", {"id": 3, "w": "x"}))
    on_change = OnChange(rename="park")
    history.settings = history.settings.model_copy(
        update={"tables": {T: TableSettings(on_change=on_change)}}
    )
    accept(history)
    finished = read(history, 0)
    apply(history, 2)
    assert planned(history, finished).waiting == (T,)  # Up to the change it can be merged.
    assert stuck(history.settings, [T, "public.*"]) == {}
    apply(history, 3)
    assert list(stuck(history.settings, [T, "public.*"])) == [T]
    found = planned(history, finished)
    assert found.waiting == ()
    assert "'v' was renamed to 'w', and on_change.rename is park" in found.plan.delayed[T]


def test_a_chunk_that_is_missing_is_an_error(history: History) -> None:
    accept(history)
    read(history, 0, complete=False)
    finished = read(history, 2)
    apply(history, finished)
    with pytest.raises(CorruptData, match="lacks verification parts"):
        planned(history, finished)


def test_one_that_began_again_is_the_later_one(history: History) -> None:
    accept(history)
    read(history, 0, 1, 2, complete=False)
    history.commit(row(5))
    finished = read(history, 0, 1)
    apply(history, finished)
    [table] = planned(history, finished).plan.tables
    assert [(chunk.chunk, chunk.low_seq) for chunk in table.chunks] == [(0, 4), (1, 4)]


def test_the_range_is_the_requests(history: History) -> None:
    bounds = KeyRange(("1",), ("9",))
    accept(history, msgspec.structs.replace(VERIFY, key_range=bounds))
    finished = read(history, 0)
    apply(history, finished)
    [table] = planned(history, finished).plan.tables
    assert (table.scope, table.key_range) == (Scope.RANGE, bounds)


class TestKeptProofs:
    @pytest.fixture
    def compared(self, history: History) -> TableResult:
        apply(history, 3)
        version = DeltaTable(history.target(T).removeprefix("file://")).version()
        app = f"{history.settings.pipeline}/{history.incarnation}/{T}/0"
        return TableResult(
            T, VerificationOutcome.EQUAL, 3, 3, 5, target_version=version, app_id=app
        )

    def store(self, history: History, compared: TableResult, name: str = "v") -> None:
        result = Verification(name, "shop", history.incarnation, "v", (compared,))
        store_verification(history.settings, result)
        assert read_verification(history.settings, name) == result

    def verified(self, history: History) -> Any:
        tail = history.chain.tail()
        assert tail is not None
        assert tail.manifest.state is not None
        state = tail.manifest.state.tables[T]
        store = open_store(history.settings.store)
        found = last_verification(history.settings, store, tail.manifest, T, state)
        return None if found is None else found.through(state)

    def test_the_newest_counts(self, history: History, compared: TableResult) -> None:
        self.store(history, compared, "new")
        self.store(history, msgspec.structs.replace(compared, seq=2), "old")
        assert (self.verified(history).seq, self.verified(history).verify_id) == (3, "new")
        assert self.verified(history).invalid is None

    @pytest.mark.parametrize(
        "less",
        [
            {"outcome": VerificationOutcome.CHANGING},
            {"outcome": VerificationOutcome.DIFFERS},
            {"scope": Scope.SAMPLE},
            {"scope": Scope.RANGE},
            {"scope": Scope.KEYS},
            {"extra_sought": False},
            {"pending": 1},
        ],
    )
    def test_less_than_all_proves_nothing(
        self, history: History, compared: TableResult, less: Any
    ) -> None:
        self.store(history, msgspec.structs.replace(compared, **less))
        assert self.verified(history) is None

    def test_our_own_merges_leave_it(self, history: History, compared: TableResult) -> None:
        self.store(history, compared)
        number = history.commit(row(4)).manifest_number
        apply(history, number)
        assert self.verified(history).invalid is None

    def test_others_end_it_by_name(self, history: History, compared: TableResult) -> None:
        self.store(history, compared)
        path = history.target(T).removeprefix("file://")
        DeltaTable(path).optimize.compact()
        assert self.verified(history).invalid is None
        write_deltalake(path, pa.table({"id": pa.array([1], pa.int32())}), mode="append")
        assert self.verified(history).invalid.startswith("changed by others: version")
        assert "WRITE" in self.verified(history).invalid

    @pytest.mark.parametrize("operation", ["OPTIMIZE", "REORG", "VACUUM START", "VACUUM END"])
    def test_maintenance_leaves_it(
        self, history: History, compared: TableResult, operation: str
    ) -> None:
        """What Delta's Spark calls the commits of `tideline maintain`, which are not stamped."""
        self.store(history, compared)
        log = Path(history.target(T).removeprefix("file://")) / "_delta_log"
        version = max(int(path.stem) for path in log.glob("*.json")) + 1
        reported = {
            "commitInfo": {"timestamp": 0, "operation": operation, "operationParameters": {}}
        }
        (log / f"{version:020}.json").write_text(json.dumps(reported))
        assert self.verified(history).invalid is None

    def test_commits_that_cannot_be_looked_at_end_it(
        self, history: History, compared: TableResult, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        self.store(history, compared)
        path = history.target(T).removeprefix("file://")
        write_deltalake(path, pa.table({"id": pa.array([1], pa.int32())}), mode="append")
        DeltaTable(path).optimize.compact()
        monkeypatch.setattr("tideline.planner.verified.COMMITS_MAX", 1)
        assert "does not show who made" in self.verified(history).invalid

    def test_a_torn_commit_ends_it(self, history: History, compared: TableResult) -> None:
        """Which the checkpoint after it hides from readers of the table's newest version."""
        self.store(history, compared)
        path = history.target(T).removeprefix("file://")
        apply(history, history.commit(row(4)).manifest_number)
        version = DeltaTable(path).version()
        apply(history, history.commit(row(5)).manifest_number)
        DeltaTable(path).create_checkpoint()
        commit = Path(path) / "_delta_log" / f"{version:020}.json"
        commit.write_bytes(commit.read_bytes()[:-9])
        reported = self.verified(history).invalid
        assert f"version {version} in the log of a table cannot be read" in reported

    def test_a_restore_ends_it(self, history: History, compared: TableResult) -> None:
        self.store(history, compared)
        table = DeltaTable(history.target(T).removeprefix("file://"))
        table.restore(0)
        assert "RESTORE" in self.verified(history).invalid

    def test_a_restored_warehouse_ends_it(
        self, history: History, compared: TableResult, tmp_path: Path
    ) -> None:
        """Its log goes on from an older version, past the number of the one that was proven."""
        target = Path(history.target(T).removeprefix("file://"))
        backup = tmp_path / "backup"
        shutil.copytree(target, backup)
        apply(history, history.last_number)
        version = compared.target_version
        assert version is not None
        proven = msgspec.structs.replace(compared, target_version=version + 1)
        self.store(history, proven)
        assert self.verified(history).invalid is None
        shutil.rmtree(target)
        shutil.copytree(backup, target)
        assert "recreated" in self.verified(history).invalid
        for _ in range(3):
            apply(history, history.last_number)
        assert "another version" in self.verified(history).invalid

    def test_a_new_generation_ends_it(self, history: History, compared: TableResult) -> None:
        self.store(history, compared)
        history.commit(states={T: {"generation": 1}})
        assert self.verified(history).invalid == "the table was started or rebuilt"


class TestGarbage:
    """Verification parts go when they are old, and nobody is to compare them."""

    LATER = datetime.now(UTC) + timedelta(days=30)

    def part(self, history: History, number: int) -> str:
        key = layout.verification_part_key("shop", number, parse_table(T), SCHEMA.fingerprint, "n")
        open_store(history.settings.store).put(key, b"part")
        return key

    def collect(self, history: History, now: datetime) -> dict[Fate, int]:
        store = open_store(history.settings.store)
        return dict(Garbage(history.settings, store).collect(now).objects)

    def test_old_ones_go(self, history: History) -> None:
        key = self.part(history, 4)
        assert self.collect(history, datetime.now(UTC)) == {Fate.VERIFYING: 1}
        assert self.collect(history, self.LATER) == {Fate.VERIFIED: 1}
        assert not open_store(history.settings.store).exists(key)

    def test_not_while_the_request_is_open(self, history: History) -> None:
        self.part(history, accept(history))
        before = self.part(history, 3)
        found = self.collect(history, self.LATER)
        assert found == {Fate.VERIFYING: 1, Fate.VERIFIED: 1}
        assert not open_store(history.settings.store).exists(before)

    def test_not_while_it_is_to_be_planned(self, history: History) -> None:
        """It was read for longer than parts are kept, and is still being merged that far."""
        before = self.part(history, 3)
        key = self.part(history, accept(history))
        mark = history.last_seq
        chunk = VerificationChunk(
            "v", T, SCHEMA.fingerprint, 0, mark, mark, key=key, rows=1, complete=True
        )
        finished = end(history, (chunk,))
        add(history)
        after = self.part(history, history.last_number + 9)
        parts_days = history.settings.retention.model_copy(update={"parts_days": 1.0})
        old = history.settings.model_copy(update={"retention": parts_days})
        store = open_store(old.store)
        soon = datetime.now(UTC) + timedelta(days=2)
        assert Garbage(old, store).collect(soon).objects == {Fate.VERIFYING: 1, Fate.VERIFIED: 2}
        assert [store.exists(one) for one in (before, key, after)] == [False, True, False]
        apply(history, finished)
        plan = planned(history, finished).plan
        assert [one.key for one in plan.tables[0].chunks] == [key]
        assert Garbage(old, store).collect(soon).objects == {Fate.VERIFYING: 1}
        store_verification(old, Verification(plan.verify_id, "shop", plan.incarnation, "v", ()))
        assert Garbage(old, store).collect(soon).objects == {Fate.VERIFIED: 1}

    def test_one_that_nobody_has_planned_for_long_goes(self, history: History) -> None:
        key = self.part(history, accept(history))
        mark = history.last_seq
        chunk = VerificationChunk(
            "v", T, SCHEMA.fingerprint, 0, mark, mark, key=key, rows=1, complete=True
        )
        written = datetime.now(UTC) - timedelta(days=8)
        end(history, (chunk,), written_at_us=round(written.timestamp() * 1_000_000))
        days = timedelta(days=history.settings.retention.parts_days + 0.1)
        assert self.collect(history, datetime.now(UTC) + days) == {Fate.VERIFIED: 1}

    def test_not_while_a_plan_has_no_result(self, history: History) -> None:
        accept(history)
        key = self.part(history, 5)
        seq = history.last_seq
        chunk = VerificationChunk(
            "v", T, SCHEMA.fingerprint, 0, seq, seq, key=key, rows=1, complete=True
        )
        tail = history.chain.tail()
        assert tail is not None
        assert tail.manifest.state is not None
        done = msgspec.structs.replace(tail.manifest.state, requests=())
        finished = add(history, verification_chunks=(chunk,), state=done)
        apply(history, finished)
        plan = planned(history, finished).plan
        soon = datetime.now(UTC) + timedelta(days=history.settings.retention.plans_days - 1)
        old = history.settings.model_copy(
            update={"retention": history.settings.retention.model_copy(update={"parts_days": 1.0})}
        )
        store = open_store(old.store)
        assert Garbage(old, store).collect(soon).objects == {Fate.VERIFYING: 1}
        result = Verification(plan.verify_id, "shop", plan.incarnation, "v", ())
        store_verification(old, result)
        assert Garbage(old, store).collect(soon).objects == {Fate.VERIFIED: 1}
