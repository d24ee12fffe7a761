"""OpenLineage events: what they say, and that nobody who listens can hold up or fail a merge."""

from __future__ import annotations

import json
import socket
import sys
import threading
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from openlineage.client.event_v2 import RunEvent
from openlineage.client.serde import Serde
from pydantic import SecretStr

from tests.fixtures.listener import listener
from tideline.contract.errors import Misconfigured
from tideline.contract.plan import Plan, TablePlan
from tideline.contract.receipt import ColumnLineage, Outcome, Receipt, TableReceipt
from tideline.contract.schema import Column, TableSchema
from tideline.openlineage import run_with_lineage
from tideline.openlineage.events import ended, run_id, started
from tideline.openlineage.sender import EventSender
from tideline.settings import Openlineage, Settings, make_settings

AT = datetime(2026, 1, 15, 12, 0, 0, 5000, tzinfo=UTC)
POSTGRES = "postgresql://capture:hush@db.example/shop"
MARIADB = "mariadb://capture:hush@db.example:3307/"


def settings(source: str = POSTGRES, **openlineage: Any) -> Settings:
    return make_settings(
        {
            "pipeline": "shop",
            "source": {"url": source},
            "store": {"url": "file:///store"},
            "warehouse": {"url": "file:///warehouse"},
            "openlineage": {"namespace": "prod", **openlineage},
        }
    )


def body(event: RunEvent) -> dict[Any, Any]:
    return Serde.to_dict(event)


def end(one: Plan, receipt: Receipt | None, source: str = MARIADB) -> dict[Any, Any]:
    return body(ended(settings(source), one, AT, receipt))


def some_event() -> RunEvent:
    return started(settings(), plan(), AT)


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


def test_a_run_is_reported_from_its_start_to_its_end() -> None:
    done = receipt(orders=Outcome.APPLIED)
    warnings: list[str] = []
    with listener() as (url, heard):
        chosen = settings(url=url, api_key="canary-key")
        one = plan("public.orders")
        assert run_with_lineage(chosen, one, lambda: done, warnings.append) is done
    assert warnings == []
    assert {path for path, _, _ in heard} == {"/api/v1/lineage"}
    assert {headers["Authorization"] for _, headers, _ in heard} == {"Bearer canary-key"}
    start, end = (event for _, _, event in heard)
    assert start["producer"] == end["producer"] == "urn:tideline"
    assert (start["eventType"], end["eventType"]) == ("START", "COMPLETE")
    assert start["run"]["runId"] == end["run"]["runId"] == run_id("shop", "run/1")
    assert (end["job"]["namespace"], end["job"]["name"]) == ("prod", "shop.merge")
    assert some_event().eventTime == "2026-01-15T12:00:00.005+00:00"
    [origin], [output] = end["inputs"], end["outputs"]
    assert (origin["namespace"], origin["name"]) == (
        "postgres://db.example:5432",
        "shop.public.orders",
    )
    assert (output["namespace"], output["name"]) == ("file", "/warehouse/public/orders")
    types = {one["name"]: one["type"] for one in output["facets"]["schema"]["fields"]}
    assert types == {"id": "int64", "at": "timestamp"}
    fields = output["facets"]["columnLineage"]["fields"]
    [read] = fields["at"]["inputFields"]
    wanted = {"namespace": origin["namespace"], "name": origin["name"], "field": "at"}
    assert wanted.items() <= read.items()
    assert output["outputFacets"]["outputStatistics"]["rowCount"] == 5
    assert "hush" not in json.dumps([start, end]) and "capture" not in json.dumps([start, end])
    for facet in (*output["facets"].values(), *output["outputFacets"].values()):
        assert facet["_producer"] and facet["_schemaURL"].startswith("https://openlineage.io/spec/")


def test_a_table_that_failed_fails_the_run_and_is_no_output_of_it() -> None:
    two = plan("public.orders", "public.items")
    outcomes = receipt(orders=Outcome.FAILED, items=Outcome.APPLIED)
    event = end(two, outcomes)
    assert event["eventType"] == "FAIL"
    assert "public.orders: lost a disk" in event["run"]["facets"]["errorMessage"]["message"]
    assert [one["name"] for one in event["inputs"]] == ["public.items"]
    assert event["inputs"][0]["namespace"] == "mysql://db.example:3307"
    assert end(two, None)["eventType"] == "FAIL"


def test_what_is_written_is_told_and_not_what_the_target_does_not_take() -> None:
    one = plan("public.orders")
    lineage = (ColumnLineage("id", "int64"),)
    written = TableReceipt("public.orders", Outcome.APPLIED, 2, 2, lineage=lineage)
    event = end(one, Receipt("run/1", "shop", "i", (written,)), POSTGRES)
    [facets] = [output["facets"] for output in event["outputs"]]
    assert set(facets["columnLineage"]["fields"]) == {"id"}
    assert [field["name"] for field in facets["schema"]["fields"]] == ["id"]
    at_source = event["inputs"][0]["facets"]["schema"]["fields"]
    assert {field["name"]: field["type"] for field in at_source} == {
        "id": "bigint",
        "at": "timestamptz",
    }


def test_names_in_s3() -> None:
    event = started(settings(), plan("public.orders", target="s3://lake/shop/orders"), AT)
    [output] = event.outputs or []
    assert (output.namespace, output.name) == ("s3://lake", "shop/orders")


@pytest.mark.parametrize("status", [302, 401, 503])
def test_an_answer_that_is_no_yes_is_counted_and_named(status: int) -> None:
    with listener(status) as (url, heard):
        sender = EventSender(Openlineage(url=url, api_key=SecretStr("canary-key")))
        sender.send(some_event())
        sender.send(some_event())
    # A redirect is not followed, it would take the key elsewhere; nothing is sent again.
    assert len(heard) == 2
    losses = sender.losses()
    assert losses == f"2 of 2 OpenLineage events were not delivered: status {status} (2)"
    assert "canary" not in losses + repr(sender)


@pytest.mark.parametrize("key", ["canary-key", None])
def test_a_password_of_netrc_does_not_replace_the_key(
    key: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    netrc = tmp_path / "netrc"
    netrc.write_text("machine 127.0.0.1 login me password hush\n")
    netrc.chmod(0o600)
    monkeypatch.setenv("NETRC", str(netrc))
    with listener() as (url, heard):
        chosen = Openlineage(url=url, api_key=None if key is None else SecretStr(key))
        EventSender(chosen).send(some_event())
    [(_, headers, _)] = heard
    assert headers["Authorization"] == (None if key is None else f"Bearer {key}")


def test_a_proxy_of_the_environment_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    with listener() as (proxy, heard):
        monkeypatch.setenv("http_proxy", proxy)
        chosen = Openlineage(url="http://lineage.invalid", api_key=SecretStr("canary-key"))
        EventSender(chosen).send(some_event())
    [(path, headers, _)] = heard
    assert path == "http://lineage.invalid/api/v1/lineage"
    assert headers["Authorization"] == "Bearer canary-key"


def test_an_empty_variable_sets_nothing() -> None:
    chosen = settings(url="", api_key="")
    assert (chosen.openlineage.url, chosen.openlineage.api_key) == (None, None)
    with listener() as (url, heard):
        done = receipt(orders=Outcome.APPLIED)
        empty = settings(url=url, api_key="")
        assert run_with_lineage(empty, plan("public.orders"), lambda: done, pytest.fail) is done
    assert [headers["Authorization"] for _, headers, _ in heard] == [None, None]


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("http://marquez:99999", "a port that is not a number from 1 to 65535"),
        ("http://marquez:0", "a port that is not a number from 1 to 65535"),
        ("http://mar quez:5000", "a host with a space"),
        ("ftp://marquez", "must be https://host:port"),
    ],
)
def test_a_url_that_cannot_be_one_is_a_mistake_in_the_settings(url: str, reason: str) -> None:
    with pytest.raises(Misconfigured, match=rf"openlineage\.url: .*{reason}"):
        settings(url=url)


@pytest.mark.parametrize("wrong", [{"url": "http://mar quez"}, {"api_key": SecretStr("")}, "plan"])
def test_an_event_that_cannot_be_made_fails_no_merge(wrong: Any) -> None:
    done, warnings = receipt(orders=Outcome.APPLIED), list[str]()
    one, chosen = plan("public.orders"), settings(url="http://127.0.0.1:1")
    if wrong == "plan":
        one = replace(one, tables=(replace(one.tables[0], table="nameless"),))
    else:  # what the settings do not let through
        section = chosen.openlineage.model_copy(update=wrong)
        chosen = chosen.model_copy(update={"openlineage": section})
    assert run_with_lineage(chosen, one, lambda: done, warnings.append) is done
    [warning] = warnings
    assert warning.startswith("an OpenLineage event could not be made: ")
    assert "quez" not in warning and "nameless" not in warning


def test_an_event_of_the_end_that_cannot_be_made_fails_no_merge(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fails(*_: Any) -> None:
        raise KeyError("hush")

    monkeypatch.setattr("tideline.openlineage.events.ended", fails)
    done, warnings = receipt(orders=Outcome.APPLIED), list[str]()
    with listener() as (url, _):
        chosen = settings(url=url)
        assert run_with_lineage(chosen, plan("public.orders"), lambda: done, warnings.append)
    assert len(warnings) == 1 and "KeyError" in warnings[0] and "hush" not in warnings[0]


def test_a_path_in_the_url_is_kept() -> None:
    with listener() as (url, heard):
        EventSender(Openlineage(url=f"{url}/lineage", endpoint="/api/v2")).send(some_event())
    assert [path for path, _, _ in heard] == ["/lineage/api/v2"]


def test_a_receiver_that_is_away_or_does_not_answer() -> None:
    with closing(socket.socket()) as silent:
        silent.bind(("127.0.0.1", 0))
        port = silent.getsockname()[1]
        away = EventSender(Openlineage(url=f"http://127.0.0.1:{port}"))
        away.send(some_event())
        assert away.lost == {"ConnectionError": 1}
        silent.listen()
        mute = EventSender(Openlineage(url=f"http://127.0.0.1:{port}", timeout_s=0.2))
        mute.send(some_event())
        assert mute.lost == {"ReadTimeout": 1}


def test_a_listener_that_does_not_speak_http_fails_no_merge() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:

        def answer() -> None:
            peer, _ = server.accept()
            with peer:
                peer.recv(65_536)
                peer.sendall(b"-ERR unknown command 'POST'\r\n")

        thread = threading.Thread(target=answer, daemon=True)
        thread.start()
        sender = EventSender(Openlineage(url=f"http://127.0.0.1:{server.getsockname()[1]}"))
        sender.send(some_event())
        thread.join()
    assert sender.losses() == "1 of 1 OpenLineage events were not delivered: ConnectionError (1)"


def test_a_run_that_raises_is_reported_as_failed_and_raises() -> None:
    def fails() -> Receipt:
        raise OSError("the disk is full")

    with listener() as (url, heard), pytest.raises(OSError, match="the disk is full"):
        run_with_lineage(settings(url=url), plan("public.orders"), fails, print)
    assert [event["eventType"] for _, _, event in heard] == ["START", "FAIL"]


def test_a_merge_without_the_client_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("events", "sender"):
        monkeypatch.setitem(sys.modules, f"tideline.openlineage.{name}", None)
        monkeypatch.delattr(f"tideline.openlineage.{name}")
    done, warnings = receipt(orders=Outcome.APPLIED), list[str]()
    chosen = settings(url="http://127.0.0.1:1")
    assert run_with_lineage(chosen, plan("public.orders"), lambda: done, warnings.append) is done
    assert len(warnings) == 1 and "tideline-cdc[lineage]" in warnings[0]


def test_a_table_that_the_receipt_does_not_name_is_not_called_written() -> None:
    two = plan("public.orders", "public.items")
    event = end(two, receipt(items=Outcome.APPLIED))
    assert [one["name"] for one in event["inputs"]] == ["public.items"]


def test_nothing_is_sent_without_an_address(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tideline.openlineage.sender", None)
    done, warnings = receipt(orders=Outcome.APPLIED), list[str]()
    assert run_with_lineage(settings(), plan("public.orders"), lambda: done, warnings.append)
    assert warnings == []
