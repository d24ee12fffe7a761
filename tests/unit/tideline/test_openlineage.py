"""OpenLineage events: what they say, and that nobody who listens can hold up or fail a merge."""

from __future__ import annotations

import json
import socket
import threading
from contextlib import closing
from datetime import UTC, datetime

import pytest
from pydantic import SecretStr

from tests.fixtures.listener import listener
from tideline.contract.plan import Plan, TablePlan
from tideline.contract.receipt import ColumnLineage, Outcome, Receipt, TableReceipt
from tideline.contract.schema import Column, TableSchema
from tideline.openlineage import Emitter, ended, run_id, started
from tideline.settings import Openlineage, SourceSettings

AT = datetime(2026, 1, 15, 12, 0, 0, 5000, tzinfo=UTC)
POSTGRES = SourceSettings(url=SecretStr("postgresql://capture:hush@db.example/shop"))
MARIADB = SourceSettings(url=SecretStr("mariadb://capture:hush@db.example:3307/"))


def plan(*names: str, target: str = "file:///warehouse/public/orders") -> Plan:
    def table(name: str) -> TablePlan:
        columns = (
            Column("id", "int64", "bigint", nullable=False),
            Column("at", "timestamp", "timestamptz"),
        )
        schema = TableSchema(name, columns, ("id",))
        return TablePlan(name, target, schema, {schema.fingerprint: schema}, (), 1, 1, 2, 2, "app")

    return Plan("run/1", "shop", "i", "file:///store", 2, tuple(table(name) for name in names))


def receipt(**outcomes: Outcome) -> Receipt:
    tables = tuple(
        TableReceipt(f"public.{name}", outcome, 2, 2, inserted=3, updated=2, error="lost a disk")
        for name, outcome in outcomes.items()
    )
    return Receipt("run/1", "shop", "i", tables)


def test_a_run_is_told_from_its_start_to_its_end() -> None:
    with listener() as (url, heard):
        emitter = Emitter(Openlineage(url=url, namespace="prod", api_key=SecretStr("canary-key")))
        emitter.emit(started(plan("public.orders"), POSTGRES, "prod", AT))
        done = receipt(orders=Outcome.APPLIED)
        emitter.emit(ended(plan("public.orders"), POSTGRES, "prod", AT, done))
    assert (emitter.sent, emitter.told()) == (2, None)
    assert {path for path, _, _ in heard} == {"/api/v1/lineage"}
    assert {headers["Authorization"] for _, headers, _ in heard} == {"Bearer canary-key"}
    start, end = (body for _, _, body in heard)
    assert (start["eventType"], end["eventType"]) == ("START", "COMPLETE")
    assert start["run"]["runId"] == end["run"]["runId"] == run_id("shop", "run/1")
    assert end["job"] == {"namespace": "prod", "name": "shop.merge"}
    assert end["eventTime"] == "2026-01-15T12:00:00.005+00:00"
    [origin], [output] = end["inputs"], end["outputs"]
    assert (origin["namespace"], origin["name"]) == (
        "postgres://db.example:5432",
        "shop.public.orders",
    )
    assert (output["namespace"], output["name"]) == ("file", "/warehouse/public/orders")
    types = {one["name"]: one["type"] for one in output["facets"]["schema"]["fields"]}
    assert types == {"id": "int64", "at": "timestamp"}
    fields = output["facets"]["columnLineage"]["fields"]
    assert fields["at"]["inputFields"] == [
        {"namespace": origin["namespace"], "name": origin["name"], "field": "at"}
    ]
    assert output["outputFacets"]["outputStatistics"]["rowCount"] == 5
    assert "hush" not in json.dumps([start, end]) and "capture" not in json.dumps([start, end])
    for facet in (*output["facets"].values(), *output["outputFacets"].values()):
        assert facet["_producer"] and facet["_schemaURL"].startswith("https://openlineage.io/spec/")


def test_a_table_that_failed_fails_the_run_and_is_no_output_of_it() -> None:
    two = plan("public.orders", "public.items")
    outcomes = receipt(orders=Outcome.FAILED, items=Outcome.APPLIED)
    event = ended(two, MARIADB, "prod", AT, outcomes)
    assert event["eventType"] == "FAIL"
    assert "public.orders: lost a disk" in event["run"]["facets"]["errorMessage"]["message"]
    assert [one["name"] for one in event["inputs"]] == ["public.items"]
    assert event["inputs"][0]["namespace"] == "mysql://db.example:3307"
    assert ended(two, MARIADB, "prod", AT, None)["eventType"] == "FAIL"


def test_what_is_written_is_told_and_not_what_the_target_does_not_take() -> None:
    one = plan("public.orders")
    lineage = (ColumnLineage("id", "int64"),)
    written = TableReceipt("public.orders", Outcome.APPLIED, 2, 2, lineage=lineage)
    event = ended(one, POSTGRES, "prod", AT, Receipt("run/1", "shop", "i", (written,)))
    [facets] = [output["facets"] for output in event["outputs"]]
    assert set(facets["columnLineage"]["fields"]) == {"id"}
    assert [field["name"] for field in facets["schema"]["fields"]] == ["id"]
    at_source = event["inputs"][0]["facets"]["schema"]["fields"]
    assert {field["name"]: field["type"] for field in at_source} == {
        "id": "bigint",
        "at": "timestamptz",
    }


def test_names_in_s3() -> None:
    event = started(plan("public.orders", target="s3://lake/shop/orders"), MARIADB, "prod", AT)
    output = event["outputs"][0]
    assert (output["namespace"], output["name"]) == ("s3://lake", "shop/orders")


@pytest.mark.parametrize("status", [302, 401, 503])
def test_an_answer_that_is_no_yes_is_counted_and_named(status: int) -> None:
    with listener(status) as (url, heard):
        emitter = Emitter(Openlineage(url=url, api_key=SecretStr("canary-key")))
        emitter.emit({"eventType": "START"})
        emitter.emit({"eventType": "FAIL"})
    # A redirect is not followed: it would take the key elsewhere.
    assert len(heard) == 2
    told = emitter.told() or ""
    assert told == f"2 of 2 OpenLineage events were not delivered: status {status} (2)"
    assert "canary" not in told + repr(emitter)


def test_nobody_there_or_nobody_who_answers() -> None:
    with closing(socket.socket()) as silent:
        silent.bind(("127.0.0.1", 0))
        port = silent.getsockname()[1]
        away = Emitter(Openlineage(url=f"http://127.0.0.1:{port}"))
        away.emit({})
        assert away.lost == {"ConnectionRefusedError": 1}
        silent.listen()
        mute = Emitter(Openlineage(url=f"http://127.0.0.1:{port}", timeout_s=0.2))
        mute.emit({})
        assert mute.lost == {"TimeoutError": 1}


def test_a_listener_that_does_not_speak_http_fails_no_merge() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:

        def answer() -> None:
            peer, _ = server.accept()
            with peer:
                peer.recv(65_536)
                peer.sendall(b"-ERR unknown command 'POST'\r\n")

        thread = threading.Thread(target=answer, daemon=True)
        thread.start()
        emitter = Emitter(Openlineage(url=f"http://127.0.0.1:{server.getsockname()[1]}"))
        emitter.emit({"eventType": "START"})
        thread.join()
    assert emitter.told() == "1 of 1 OpenLineage events were not delivered: BadStatusLine (1)"


def test_a_table_that_the_receipt_does_not_name_is_not_called_written() -> None:
    two = plan("public.orders", "public.items")
    event = ended(two, MARIADB, "prod", AT, receipt(items=Outcome.APPLIED))
    assert [one["name"] for one in event["inputs"]] == ["public.items"]


def test_nothing_is_sent_without_an_address() -> None:
    emitter = Emitter(Openlineage())
    emitter.emit({})
    assert (emitter.wanted, emitter.sent, emitter.told()) == (False, 0, None)
