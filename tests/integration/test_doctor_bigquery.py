"""What `tideline doctor` reports of BigQuery, on the emulator behind the front that is strict."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from google.auth import compute_engine, identity_pool
from google.auth.exceptions import RefreshError
from google.cloud import bigquery
from google.oauth2 import credentials as people

from devtools.services.ports import free_port
from tests.fixtures.bigquery import Dataset
from tests.fixtures.bigquery_place import PROJECT
from tideline.contract.errors import Misconfigured
from tideline.settings import Settings, make_settings
from tideline.warehouse.bigquery import probe
from tideline.warehouse.bigquery.client import BigQueryPlace
from tideline.warehouse.bigquery.probe import credentials_kind, probe_dataset, probe_new_dataset
from tideline_console import doctor_bigquery
from tideline_console.doctor_bigquery import check_bigquery
from tideline_console.modes import check_modes

CANARY = "canary-93b1"
Found = list[tuple[str, str, str]]


def settings_of(keys: Mapping[str, Any], table_format: str = "bigquery") -> Settings:
    return make_settings(
        {
            "pipeline": "p",
            "source": {"url": "postgresql://u@h/d"},
            "store": {"url": "file:///nothing/here"},
            "warehouse": {"url": "file:///w", "format": table_format, "bigquery": dict(keys)},
        }
    )


def keys_of(dataset: Dataset, **more: Any) -> dict[str, Any]:
    return {"project": PROJECT, "endpoint": dataset.front.endpoint, **more}


def place_of(dataset: Dataset, **more: Any) -> BigQueryPlace:
    return BigQueryPlace.of(settings_of(keys_of(dataset, **more)).warehouse)


def found(keys: Mapping[str, Any], *, grave: bool = False) -> Found:
    listed = list(check_bigquery(settings_of(keys), grave=grave))
    assert CANARY not in repr(listed)
    assert all(one.fix for one in listed if one.level != "ok")
    return [(one.level, one.name, one.message) for one in listed]


def left(dataset: Dataset) -> list[str]:
    """What a probe has left: tables in the dataset, and datasets of its own."""
    names = [one.dataset_id for one in dataset.client.list_datasets()]
    tables = [one.table_id for one in dataset.client.list_tables(dataset.name)]
    return [*tables, *(name for name in names if "probe" in name)]


@pytest.fixture
def known(dataset: Dataset, monkeypatch: pytest.MonkeyPatch) -> Dataset:
    """A dataset that the chain has tables of."""
    monkeypatch.setattr(doctor_bigquery, "_datasets", lambda settings: [dataset.name])
    return dataset


def test_a_project_that_can_be_used(known: Dataset) -> None:
    credentials, reached = found(keys_of(known))
    assert credentials[:2] == ("ok", "bigquery_credentials")
    assert reached[:2] == ("ok", "bigquery") and known.name in reached[2]
    assert left(known) == []


def test_a_pipeline_that_names_no_project_has_no_findings() -> None:
    assert list(check_bigquery(settings_of({}, "delta"))) == []


def test_a_project_of_tables_from_before_is_looked_at(dataset: Dataset) -> None:
    """New tables are Delta tables; others may have been moved to BigQuery."""
    findings = list(check_bigquery(settings_of(keys_of(dataset), "delta")))
    assert [one.level for one in findings] == ["ok", "ok"]


def test_before_the_first_table_a_dataset_is_made_and_removed(dataset: Dataset) -> None:
    (_, made) = found(keys_of(dataset, dataset_prefix="erp"))
    assert made[:2] == ("ok", "bigquery") and "datasets can be made" in made[2]
    asked = [one for one in dataset.front.calls if "erp__tideline_probe_" in one.path]
    assert {one.method for one in asked} >= {"POST", "GET", "DELETE"}
    assert left(dataset) == []


def test_a_dataset_that_is_not_there_yet_is_named(
    dataset: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    listed = [dataset.name, "not_there_yet"]
    monkeypatch.setattr(doctor_bigquery, "_datasets", lambda settings: listed)
    there, absent = found(keys_of(dataset))[1:]
    assert dataset.name in there[2] and "not_there_yet" in absent[2]
    assert (there[0], absent[0]) == ("ok", "ok")


@pytest.mark.parametrize(
    ("permission", "role"),
    [
        ("bigquery.datasets.get", "BigQuery User on the project"),
        ("bigquery.tables.create", "BigQuery Data Editor on the dataset"),
        ("bigquery.jobs.create", "BigQuery User on the project"),
        ("bigquery.tables.updateData", "BigQuery Data Editor on the dataset"),
        ("bigquery.jobs.list", "BigQuery User on the project"),
        ("bigquery.tables.get", "BigQuery Data Editor on the dataset"),
        ("bigquery.tables.getData", "BigQuery Data Editor on the dataset"),
        ("bigquery.tables.delete", "BigQuery Data Editor on the dataset"),
    ],
)
def test_a_missing_permission_is_named_with_its_role(
    known: Dataset, permission: str, role: str
) -> None:
    known.front.denied.add(permission)
    with pytest.raises(Misconfigured) as refused:
        probe_dataset(place_of(known), known.name)
    assert refused.value.message.endswith(f"it lacks {permission}")
    assert role in str(refused.value.hint)
    for grave, level in ((False, "warning"), (True, "error")):
        assert found(keys_of(known), grave=grave)[1][:2] == (level, "bigquery")
    known.front.denied.clear()
    assert bool(left(known)) is (permission == "bigquery.tables.delete")


def test_a_probe_that_is_killed_leaves_a_table_that_expires(
    known: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The emulator forgets the time."""
    made: list[bigquery.Table] = []
    create = bigquery.Client.create_table

    def noted(client: bigquery.Client, table: bigquery.Table) -> bigquery.Table:
        made.append(table)
        return create(client, table)

    monkeypatch.setattr(bigquery.Client, "create_table", noted)
    before = datetime.now(UTC)
    assert probe_dataset(place_of(known), known.name)
    (table,) = made
    assert table.expires is not None
    assert timedelta(0) < table.expires - before < timedelta(hours=2)


@pytest.mark.parametrize(
    ("permission", "role"),
    [
        ("bigquery.datasets.create", "BigQuery User on the project"),
        ("bigquery.tables.updateData", "BigQuery Data Editor on the dataset"),
        ("bigquery.datasets.delete", "BigQuery Data Owner on it"),
    ],
)
def test_a_missing_permission_of_datasets(dataset: Dataset, permission: str, role: str) -> None:
    dataset.front.denied.add(permission)
    with pytest.raises(Misconfigured, match=f"lacks {permission}") as refused:
        probe_new_dataset(place_of(dataset, dataset_prefix=dataset.name), dataset.name)
    assert role in str(refused.value.hint)
    dataset.front.denied.clear()
    names = left(dataset)
    assert bool(names) is (permission == "bigquery.datasets.delete")
    for name in names:
        dataset.client.delete_dataset(name, delete_contents=True)


def test_a_dataset_of_another_location(known: Dataset) -> None:
    (level, _, text) = found(keys_of(known, location="europe-west3"), grave=True)[1]
    assert level == "error" and "jobs run in europe-west3" in text
    assert left(known) == []


def test_rows_that_another_server_makes_up(known: Dataset, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probe, "_script", lambda name: "SELECT 1; SELECT 2;")
    assert "gave [1] for the rows" in found(keys_of(known))[1][2]
    assert left(known) == []


def test_no_project_no_library_no_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(Misconfigured, match="no project is named"):
        found({})
    away = {"project": PROJECT, "endpoint": f"http://127.0.0.1:{free_port()}"}
    monkeypatch.setattr(bigquery.Client, "get_dataset", _gives_up)
    monkeypatch.setattr(doctor_bigquery, "_datasets", lambda settings: ["shop"])
    assert "gave no answer to see the dataset shop" in found(away)[1][2]
    with monkeypatch.context() as without:
        without.setitem(sys.modules, "google.cloud.bigquery", None)
        (only,) = found(away, grave=True)
    assert only[0] == "error" and "google-cloud-bigquery is not installed" in only[2]


def _gives_up(*_: Any, **__: Any) -> None:
    raise ConnectionError(CANARY)


def test_a_file_of_credentials_that_cannot_be_read(tmp_path: Path) -> None:
    file = tmp_path / "key.json"
    keys = {"project": PROJECT, "credentials_file": str(file)}
    for text in (None, f"{CANARY}", json.dumps({"type": "service_account", "k": CANARY})):
        if text is not None:
            file.write_text(text)
        (only,) = found(keys, grave=True)
        assert only[:2] == ("error", "bigquery_credentials")
        assert "no usable credentials for BigQuery" in only[2]


def test_a_workload_identity_is_named_and_its_refusal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, token = tmp_path / "identity.json", tmp_path / "token"
    token.write_text(CANARY)
    configuration = {
        "type": "external_account",
        "audience": "//iam.googleapis.com/projects/1/locations/global/workloadIdentityPools/p/p/p",
        "subject_token_type": "urn:ietf:params:oauth:token-type:jwt",
        "token_url": "https://sts.googleapis.com/v1/token",
        "credential_source": {"file": str(token)},
    }
    file.write_text(json.dumps(configuration))
    monkeypatch.setattr(identity_pool.Credentials, "refresh", _refuses)
    keys = {"project": PROJECT, "credentials_file": str(file)}
    (at_once,) = found(keys, grave=True)
    assert at_once[0] == "error" and "no usable credentials for BigQuery" in at_once[2]
    # A pool of no project that it can ask for.
    monkeypatch.setattr(identity_pool.Credentials, "get_project_id", lambda *_, **__: None)
    named, refused = found(keys, grave=True)
    assert named[0] == "ok" and named[2].startswith("a workload identity, of ")
    assert refused[0] == "error" and "refuses the credentials" in refused[2]


def _refuses(*_: Any, **__: Any) -> None:
    raise RefreshError(CANARY)  # type: ignore[no-untyped-call]


def test_application_default_credentials(dataset: Dataset, monkeypatch: pytest.MonkeyPatch) -> None:
    place = place_of(dataset)
    for made, kind in (
        (people.Credentials(CANARY), "a person's login"),  # type: ignore[no-untyped-call]
        (compute_engine.Credentials(), "the service account of this machine"),  # type: ignore[no-untyped-call]
    ):
        client = dataset.front.client()
        client._credentials = made
        with monkeypatch.context() as patched:
            patched.setattr(probe, "open_client", lambda place, client=client: client)
            assert credentials_kind(place) == kind
    monkeypatch.setattr(doctor_bigquery, "credentials_kind", lambda place: probe.PERSON)
    person, reached = found(keys_of(dataset))
    assert person[0] == "warning" and "person's rights" in person[2]
    assert reached[0] == "ok", "and the rest is looked at"


def test_a_key_that_everyone_may_read(tmp_path: Path) -> None:
    key, path = tmp_path / "key.json", tmp_path / "tideline.toml"
    key.write_text("{}")
    key.chmod(0o644)
    path.write_text("")
    settings = settings_of({"project": PROJECT, "credentials_file": str(key)})
    texts = [one.message for one in check_modes(settings, path)]
    assert any("warehouse.bigquery.credentials_file" in one for one in texts)
