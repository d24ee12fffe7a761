"""Tables that are removed from an object store: which, and in which order, however often it ends
early."""

from __future__ import annotations

import uuid

import pytest

from tests.fixtures.settings import Section
from tideline.contract.errors import Misconfigured, Unavailable
from tideline.contract.schema import TableId
from tideline.settings import Settings, make_settings
from tideline.store.objects import ObjectStore, open_store
from tideline.warehouse.state import TargetState
from tideline_console import deleted_objects
from tideline_console.deleted_files import table_removal
from tideline_console.deleted_objects import (
    delete_below,
    folders,
    is_of,
    object_removal,
    object_removals,
)


def settings(warehouse: Section | None = None) -> Settings:
    return make_settings(
        {
            "pipeline": "shop",
            "source": {"url": "postgresql://u@h/d"},
            "store": {"url": f"memory://{uuid.uuid4().hex}"},
            "warehouse": warehouse or {"url": f"memory://{uuid.uuid4().hex}"},
        }
    )


@pytest.fixture
def pipeline() -> Settings:
    return settings()


@pytest.fixture
def store(pipeline: Settings) -> ObjectStore:
    return open_store(pipeline.warehouse_store())


def fill(store: ObjectStore, *keys: str) -> None:
    for key in keys:
        store.put(key, b"x")


def test_folders_are_those_right_below(store: ObjectStore) -> None:
    """Each once, whatever sorts between a name and what is in it; an object is none."""
    fill(store, "a/x", "a/y/z", "a-b/x", "a.b/x", "a0/x", "a0", "b", "c/d/e/f", "c/d/g", "é ö/x")
    assert list(folders(store)) == ["a-b", "a.b", "a", "a0", "c", "é ö"]
    assert list(folders(store, "c")) == ["c/d"]
    assert list(folders(store, "c/d")) == ["c/d/e"]
    assert list(folders(store, "a")) == ["a/y"]
    assert list(folders(store, "a/y")) == list(folders(store, "nowhere")) == []


def test_folders_of_an_empty_store(store: ObjectStore) -> None:
    assert list(folders(store)) == []


def test_what_is_below_a_folder_is_deleted_and_nothing_beside_it(store: ObjectStore) -> None:
    fill(store, "a/t/x", "a/t/log/1", "a/t/logs/1", "a/t2/x", "a/t", "b/t/x")
    delete_below(store, "a/t", spare=("a/t/log/",))
    assert store.list("") == ["a/t", "a/t/log/1", "a/t2/x", "b/t/x"]
    delete_below(store, "a/t")
    assert store.list("") == ["a/t", "a/t2/x", "b/t/x"]


LOG = "_delta_log/"
TABLE = ("part-1.parquet", "x=1/part-2.parquet", f"{LOG}0.json", f"{LOG}1.json", f"{LOG}2.json")


def a_table(store: ObjectStore, folder: str) -> None:
    fill(store, *(f"{folder}/{name}" for name in TABLE))


@pytest.fixture
def owned(monkeypatch: pytest.MonkeyPatch, pipeline: Settings) -> set[str]:
    """The addresses that are asked about; those with "ours" in them are the pipeline's."""
    asked: set[str] = set()

    def is_it(settings: Settings, url: str, incarnation: str | None) -> bool:
        asked.add(url.removeprefix(f"{pipeline.warehouse.url}/"))
        return "ours" in url and incarnation == "one"

    monkeypatch.setattr(deleted_objects, "is_of", is_it)
    return asked


def test_tables_and_shadow_tables_of_the_pipeline_go(
    pipeline: Settings, store: ObjectStore, owned: set[str]
) -> None:
    kept = ["public/theirs", "~rebuild/000001/public/theirs"]
    gone = ["public/ours", "other/ours 2", "~rebuild/000001/public/ours"]
    for folder in (*kept, *gone):
        a_table(store, folder)
    fill(store, "readme", "public/readme", "~rebuild/readme")
    removals = list(object_removals(pipeline, "one"))
    assert len(removals) == 3
    asked = {*kept, *gone} - {"other/ours 2"} | {"other/ours%202"}
    assert owned == asked, "and no folder of the shadow tables is taken for a schema"
    assert store.list("public/ours"), "nothing is removed by looking"
    for one in removals:
        one.remove()
    left = {key for folder in kept for key in (f"{folder}/{name}" for name in TABLE)}
    assert set(store.list("")) == {*left, "readme", "public/readme", "~rebuild/readme"}


def test_one_table_goes_by_its_url_and_nothing_beside_it(
    pipeline: Settings, store: ObjectStore
) -> None:
    """Former tables; `rebuild --to` has left them."""
    names = ("order items", "order items 2", "order")
    urls = [pipeline.target_url(TableId("public", name), "delta") for name in names]
    for url in urls:
        a_table(store, url.removeprefix(f"{pipeline.warehouse.url}/"))
    before = set(store.list(""))
    object_removal(pipeline, urls[0]).remove()
    gone = before - set(store.list(""))
    assert len(gone) == len(TABLE)
    assert all(one.startswith("public/order~20items/") for one in gone)
    object_removal(pipeline, urls[0]).remove()
    with pytest.raises(Misconfigured, match="is not removed by this command"):
        table_removal(pipeline, "s3://elsewhere/public/t")


def test_the_log_goes_last_and_its_oldest_entry_at_the_end(
    pipeline: Settings, store: ObjectStore, owned: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As long as anything is left, the table's first entry says whose it is."""
    a_table(store, "public/ours")
    fill(store, f"public/ours/{LOG}_last_checkpoint", f"public/ours/{LOG}1.checkpoint.parquet")
    seen: list[str] = []
    delete = ObjectStore.delete

    def note(self: ObjectStore, key: str) -> None:
        seen.append(key.removeprefix("public/ours/"))
        delete(self, key)

    monkeypatch.setattr(ObjectStore, "delete", note)
    [one] = object_removals(pipeline, "one")
    one.remove()
    assert set(seen[:2]) == set(TABLE[:2])
    assert seen[-1] == f"{LOG}0.json"
    assert store.list("") == []


def test_a_removal_that_ended_early_goes_on(
    pipeline: Settings, store: ObjectStore, owned: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Wherever it ended: the table is still found, by its log's first entry."""
    delete = ObjectStore.delete
    for allowed in range(len(TABLE)):
        a_table(store, "public/ours")
        left = [allowed]

        def limited(self: ObjectStore, key: str, left: list[int] = left) -> None:
            left[0] -= 1
            if left[0] < 0:
                raise Unavailable("killed")
            delete(self, key)

        with monkeypatch.context() as patched, pytest.raises(Unavailable):
            patched.setattr(ObjectStore, "delete", limited)
            next(object_removals(pipeline, "one")).remove()
        assert f"public/ours/{LOG}0.json" in store.list("")
        next(object_removals(pipeline, "one")).remove()
        assert store.list("") == []


@pytest.mark.parametrize(
    ("owner", "incarnation", "ours"),
    [
        (("shop", "one", "public.t"), "one", True),
        (("shop", "one", "public.t"), None, True),
        (("shop", "two", "public.t"), "one", False),
        (("another", "one", "public.t"), "one", False),
        (("another", "one", "public.t"), None, False),
        ((None, None, None), None, False),
    ],
)
def test_whose_a_table_is(
    monkeypatch: pytest.MonkeyPatch,
    owner: tuple[str, str, str],
    incarnation: str | None,
    ours: bool,
) -> None:
    """By its properties, read by the access that counts."""
    keys = {"access_key_id": "AKIA", "secret_access_key": "s"}
    values = {"pipeline": "shop", "source": {"url": "postgresql://u@h/d"}}
    places = {"store": {"url": "s3://a", **keys}, "warehouse": {"url": "s3://b"}}
    pipeline = make_settings({**values, **places})

    def read(url: str, app: str, place: object) -> TargetState:
        assert place == pipeline.warehouse_storage
        assert pipeline.warehouse_storage.secret() == "s"
        return TargetState(url, owner=owner)

    monkeypatch.setattr(deleted_objects, "read_target", read)
    assert is_of(pipeline, "s3://b/public/t", incarnation) is ours


def test_what_cannot_be_read_is_left(pipeline: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    def read(*_: object) -> TargetState:
        raise Unavailable("something is there that cannot be read")

    monkeypatch.setattr(deleted_objects, "read_target", read)
    assert not is_of(pipeline, "s3://b/public/t", None)
