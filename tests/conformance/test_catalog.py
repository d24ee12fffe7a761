"""What every kind of catalog does: tables get names there, kept up to date, and no one else's entry
is touched."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest
from deltalake import DeltaTable, Field, Schema
from deltalake.schema import PrimitiveType

from tests.fixtures.catalogs import KINDS, CatalogPlace, Described
from tests.fixtures.parts import History, Row, Shaped, schema_of
from tideline.catalog.base import CatalogEntry, CatalogTable, same_place
from tideline.catalog.names import CatalogName
from tideline.catalog.registry import open_catalog
from tideline.contract.errors import Unavailable
from tideline.contract.receipt import Outcome, Receipt, TableReceipt
from tideline.contract.target_properties import owner_properties
from tideline.planner.registration import (
    Registration,
    drop_entry,
    own_entries,
    register,
    unregistered,
)
from tideline.settings import Settings, make_settings
from tideline.settings.object_storage import ACCESS, ObjectStorage
from tideline.warehouse.base import TableColumn


def field(name: str, kind: str, comment: str | None = None, *, nullable: bool = True) -> Field:
    """A column of Delta's."""
    return Field(
        name,
        PrimitiveType(kind),
        nullable=nullable,
        metadata={"comment": comment} if comment else {},
    )


FIELDS = [
    field("id", "long", "the key\nof it", nullable=False),
    field("amount", "decimal(12,2)"),
    field("a,b", "timestamp_ntz"),
]


class Shop:
    """A pipeline with a catalog, whose schemas there are this test's own."""

    def __init__(
        self,
        root: Path,
        catalog: CatalogPlace,
        tables: Sequence[str] = ("public.orders",),
        *,
        names: Mapping[str, Any] | None = None,
        **others: Any,
    ) -> None:
        self.place = catalog
        self.schema = f"t{uuid.uuid4().hex[:12]}"
        self.history = History(root, **others)
        self.tables = tables
        for table in tables:
            self.history.commit(Shaped(schema_of(table, {"id": "int64"}, ["id"])))
            self.history.commit(Row(table, "c", {"id": 1}))
        self.use({"schema_name": f"{self.schema}_{{schema}}", **(names or {})})

    def use(self, names: Mapping[str, Any], tables: Mapping[str, Any] | None = None) -> None:
        """Use these templates of names, and entries by table."""
        old = self.history.settings
        self.history.settings = make_settings(
            {
                "pipeline": old.pipeline,
                "source": {"url": "postgresql://nobody@127.0.0.1:1/shop"},
                "store": given(old.store),
                "warehouse": {
                    "region": "eu-west-1",
                    **given(old.warehouse_storage),
                    "catalog": {**self.place.keys, **names},
                },
                "tables": tables or {},
            }
        )

    @property
    def settings(self) -> Settings:
        return self.history.settings

    def make(self, table: str, fields: list[Field] = FIELDS, comment: str | None = "it") -> None:
        """What merges leave of a table: its log."""
        owner = (self.settings.pipeline, self.history.incarnation, table)
        folder = unquote(self.history.target(table).removeprefix("file://"))
        DeltaTable.create(
            folder,
            Schema(fields),
            mode="overwrite",
            description=comment,
            configuration=owner_properties(owner),
            raise_if_key_not_exists=False,
        )

    def made(self) -> Shop:
        for table in self.tables:
            self.make(table)
        return self

    def name(self, text: str = "public.orders") -> CatalogName:
        schema, _, table = text.partition(".")
        return CatalogName(f"{self.schema}_{schema}", table)

    def entry(self, text: str = "public.orders") -> CatalogEntry | None:
        with open_catalog(self.settings) as catalog:
            return catalog.find([self.name(text)]).get(self.name(text))

    def described(self, text: str = "public.orders") -> Described:
        assert self.place.describe is not None
        return self.place.describe(self.settings, self.name(text))


def given(place: ObjectStorage) -> dict[str, Any]:
    """A section's address, and the keys that say how it is reached."""
    return {name: getattr(place, name) for name in place.model_fields_set & {"url", *ACCESS}}


def table_of(url: str, pipeline: str = "") -> CatalogTable:
    owner = (pipeline, "one", "public.orders") if pipeline else ("", "", "")
    return CatalogTable(url, "delta", owner, (TableColumn("id", "long"),))


@pytest.fixture
def shop(tmp_path: Path, catalog_place: CatalogPlace) -> Shop:
    return Shop(tmp_path, catalog_place).made()


def test_a_table_is_registered_once_and_kept_up_to_date(shop: Shop) -> None:
    assert unregistered(shop.settings) == Registration({"public.orders": shop.name()})
    assert shop.entry() is None, "to look makes nothing"
    assert register(shop.settings) == Registration({"public.orders": shop.name()})
    first = shop.entry()
    assert first is not None
    assert same_place(first.location, shop.history.target("public.orders"))
    assert first.owner == ("shop", "one", "public.orders")
    assert register(shop.settings) == Registration()
    shop.make("public.orders", [*FIELDS, field("more", "string")])
    assert register(shop.settings).made == {"public.orders": shop.name()}
    second = shop.entry()
    shop.make("public.orders", [*FIELDS, field("more", "string")], comment=None)
    assert register(shop.settings).made == {"public.orders": shop.name()}
    assert len({first.fingerprint, second and second.fingerprint}) == 2
    assert register(shop.settings) == Registration()


def test_an_entry_shows_comments_and_not_null(shop: Shop) -> None:
    """And no more those that are gone."""
    long = "é" * 300
    fields = [*FIELDS, field("more", "string", f"one\x01\r\n two\n{long}", nullable=False)]
    shop.make("public.orders", fields, comment="what they\nbought")
    register(shop.settings)
    found = shop.described()
    assert found.comment == "what they\nbought"
    assert found.columns == {
        "id": ("long", False, "the key\nof it"),
        "amount": ("decimal(12,2)", True, ""),
        "a,b": ("timestamp_ntz", True, ""),
        "more": ("string", False, f"one\x01\r\n two\n{long}"),
    }
    if shop.place.kind == "glue":
        assert found.shown == {
            "id": "the key of it",
            "amount": "",
            "a,b": "",
            "more": "one  two " + "é" * 123,
        }
    elif shop.place.kind == "unity":
        assert found.shown == {name: text for name, (*_, text) in found.columns.items()}
    shop.make("public.orders", [field("id", "long"), field("amount", "decimal(13,2)")], None)
    register(shop.settings)
    found = shop.described()
    assert found.comment == ""
    assert found.columns == {"id": ("long", True, ""), "amount": ("decimal(13,2)", True, "")}
    assert found.shown in (None, {"id": "", "amount": ""})


def test_only_the_named_tables_are_registered(tmp_path: Path, catalog_place: CatalogPlace) -> None:
    shop = Shop(tmp_path, catalog_place, ["public.orders", "public.items", "public.none"])
    shop.make("public.orders")
    shop.make("public.items")
    assert register(shop.settings, ["public.items"]).made == {
        "public.items": shop.name("public.items")
    }
    assert shop.entry() is None
    assert list(register(shop.settings).made) == ["public.orders"]


@pytest.mark.parametrize("theirs", ["elsewhere", "unmarked", "market"])
def test_a_strangers_entry_is_named_and_left(shop: Shop, theirs: str) -> None:
    url = shop.history.target("public.orders")
    other = table_of(f"{url}-other" if theirs == "elsewhere" else url, theirs * (theirs[0] == "m"))
    with open_catalog(shop.settings) as catalog:
        assert catalog.create(shop.name(), other)
        before = shop.entry()
        found = register(shop.settings)
        assert not found.made
        whose = "pipeline market" if theirs == "market" else "someone else's"
        assert whose in found.problems["public.orders"]
        assert f"{shop.name()} in the catalog" in found.problems["public.orders"]
        assert shop.entry() == before
        assert not catalog.create(shop.name(), table_of(url)), "nor by a faster one of ours"
    assert own_entries(shop.settings, None) == []


def test_a_run_that_was_faster_with_the_name_is_noticed(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tideline.catalog import registry

    kind = registry.KINDS[shop.place.kind]
    catalog = kind.connect(shop.settings)
    create = catalog.create

    def late(name: CatalogName, table: CatalogTable) -> bool:
        assert create(name, table_of(table.location, "market"))
        return create(name, table)

    monkeypatch.setattr(catalog, "create", late)
    monkeypatch.setattr(type(kind), "connect", property(lambda _: lambda _: catalog))
    assert "pipeline market" in register(shop.settings).problems["public.orders"]
    assert catalog.find([shop.name()])[shop.name()].owner[0] == "market"


def test_a_name_that_is_taken_and_not_shown_is_named(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By what the login may not see."""
    from tideline.catalog import registry

    kind = registry.KINDS[shop.place.kind]
    with open_catalog(shop.settings) as catalog:
        assert catalog.create(shop.name(), table_of("file:///elsewhere", "market"))
    monkeypatch.setattr(catalog, "find", lambda _: {})
    monkeypatch.setattr(type(kind), "connect", property(lambda _: lambda _: catalog))
    found = register(shop.settings)
    assert not found.made
    assert "is taken in the catalog by what" in found.problems["public.orders"]


def test_a_catalog_that_goes_away_is_waited_for_once(
    tmp_path: Path, catalog_place: CatalogPlace, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tideline.catalog import registry

    tables = [f"public.t{number}" for number in range(4)]
    shop = Shop(tmp_path, catalog_place, tables).made()
    kind = registry.KINDS[shop.place.kind]
    catalog = kind.connect(shop.settings)
    asked: list[str] = []
    create = catalog.create

    def goes(name: CatalogName, table: CatalogTable) -> bool:
        asked.append(name.table)
        if len(asked) == 2:
            raise Unavailable("gone")
        return create(name, table)

    monkeypatch.setattr(catalog, "create", goes)
    monkeypatch.setattr(type(kind), "connect", property(lambda _: lambda _: catalog))
    found = register(shop.settings)
    assert asked == ["t0", "t1"]
    assert (list(found.made), list(found.problems)) == (tables[:1], tables[1:])
    assert list(register(shop.settings).made) == tables[1:]


def test_a_new_life_of_the_pipeline_takes_its_entries_over(
    shop: Shop, tmp_path: Path, catalog_place: CatalogPlace
) -> None:
    register(shop.settings)
    again = Shop(tmp_path / "again", catalog_place, incarnation="two")
    again.schema = shop.schema
    warehouse = {"url": shop.settings.warehouse.url}
    again.history.settings = shop.settings.model_copy(
        update={"store": again.history.settings.store}
    )
    assert register(again.settings) == Registration(), f"still of the first life: {warehouse}"
    again.make("public.orders")
    assert list(register(again.settings).made) == ["public.orders"]
    entry = again.entry()
    assert entry is not None and entry.owner[1] == "two"


def test_two_pipelines_share_a_schema_by_prefix(
    tmp_path: Path, catalog_place: CatalogPlace
) -> None:
    shop = Shop(tmp_path / "a", catalog_place).made()
    market = Shop(tmp_path / "b", catalog_place, pipeline="market").made()
    both = {"schema_name": f"{shop.schema}_all", "table_name": "{pipeline}_{table}"}
    for one in (shop, market):
        one.use(both)
        assert list(register(one.settings).made) == ["public.orders"]
    for one in (market, shop):
        one.use({**both, "table_name": "{table}"})
    assert list(register(shop.settings).made) == ["public.orders"]
    assert "pipeline shop" in register(market.settings).problems["public.orders"]


def test_tables_with_one_name_have_none(tmp_path: Path, catalog_place: CatalogPlace) -> None:
    tables = ["public.orders", "public.Orders", "public.items"]
    shop = Shop(tmp_path, catalog_place, tables).made()
    found = register(shop.settings)
    assert list(found.made) == ["public.items"]
    assert set(found.problems) == {"public.orders", "public.Orders"}
    assert "as public.Orders would" in found.problems["public.orders"]
    assert shop.entry() is None
    renamed = {"public.Orders": {"catalog_name": f"{shop.schema}_public.Orders_2"}}
    shop.use({"schema_name": f"{shop.schema}_{{schema}}"}, renamed)
    assert set(register(shop.settings).made) == {"public.orders", "public.Orders"}
    assert shop.entry("public.orders_2") is not None


def test_a_name_that_the_catalog_lacks_is_never_another_one(
    tmp_path: Path, catalog_place: CatalogPlace
) -> None:
    table = 'public."a/b c"'
    shop = Shop(tmp_path, catalog_place, [table]).made()
    problem = register(shop.settings).problems[table]
    assert "which permits" in problem and "catalog_name = 'schema.table'" in problem
    shop.use({}, {table: {"catalog_name": f"{shop.schema}.a_b_c"}})
    assert register(shop.settings) == Registration({table: CatalogName(shop.schema, "a_b_c")})


def test_a_table_of_others_in_the_warehouse_gets_no_name(shop: Shop) -> None:
    shop.history.incarnation = "another"
    shop.make("public.orders")
    assert register(shop.settings) == Registration()
    assert shop.entry() is None


def test_own_entries_are_dropped_and_no_others(shop: Shop) -> None:
    register(shop.settings)
    assert own_entries(shop.settings, "another") == []
    (own,) = own_entries(shop.settings, "one")
    drop_entry(shop.settings, own)
    drop_entry(shop.settings, own)
    assert shop.entry() is None
    with open_catalog(shop.settings) as catalog:
        assert catalog.create(shop.name(), table_of("file:///elsewhere", "market"))
    drop_entry(shop.settings, own)
    assert shop.entry() is not None, "another one by now"
    assert DeltaTable(shop.history.target("public.orders").removeprefix("file://")).version() == 0


def test_many_tables_and_a_wide_one(tmp_path: Path, catalog_place: CatalogPlace) -> None:
    """More names than are asked for one by one, and a schema of several properties."""
    tables = [f"public.t{number}" for number in range(12)]
    shop = Shop(tmp_path, catalog_place, tables)
    comments = {f"column_{number}": f"{number} " + "é" * 300 for number in range(60)}
    wide = [field(name, "string", text) for name, text in comments.items()]
    for table in tables[1:]:
        shop.make(table, [field(f"of_{table[7:]}", "long", table)], comment=f"it is {table}")
    shop.make(tables[0], wide, comment="x" * 4_000)
    assert len(register(shop.settings).made) == 12
    found = shop.described(tables[0])
    assert found.columns == {name: ("string", True, text) for name, text in comments.items()}
    assert found.comment == "x" * (2_048 if catalog_place.kind == "glue" else 4_000)
    if catalog_place.kind == "glue":
        short = {
            name: text.encode()[:255].decode(errors="ignore") for name, text in comments.items()
        }
        assert found.shown == short
    for table in (tables[1], tables[11]):
        found = shop.described(table)
        assert (found.comment, found.columns) == (
            f"it is {table}",
            {f"of_{table[7:]}": ("long", True, table)},
        )
    assert register(shop.settings) == Registration()
    assert unregistered(shop.settings) == Registration()


@pytest.mark.parametrize(
    "keys",
    [
        {"kind": "hive", "url": "thrift://127.0.0.1:1"},
        {"kind": "unity", "url": "http://127.0.0.1:1", "name": "main"},
        {"kind": "glue", "url": "http://127.0.0.1:1"},
    ],
    ids=KINDS,
)
def test_a_catalog_that_does_not_answer_is_a_warning(
    tmp_path: Path, keys: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "testing")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "testing")
    shop = Shop(tmp_path, CatalogPlace(keys["kind"], {**keys, "timeout_s": 1})).made()
    found = register(shop.settings)
    assert found.failed is not None and "nothing is registered in the catalog" in found.failed
    assert "does not answer" in found.failed or "cannot be asked" in found.failed
    receipt = Receipt("p", "shop", "one", (TableReceipt("public.orders", Outcome.APPLIED, 1, 1),))
    assert found.added_to(receipt).tables[0].warnings == (found.failed,)
    assert found.added_to(Receipt("p", "shop", "one", ())).warnings == (found.failed,)


def test_a_table_that_moved_is_named_as_such(shop: Shop) -> None:
    moved = table_of(f"{shop.history.target('public.orders')}-before", "shop")
    with open_catalog(shop.settings) as catalog:
        assert catalog.create(shop.name(), moved)
    problem = register(shop.settings).problems["public.orders"]
    assert "this table at another address" in problem and "drop it there" in problem
