"""What `tideline doctor` says of the catalog of Iceberg tables, on real servers."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from devtools.services.iceberg_rest import IcebergRestServer
from devtools.services.ports import free_port
from devtools.services.s3 import S3Server
from tests.fixtures.iceberg import with_catalog
from tests.fixtures.iceberg_catalogs import at_rest, in_postgres, in_table_bucket
from tests.fixtures.services import Database
from tideline.settings import Settings, Warehouse, make_settings
from tideline.settings.iceberg import IcebergSettings
from tideline.warehouse.iceberg.client import open_catalog
from tideline.warehouse.iceberg.jars import BUILDS
from tideline_console import doctor_iceberg
from tideline_console.checks import check_warehouse
from tideline_console.doctor_iceberg import check_iceberg

CANARY = "canary-7d1c"
Found = list[tuple[str, str, str]]


@pytest.fixture(autouse=True)
def spark_line_that_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor_iceberg, "installed_spark", lambda: f"{next(iter(BUILDS))}.4")


def settings_of(place: Warehouse, **more: Any) -> Settings:
    iceberg = place.iceberg.model_dump(exclude_unset=True)
    return make_settings(
        {
            "pipeline": "p",
            "source": {"url": "postgresql://u@h/d"},
            "store": {"url": "file:///s"},
            "warehouse": {
                "url": place.url,
                **(place.access() if place.in_s3 else {}),
                "format": place.format,
                "iceberg": iceberg,
            },
            **more,
        }
    )


def changed(place: Warehouse, **keys: Any) -> Warehouse:
    iceberg = place.iceberg.model_dump(exclude_unset=True) | keys
    return place.model_copy(update={"iceberg": IcebergSettings(**iceberg)})


def found(place: Warehouse, *, grave: bool = False, **more: Any) -> Found:
    listed = list(check_iceberg(settings_of(place, **more), grave=grave))
    assert CANARY not in repr(listed)
    assert all(one.fix for one in listed if one.level != "ok")
    return [(one.level, one.name, one.message) for one in listed]


def namespaces(place: Warehouse) -> list[Any]:
    return [one for one in open_catalog(place).list_namespaces() if "probe" in str(one)]


def test_a_catalog_that_can_be_used(catalog_server_place: Warehouse) -> None:
    (reached, jars) = found(catalog_server_place)
    assert reached[:2] == ("ok", "iceberg") and "make namespaces" in reached[2]
    assert jars[:2] == ("ok", "iceberg_jars")
    assert namespaces(catalog_server_place) == []


def test_a_pipeline_that_can_have_no_iceberg_tables_has_no_findings(tmp_path: Path) -> None:
    assert found(Warehouse(url=tmp_path.as_uri())) == []


def test_a_catalog_of_tables_from_before_is_looked_at(tmp_path: Path) -> None:
    """New tables are Delta tables; others may have been Iceberg tables, or been moved."""
    place = with_catalog(Warehouse(url=tmp_path.as_uri()), tmp_path / "catalog.db")
    held = found(place.model_copy(update={"format": "delta"}), grave=True)
    assert held == found(place, grave=True)
    assert ("ok", "iceberg") in {one[:2] for one in held}


def test_wrong_credentials_of_a_database(tmp_path: Path, database: Database) -> None:
    place = changed(in_postgres(tmp_path, database), password=CANARY)
    (level, _, text) = found(place, grave=True)[0]
    assert level == "error" and "refuses the credentials" in text


def test_wrong_credentials_of_a_rest_client(s3_tables: S3Server) -> None:
    (level, _, text) = found(in_table_bucket(s3_tables, password=CANARY), grave=True)[0]
    assert level == "error" and "refuses the credentials" in text
    token = changed(in_table_bucket(s3_tables, password=CANARY), user=None)
    assert "refuses the credentials" in found(token)[0][2]


def test_a_client_id_without_a_secret(tmp_path: Path, iceberg_rest: IcebergRestServer) -> None:
    place = changed(at_rest(tmp_path, iceberg_rest), user="client")
    assert "has no secret" in found(place)[0][2]


def test_a_database_user_without_rights(tmp_path: Path, database: Database) -> None:
    user = f"user_{database.name}"
    database.run(f"CREATE ROLE {user} LOGIN PASSWORD '{CANARY}'")
    place = changed(in_postgres(tmp_path, database), user=user, password=CANARY)
    (level, _, text) = found(place, grave=True)[0]
    assert level == "error" and "does not permit" in text
    # Tables that others own, and that this user may only read.
    open_catalog(in_postgres(tmp_path, database))
    database.run(
        f"GRANT SELECT ON iceberg_tables, iceberg_namespace_properties TO {user}",
    )
    assert "does not permit" in found(place)[0][2]
    database.run(
        f"GRANT INSERT, UPDATE, DELETE ON iceberg_tables, iceberg_namespace_properties TO {user}",
    )
    assert found(place)[0][0] == "ok"


def test_a_catalog_that_does_not_answer(tmp_path: Path, database: Database) -> None:
    nothing = free_port()
    for url in (f"http://127.0.0.1:{nothing}", f"http://127.0.0.1:{urlsplit(database.dsn).port}"):
        place = changed(in_postgres(tmp_path, database), catalog="rest", url=url, user=None)
        (level, _, text) = found(place, grave=True)[0]
        assert level == "error" and "does not answer as one" in text
    gone = changed(in_postgres(tmp_path, database), url=f"postgresql://127.0.0.1:{nothing}/d")
    assert "does not answer as one" in found(gone)[0][2]


def test_a_missing_client_is_named(
    tmp_path: Path, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = in_postgres(tmp_path, database)
    for module, text in (
        ("psycopg2", "needs psycopg2, which is not installed"),
        ("pyiceberg.catalog", "pyiceberg is not installed"),
    ):
        with monkeypatch.context() as without:
            without.setitem(sys.modules, module, None)
            assert text in found(place)[0][2]


@pytest.mark.parametrize(
    ("url", "merge", "warned"),
    [
        ("file:///w", {}, False),
        ("s3://bucket/w", {}, True),
        ("file:///w", {"master": "spark://10.0.0.1:7077"}, True),
    ],
)
def test_a_file_is_for_one_machine(
    tmp_path: Path, url: str, merge: dict[str, str], warned: bool
) -> None:
    place = with_catalog(Warehouse(url=url), tmp_path / "catalog.db")
    names = [one[1] for one in found(place, merge=merge)]
    assert ("iceberg_file" in names) is warned


@pytest.mark.parametrize(
    ("keys", "text"),
    [
        ({"catalog": "rest", "url": "http://catalog.invalid"}, "not verified"),
        (
            {"catalog": "rest", "url": "https://c.invalid", "oauth2_url": "http://o.invalid"},
            "unencrypted",
        ),
        ({"catalog": "jdbc", "url": "postgresql://db.invalid/d"}, "not verified"),
        ({"catalog": "jdbc", "url": "postgresql://db.invalid/d?sslmode=require"}, "not verified"),
        ({"catalog": "jdbc", "url": "postgresql://db.invalid/d?sslmode=verify-full"}, None),
        ({"catalog": "rest", "url": "https://catalog.invalid"}, None),
    ],
)
def test_what_goes_to_another_machine_in_the_clear(
    keys: dict[str, Any], text: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(doctor_iceberg, "probe_catalog", lambda place: "there")
    place = Warehouse(url="file:///w", format="iceberg", iceberg=IcebergSettings(**keys))
    texts = [one[2] for one in found(place) if one[1] == "iceberg_encryption"]
    assert len(texts) == (text is not None) and all(str(text) in one for one in texts)


def test_jars_of_another_spark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = with_catalog(Warehouse(url=tmp_path.as_uri()), tmp_path / "catalog.db")
    jars = {"jars": "/opt/delta.jar,/opt/iceberg-spark-runtime-4.0_2.13-1.12.0.jar"}
    assert found(place, merge=jars)[-1][:2] == ("warning", "iceberg_jars")
    assert "is for Spark 4.0" in found(place, merge=jars)[-1][2]
    fits = {"jars": f"/opt/iceberg-spark-runtime-{next(iter(BUILDS))}_2.13-1.12.0.jar"}
    assert found(place, merge=fits)[-1][0] == "ok"
    monkeypatch.setattr(doctor_iceberg, "installed_spark", lambda: "4.2.0")
    assert found(place, grave=True)[-1][:2] == ("error", "iceberg_jars")
    assert "no runtime for Spark 4.2" in found(place)[-1][2]


def test_where_a_rest_catalog_puts_tables_nothing_is_written(s3_tables: S3Server) -> None:
    """A table bucket refuses what is no table's."""
    assert check_warehouse(settings_of(in_table_bucket(s3_tables))) == []
