"""Garbage: each condition alone keeps what someone still needs; what is left can be rebuilt."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random
from typing import Any

import msgspec
import pytest
from deltalake import DeltaTable

from tests.fixtures.blocks import PLAIN, PLAIN_SCHEMA, TEN, roll_up, store_of
from tests.fixtures.parts import Event, History, Logged, Row, Shaped
from tests.spark.random_source import SCHEMA as SHARDS
from tests.spark.random_source import TABLE, RandomSource, interleave, truth
from tests.unit.planner.test_blocks import folded
from tests.unit.planner.test_planner import apply
from tideline.contract import layout
from tideline.contract.errors import CorruptData, Unavailable
from tideline.contract.manifest import Manifest, Part
from tideline.contract.plan import Plan
from tideline.contract.publishing import ChainPosition, PublisherEntry
from tideline.contract.receipt import Outcome, Receipt, TableReceipt, encode_receipt
from tideline.planner.consumers import (
    known_consumers,
    register_publisher,
    register_warehouse,
)
from tideline.planner.garbage import Fate, Found, Garbage
from tideline.store.objects import ObjectStore
from tideline.store.publisher_log import PublisherLog

pytestmark = pytest.mark.usefixtures("blocks_of_ten")

LATER = datetime.now(UTC) + timedelta(days=30)


def row(key: int, op: str = "c") -> Row:
    return Row(PLAIN, op, {"id": key, "v": f"v{key}"})


class Case:
    """A history in three blocks and a bit: old rows, a full dump, newer rows; all applied."""

    def __init__(self, root: Path, *, dumped: bool = True) -> None:
        self.history = History(root)
        self.history.commit(Shaped(PLAIN_SCHEMA))
        for number in range(2, 9):
            self.history.commit(row(number))
        self.low = self.history.last_seq
        for number in range(2, 9):
            self.history.commit(row(number, "r"))
        self.history.commit(deletes_before=[(PLAIN, self.low)] if dumped else [])
        for number in range(17, 35):
            self.history.commit(row(number))
        register_warehouse(self.history.settings, self.store)
        roll_up(self.history)
        self.old = {p.key for p in self.parts if p.last_seq <= self.low}
        assert len(self.old) == 7

    @property
    def store(self) -> ObjectStore:
        return store_of(self.history)

    @property
    def parts(self) -> list[Part]:
        entries = self.history.chain.entries(1, self.history.last_number)
        return [part for entry in entries for part in entry.manifest.parts]

    def objects(self) -> set[str]:
        return set(self.store.list("shop"))

    def collect(self, now: datetime = LATER, **options: Any) -> Found:
        return Garbage(self.history.settings, self.store).collect(now, **options)

    def removed(self, now: datetime = LATER, **options: Any) -> set[str]:
        before = self.objects()
        self.collect(now, **options)
        return before - self.objects()

    def missing(self, plan: Plan) -> list[str]:
        """What the plan names and is not there any more."""
        there = self.objects()
        return [p.key for table in plan.tables for p in table.parts if p.key not in there]


@pytest.fixture
def case(tmp_path: Path) -> Case:
    made = Case(tmp_path)
    apply(made.history, 34, PLAIN)
    return made


def test_what_nobody_needs_is_removed_and_nothing_else(case: Case) -> None:
    found = case.collect(dry_run=True)
    assert found.objects[Fate.UNNEEDED] == 7
    assert found.bytes[Fate.UNNEEDED] == sum(p.bytes for p in case.parts if p.key in case.old)
    assert case.removed() == case.old
    assert case.removed() == set()
    assert case.missing(case.history.plan()) == []


def test_a_dry_run_removes_nothing(case: Case) -> None:
    assert case.removed(dry_run=True) == set()


def test_manifests_blocks_and_schemas_stay(tmp_path: Path) -> None:
    """Whatever else goes: here every part does, because a dump of an empty table came last."""
    case = Case(tmp_path)
    history = case.history
    for delete_before in ([], [(PLAIN, history.last_seq)]):
        history.commit(deletes_before=delete_before)
    for _ in range(10):
        history.commit()
    roll_up(history)
    apply(history, history.last_number, PLAIN)
    verified = {key for key in case.objects() if key.endswith(".json")}
    case.collect()
    assert case.objects() == verified


def test_what_is_not_applied_stays(tmp_path: Path) -> None:
    case = Case(tmp_path)
    apply(case.history, 5, PLAIN)
    assert case.removed() == {p.key for p in case.parts if p.last_seq <= 5}
    assert case.missing(case.history.plan()) == []


def test_with_no_target_nothing_is_applied(tmp_path: Path) -> None:
    case = Case(tmp_path)
    assert case.removed() == set()


def test_with_no_consumer_nothing_is_applied(case: Case) -> None:
    for key in case.store.list(layout.consumers_prefix("shop")):
        case.store.delete(key)
    assert known_consumers(case.history.settings, case.store) == []
    assert case.removed() == set()


def test_every_consumer_must_have_applied_it(case: Case, tmp_path: Path) -> None:
    url = (tmp_path / "second").as_uri()
    warehouse = case.history.settings.warehouse.model_copy(update={"url": url})
    second = case.history.settings.model_copy(update={"warehouse": warehouse})
    register_warehouse(second, case.store)
    assert len(known_consumers(case.history.settings, case.store)) == 2
    assert case.removed() == set()
    shutil.copytree(tmp_path / "warehouse", tmp_path / "second")
    assert case.removed() == case.old


def test_what_a_publisher_has_not_published_stays(case: Case) -> None:
    settings = case.history.settings
    register_publisher(settings, case.store, "events")
    register_publisher(settings, case.store, "events")
    assert "the publisher events" in [one.name for one in known_consumers(settings, case.store)]
    assert case.removed() == set()
    log = PublisherLog(case.store, "shop", "events")
    for number, at in enumerate((5, 34), 1):
        position = ChainPosition("one", at, at)
        log.append(PublisherEntry("events", number, "a", position, 0))
        case.collect()
        gone = case.old - case.objects()
        assert gone == {p.key for p in case.parts if p.key in case.old and p.last_seq <= at}


def test_messages_stay_until_every_publisher_is_behind_them(tmp_path: Path) -> None:
    history = History(tmp_path)
    history.commit(Shaped(PLAIN_SCHEMA))
    for number in range(2, 33):
        history.commit(Logged("outbox", b"{}"), row(number))
    register_warehouse(history.settings, store_of(history))
    roll_up(history)
    store = store_of(history)
    entries = history.chain.entries(1, history.last_number)
    messages = {
        p.key: e.manifest.manifest_number for e in entries for p in e.manifest.logged_messages
    }

    def left() -> set[str]:
        Garbage(history.settings, store).collect(LATER)
        return messages.keys() & set(store.list("shop"))

    # The warehouse needs none, but no publisher has had them.
    assert left() == messages.keys()
    for name in ("events", "others"):
        register_publisher(history.settings, store, name)
    logs = [PublisherLog(store, "shop", name) for name in ("events", "others")]
    logs[0].append(PublisherEntry("events", 1, "a", ChainPosition("one", 30, 60), 0))
    assert left() == messages.keys()
    logs[1].append(PublisherEntry("others", 1, "a", ChainPosition("one", 12, 24), 0))
    assert left() == {key for key, number in messages.items() if number > 12}
    young = Garbage(history.settings, store).collect(datetime.now(UTC))
    assert young.objects[Fate.UNNEEDED] == 0


def test_a_publisher_of_another_chain_has_published_nothing(case: Case) -> None:
    register_publisher(case.history.settings, case.store, "events")
    position = ChainPosition("another", 34, 34)
    entry = PublisherEntry("events", 1, "a", position, 0)
    PublisherLog(case.store, "shop", "events").append(entry)
    assert case.removed() == set()


def test_a_planner_puts_itself_on_record(tmp_path: Path) -> None:
    history = History(tmp_path)
    history.commit(Shaped(PLAIN_SCHEMA))
    assert known_consumers(history.settings, store_of(history)) == []
    for plan_id in ("one", "two"):
        history.plan(plan_id=plan_id)
        names = [one.name for one in known_consumers(history.settings, store_of(history))]
        assert names == [f"the warehouse at {history.settings.warehouse.url}"]


def test_a_consumer_of_an_unknown_kind_stops_it(case: Case) -> None:
    key = layout.consumer_key("shop", "stranger")
    case.store.put(key, b'{"kind":"kafka","url":"x","version":1,"requires":[]}')
    with pytest.raises(CorruptData, match="unknown kind 'kafka'"):
        case.collect()


def test_a_target_that_was_set_back_has_applied_nothing(tmp_path: Path) -> None:
    case = Case(tmp_path)
    for number in (5, 8, 34):
        apply(case.history, number, PLAIN)
    DeltaTable(case.history.target(PLAIN).removeprefix("file://")).restore(1)
    assert case.removed() == set()


def test_a_target_of_another_history_has_applied_nothing(tmp_path: Path) -> None:
    case = Case(tmp_path)
    apply(case.history, 34, PLAIN, **{"tideline.incarnation": "zero"})
    assert case.removed() == set()


def test_an_unreadable_target_stops_it(case: Case) -> None:
    log = Path(case.history.target(PLAIN).removeprefix("file://")) / "_delta_log"
    for file in log.glob("*.json"):
        file.write_text("{")
    with pytest.raises(Unavailable):
        case.collect()


def test_what_is_young_stays(case: Case) -> None:
    now = datetime.now(UTC)
    assert case.removed(now) == set()
    assert case.removed(now + timedelta(days=6.9)) == set()
    assert case.removed(now + timedelta(days=7.1)) == case.old


def test_without_a_full_dump_all_stays(tmp_path: Path) -> None:
    """A table that is rebuilt would need it all."""
    case = Case(tmp_path, dumped=False)
    apply(case.history, 34, PLAIN)
    assert case.removed() == set()


def test_a_table_can_be_rebuilt_afterwards(case: Case) -> None:
    shutil.rmtree(case.history.target(PLAIN).removeprefix("file://"))
    expected = folded(case.history, case.history.plan(plan_id="before").tables[0])
    case.store.delete(layout.plan_key("shop", "before"))
    assert case.removed() == set()
    apply(case.history, 34, PLAIN)
    assert case.removed() == case.old
    shutil.rmtree(case.history.target(PLAIN).removeprefix("file://"))
    plan = case.history.plan(plan_id="after")
    assert case.missing(plan) == []
    assert folded(case.history, plan.tables[0]) == expected


def ended(case: Case, plan: Plan, outcome: Outcome) -> None:
    tables = tuple(TableReceipt(t.table, outcome, t.to_manifest, t.to_seq) for t in plan.tables)
    receipt = Receipt(plan.plan_id, plan.pipeline, plan.incarnation, tables)
    case.store.put(layout.receipt_key("shop", plan.plan_id), encode_receipt(receipt))


def test_what_an_open_plan_names_stays(tmp_path: Path) -> None:
    """The plan was made before the full dump had ended, and another one overtook it."""
    case = Case(tmp_path, dumped=False)
    history = case.history
    plan = history.plan(plan_id="old/plan")
    pinned = {p.key for p in plan.tables[0].parts}
    history.commit(deletes_before=[(PLAIN, history.last_seq)])
    for _ in range(15):
        history.commit()
    roll_up(history)
    apply(history, history.last_number, PLAIN)
    soon = datetime.now(UTC) + timedelta(days=6.5)
    settings = history.settings
    short = settings.retention.model_copy(update={"parts_days": 1 / 24})
    history.settings = settings.model_copy(update={"retention": short})
    removed = case.removed(soon)
    assert removed and not removed & pinned
    assert case.missing(plan) == []
    for outcome, gone in (
        (Outcome.FAILED, set()),
        (Outcome.REFUSED, set()),
        (Outcome.APPLIED, pinned),
    ):
        ended(case, plan, outcome)
        assert case.removed(soon) == gone


def test_a_plan_that_was_given_up_does_not_pin_for_ever(tmp_path: Path) -> None:
    case = Case(tmp_path)
    case.history.plan(plan_id="given-up")
    apply(case.history, 34, PLAIN)
    assert case.removed(LATER) == case.old


def test_what_is_in_no_block_yet_stays(tmp_path: Path) -> None:
    """A manifest that is to come may name it, and the block that is to come is made of it."""
    history = History(tmp_path)
    history.commit(Shaped(PLAIN_SCHEMA))
    for number in range(2, 6):
        history.commit(row(number))
    history.commit(deletes_before=[(PLAIN, history.last_seq)])
    register_warehouse(history.settings, store_of(history))
    apply(history, 6, PLAIN)
    before = store_of(history).list("shop")
    Garbage(history.settings, store_of(history)).collect(LATER)
    assert store_of(history).list("shop") == before


# -- orphans -----------------------------------------------------------------------------------


def orphan(case: Case, prefix: int, name: str = "lost") -> str:
    key = f"{layout.part_prefix('shop', prefix)}/t-public.plain-0123456789abcdef-{name}.parquet"
    case.store.put(key, b"PAR1")
    return key


def test_a_part_that_no_manifest_names_is_removed(case: Case) -> None:
    keys = {orphan(case, number) for number in (1, 5, 19)}
    assert case.removed() == case.old | keys


@pytest.mark.parametrize("parts_days", [7.0, 1 / 24])
def test_a_young_orphan_stays(case: Case, parts_days: float) -> None:
    retention = case.history.settings.retention.model_copy(update={"parts_days": parts_days})
    case.history.settings = case.history.settings.model_copy(update={"retention": retention})
    key = orphan(case, 5)
    now = datetime.now(UTC)
    for days, gone in ((0.0, False), (0.9, False), (1.1, True)):
        case.collect(now + timedelta(days=days))
        assert case.store.exists(key) == (not gone)


def test_an_orphan_behind_the_blocks_stays(case: Case) -> None:
    """The last block's are judged when the next one is there."""
    orphan(case, 25)
    orphan(case, 33)
    orphan(case, 35)
    assert case.removed() == case.old


class Huge(History):
    """Its next manifests list the prefix 5 as uploading, and parts lie under it."""

    uploading: tuple[int, ...] = ()
    prefix: int | None = None

    def _append(self, *arguments: Any) -> Manifest:
        chain = self.chain
        uploading = self.uploading

        class Listing:
            def append(self, manifest: Manifest) -> Any:
                return chain.append(msgspec.structs.replace(manifest, uploading=uploading))

        self.chain = Listing()  # type: ignore[assignment]
        try:
            return super()._append(*arguments)
        finally:
            self.chain = chain

    def _part(self, number: int, *arguments: Any) -> Part:
        return super()._part(self.prefix or number, *arguments)


@pytest.mark.parametrize("ends", ["named", "given up", "going on"])
def test_what_a_huge_transaction_uploads_is_no_orphan(tmp_path: Path, ends: str) -> None:
    history = Huge(tmp_path)
    history.commit(Shaped(PLAIN_SCHEMA))
    for number in range(2, 5):
        history.commit(row(number))
    key = f"{layout.part_prefix('shop', 5)}/t-public.plain-{PLAIN_SCHEMA.fingerprint}-00.parquet"
    history.uploading = (5,)
    for _ in range(26 if ends == "going on" else 12):
        history.commit()
    history.uploading = ()
    if ends == "named":
        history.prefix = 5
        history.commit(row(77))
        history.prefix = None
    else:
        store_of(history).put(key, b"PAR1")
    while history.last_number < 30:
        history.commit()
    register_warehouse(history.settings, store_of(history))
    roll_up(history)
    found = Garbage(history.settings, store_of(history)).collect(LATER)
    assert store_of(history).exists(key) == (ends != "given up")
    assert found.objects[Fate.ORPHAN] == (ends == "given up")


def test_a_part_that_no_manifest_listed_while_it_was_uploaded(tmp_path: Path) -> None:
    """It is named all the same, in the block behind the one of its prefix: that is what counts."""
    history = Huge(tmp_path)
    history.commit(Shaped(PLAIN_SCHEMA))
    while history.last_number < 12:
        history.commit()
    history.prefix = 5
    (part,) = history.commit(row(1)).parts
    while history.last_number < 30:
        history.commit()
    roll_up(history)
    found = Garbage(history.settings, store_of(history)).collect(LATER)
    assert layout.parse_part_key(part.key) == 5
    assert found.objects == {Fate.REBUILD: 1}


def test_a_roll_up_that_its_block_does_not_name_is_removed(case: Case) -> None:
    name = "t-public.plain-0123456789abcdef-0123456789abcdef.parquet"
    wrong, early = f"shop/blocks/{2:012d}/{name}", f"shop/blocks/{9:012d}/{name}"
    case.store.put(wrong, b"PAR1")
    case.store.put(early, b"PAR1")  # being written: its block comes last
    retention = case.history.settings.retention.model_copy(update={"parts_days": 1 / 24})
    case.history.settings = case.history.settings.model_copy(update={"retention": retention})
    assert wrong not in case.removed(datetime.now(UTC) + timedelta(hours=20))
    assert case.removed() == {wrong}
    assert case.store.exists(early)


def test_strangers_objects_are_left_alone(case: Case) -> None:
    for key in ("shop/data/readme.txt", f"{layout.part_prefix('shop', 3)}/note", "shop/blocks/x"):
        case.store.put(key, b"mine")
    assert case.removed() == case.old


# -- kills, and a look in pieces ---------------------------------------------------------------


def test_killed_at_any_removal_the_rest_is_found_again(case: Case) -> None:
    class Killed(Exception):
        pass

    class Dying(ObjectStore):
        left = 3

        def delete(self, key: str) -> None:
            self.left -= 1
            if self.left < 0:
                raise Killed
            super().delete(key)

    store = case.store
    store.__class__ = Dying
    with pytest.raises(Killed):
        Garbage(case.history.settings, store).collect(LATER)
    assert 0 < len(case.old & case.objects()) < 7
    assert case.missing(case.history.plan()) == []
    case.collect()
    assert not case.old & case.objects()


def test_a_look_goes_on_where_the_last_one_stopped(
    case: Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In pages of five objects, each look reading one block at the least."""
    monkeypatch.setattr(
        ObjectStore,
        "_page",
        lambda store, prefix, after, page=ObjectStore._page: page(store, prefix, after)[:5],
    )
    before = case.objects()
    garbage = Garbage(case.history.settings, case.store)
    seen = []
    for _ in range(12):
        found = garbage.collect(LATER, blocks_max=1)
        seen.append(found.objects[Fate.UNNEEDED])
    assert sum(seen) == 7
    assert max(seen) <= 5
    assert before - case.objects() == case.old


def test_it_stops_when_told(case: Case) -> None:
    stopped = Garbage(case.history.settings, case.store, stopping=lambda: True)
    assert stopped.collect(LATER).objects.total() == 0


# -- a random life -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "seed", [0, *(pytest.param(seed, marks=pytest.mark.thorough) for seed in range(1, 3))]
)
def test_a_table_can_be_rebuilt_at_any_time(tmp_path: Path, seed: int) -> None:
    """A random source is captured, dumped, merged, rolled up and cleaned in random order; at any
    time its target goes on, and a target that is recreated holds what the source holds."""
    random = Random(seed)
    history = History(tmp_path)
    register_warehouse(history.settings, store_of(history))
    sources = [RandomSource(number, random) for number in range(2)]
    history.commit(Shaped(SHARDS))
    history.commit(
        *(row for source in sources for row in source.fill()), deletes_before=[(TABLE, 0)]
    )
    low: int | None = None
    dumped = False
    removed = 0

    def change(count: int) -> list[Event]:
        return list(interleave(sources, random, count))

    def dump() -> None:
        nonlocal low, dumped
        if low is None:
            low, dumped = history.last_seq, False
            history.commit(*change(4))
        elif not dumped:
            before = change(2)
            rows = [(one, key, row) for one in sources for key, row in one.rows.items()]
            whole = [one._row("r", key, row) for one, key, row in rows]
            history.commit(*before, *whole, *change(2), parts_per_table=2)
            dumped = True
        else:
            history.commit(*change(1), deletes_before=[(TABLE, low)])
            low = None

    def clean() -> None:
        nonlocal removed
        roll_up(history)
        before = len(store_of(history).list("shop/data"))
        Garbage(history.settings, store_of(history)).collect(LATER)
        removed += before - len(store_of(history).list("shop/data"))

    steps: list[Callable[[], object]] = [
        lambda: history.commit(*change(5)),
        lambda: history.commit(*change(5), parts_per_table=2),
        history.commit,
        dump,
        dump,
        lambda: apply(history, random.randint(_applied(history), history.last_number), TABLE),
    ]
    for turn in range(6 * TEN):
        random.choice(steps)()
        if turn % 13 == 12:
            clean()
            there = set(store_of(history).list("shop"))
            for table in history.plan(plan_id=f"on{turn}").tables:
                assert {part.key for part in table.parts} <= there
            _check_rebuild(history, sources, turn)
    assert removed > 20


def _applied(history: History) -> int:
    path = Path(history.target(TABLE).removeprefix("file://"))
    if not path.exists():
        return 1
    app = f"shop/one/{TABLE}/0"
    return DeltaTable(path).transaction_version(app) or 1


def _check_rebuild(history: History, sources: list[RandomSource], turn: int) -> None:
    """A target elsewhere, which has nothing yet, gets what the source holds."""
    warehouse = history.settings.warehouse.model_copy(update={"url": "file:///nowhere"})
    verified, history.settings = (
        history.settings,
        history.settings.model_copy(update={"warehouse": warehouse}),
    )
    try:
        plan = history.plan(plan_id=f"anew{turn}")
    finally:
        history.settings = verified
        for key in store_of(history).list(layout.consumers_prefix("shop")):
            if b"nowhere" in (store_of(history).get(key) or b""):
                store_of(history).delete(key)
    assert plan.to_manifest == plan.tail
    states = folded(history, plan.tables[0])
    live = {key: state for key, state in states.items() if not state.gone}
    assert all(not state.absent for state in live.values())
    found = {key: dict(state.values) for key, state in live.items()}
    assert found == truth(sources)


def test_a_block_that_a_restore_has_left_behind_judges_no_part(case: Case) -> None:
    """The manifests behind 25 are other ones now, with other parts, which that block does not
    name."""
    history, store = case.history, case.store
    entries = list(history.chain.entries(25, 34))
    before = entries[0]
    for entry in entries[1:]:
        store.delete(layout.manifest_key("shop", entry.manifest.manifest_number))
        parts = []
        for part in entry.manifest.parts:
            moved = msgspec.structs.replace(part, key=part.key.replace("-00.", "-99."))
            raw = store.get(part.key)
            assert raw is not None and moved.key != part.key
            store.put(moved.key, raw)
            parts.append(moved)
        before = history.chain.append(
            msgspec.structs.replace(
                entry.manifest, previous_digest=before.digest, parts=tuple(parts), writer="restored"
            )
        )
    there = case.objects()
    with pytest.raises(CorruptData, match="repeats another manifest 30") as raised:
        case.collect()
    assert "remove it" in (raised.value.hint or "")
    assert {key for key in there if key.endswith("-99.parquet")} <= case.objects()
