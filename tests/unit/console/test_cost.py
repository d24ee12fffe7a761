"""``tideline cost``: its document, where its numbers come from, and the table in the docs."""

from __future__ import annotations

import json
import re
import shlex
from contextlib import chdir
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from tests.fixtures.core import first_manifest
from tests.fixtures.settings import as_toml
from tideline.contract.errors import Misconfigured
from tideline.contract.manifest import ManifestKind, Part
from tideline.contract.open_state import OpenState, TableCondition, TableState
from tideline.cost import RequestRates
from tideline.settings import Capture, Retention, load_settings
from tideline.store.chain import Chain
from tideline.store.objects import open_store
from tideline_console import app as entry

DOCUMENT = Path(__file__).resolve().parents[3] / "docs" / "COST.md"


def cost(folder: Path, *words: str) -> str:
    """What the command prints in ``folder``; raises what it raises."""
    with chdir(folder):
        done = CliRunner().invoke(entry.app, ["cost", *words])
    if done.exception is not None:
        raise done.exception
    return done.stdout


def document(folder: Path, *words: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(cost(folder, "--json", *words))
    return found


def settings_in(folder: Path, **sections: Any) -> None:
    values: dict[str, Any] = {
        "pipeline": "shop",
        "source": {"url": "postgresql://u@h/d"},
        "store": {"url": (folder / "store").as_uri()},
        "warehouse": {"url": "file:///w"},
    }
    for name, section in sections.items():
        values[name] = {**values.get(name, {}), **section}
    (folder / "tideline.toml").write_text(as_toml(values))


def test_the_table_in_the_docs_is_what_the_command_prints(tmp_path: Path) -> None:
    found = re.search(r"^\$ (tideline cost .*?)\n(.*?)\n```", DOCUMENT.read_text(), re.M | re.S)
    assert found is not None
    printed = cost(tmp_path, *shlex.split(found[1])[2:])
    assert [line.rstrip() for line in printed.rstrip().splitlines()] == found[2].splitlines()
    assert re.search(r"flush interval +1 s +5 s +30 s +60 s", found[2])
    assert found[2].startswith("100 tables, 100 of them busy")


def test_the_document_adds_up(tmp_path: Path) -> None:
    found = document(tmp_path, "--tables", "7", "--busy", "3", "--flush-s", "1", "--flush-s", "9")
    assert (found["traffic"]["tables"], found["traffic"]["busy"]) == (7, 3)
    assert [day["flush_s"] for day in found["days"]] == [1, 9]
    for day in found["days"]:
        assert day["puts"]["parts"] == day["parts"]
        assert day["puts"]["manifests"] == day["segments"] + day["heartbeats"]


def test_prices_are_options(tmp_path: Path) -> None:
    free = document(tmp_path, "--put-price", "0", "--get-price", "0", "--gb-month-price", "0")
    assert free["days"][0]["price_per_month"] == 0
    puts = document(tmp_path, "--put-price", "1", "--get-price", "0", "--gb-month-price", "0")
    (day,) = puts["days"]
    assert day["price_per_month"] == pytest.approx(30 * sum(day["puts"].values()) / 1000)


def test_what_is_not_given_is_in_the_settings(tmp_path: Path) -> None:
    settings_in(
        tmp_path,
        source={"tables": ["public.a", "public.b"]},
        capture={"flush_interval_s": 2.0, "heartbeat_s": 3.0},
        retention={"parts_days": 30.0},
    )
    found = document(tmp_path, "--passive", "2")
    assert (found["traffic"]["tables"], found["traffic"]["busy"]) == (2, 2)
    rates = found["pace"]
    assert (rates["flush_s"], rates["heartbeat_s"], rates["parts_days"]) == (2, 3, 30)
    assert rates["passive"] == 2
    assert document(tmp_path, "--tables", "9", "--heartbeat-s", "4")["traffic"]["tables"] == 9


def test_a_warehouse_in_folders_has_no_requests(tmp_path: Path) -> None:
    def asked(url: str) -> tuple[float, float]:
        settings_in(tmp_path, warehouse={"url": url})
        [day] = document(tmp_path, "--tables", "9")["days"]
        return day["puts"]["warehouse"], day["gets"]["warehouse"]

    assert asked("file:///w") == (0, 0)
    assert min(asked("s3://lake/shop")) > 0


def test_what_bigquery_bills_is_not_counted_and_named(tmp_path: Path) -> None:
    settings_in(tmp_path, warehouse={"url": "s3://lake/shop"})
    assert "not_counted" not in document(tmp_path) or document(tmp_path)["not_counted"] == []
    assert "BigQuery" not in cost(tmp_path)
    project = {"project": "my-project"}
    warehouse = {"url": "s3://lake/shop", "format": "bigquery", "bigquery": project}
    settings_in(tmp_path, warehouse=warehouse)
    (line,) = document(tmp_path)["not_counted"]
    assert "bytes_billed" in line and line.split()[0] in cost(tmp_path)
    (day,) = document(tmp_path)["days"]
    assert (day["puts"]["warehouse"], day["gets"]["warehouse"]) == (0, 0)


def test_patterns_say_nothing_of_how_many_tables_there_are(tmp_path: Path) -> None:
    settings_in(tmp_path, source={"tables": ["public.*"]})
    assert document(tmp_path)["traffic"]["tables"] == 100


def test_settings_with_a_mistake_are_refused(tmp_path: Path) -> None:
    settings_in(tmp_path, capture={"flush_interval_s": -1.0})
    with pytest.raises(Misconfigured, match="flush_interval_s"):
        cost(tmp_path)
    with pytest.raises(Misconfigured, match="no settings file"):
        cost(tmp_path, "--config", "missing.toml")


def test_the_models_defaults_are_those_of_the_settings() -> None:
    rates, capture, retention = RequestRates(), Capture(), Retention()
    assert (rates.flush_s, rates.heartbeat_s) == (capture.flush_interval_s, capture.heartbeat_s)
    assert rates.takeover_after_s == capture.takeover_after_s
    assert rates.catalog_interval_s == capture.catalog_interval_s
    assert rates.segment_bytes_max == capture.segment_bytes_max
    assert rates.rollup_file_bytes_max == capture.rollup_file_bytes_max
    assert rates.parts_days == retention.parts_days
    assert rates.removal_interval_s == retention.interval_s


def chain_of(folder: Path, *, minutes: int) -> None:
    """A chain of a manifest a minute: an empty one first; 60 changes of one table in each other,
    and a dumped row of another in the second."""
    chain = Chain(open_store(load_settings(folder / "tideline.toml").store), "shop")
    tables = {"public.a": TableState(), "public.b": TableState(), "public.c": TableState()}
    tables["public.d"] = TableState(condition=TableCondition.QUARANTINED)
    entry, seq = None, 0
    for number in range(1, minutes + 2):
        parts = [part("public.a", seq, {"c": 20, "u": 40})] if number > 1 else []
        parts += [part("public.b", seq + 60, {"r": 1})] if number == 2 else []
        first, seq = seq + 1, seq + sum(one.rows for one in parts)
        manifest = first_manifest(
            pipeline="shop",
            manifest_number=number,
            previous_digest="" if entry is None else entry.digest,
            kind=ManifestKind.SEGMENT if parts else ManifestKind.HEARTBEAT,
            first_seq=first,
            last_seq=seq,
            written_at_us=1_000_000 + number * 60_000_000,
            parts=tuple(parts),
            state=OpenState(tables=tables),
        )
        entry = chain.append(manifest)


def part(table: str, after_seq: int, operations: dict[str, int]) -> Part:
    rows = sum(operations.values())
    return Part(
        key=f"shop/{table}/{after_seq}",
        table=table,
        schema="0" * 16,
        rows=rows,
        operations=operations,
        bytes=660,
        digest="0" * 64,
        first_seq=after_seq + 1,
        last_seq=after_seq + rows,
    )


def test_without_a_word_it_is_the_pipeline_at_hand(tmp_path: Path) -> None:
    settings_in(tmp_path, control={"url": "redis://127.0.0.1:1/0"})
    chain_of(tmp_path, minutes=10)
    found = document(tmp_path)
    measured, traffic = found["measured"], found["traffic"]
    assert (measured["first"], measured["last"], measured["span_s"]) == (1, 11, 600)
    assert (measured["changes"], measured["dumped"], measured["parts"]) == (600, 1, 11)
    assert (traffic["tables"], traffic["busy"], traffic["changes_per_s"]) == (3, 1, 1.0)
    printed = cost(tmp_path)
    assert (
        "measured in manifests 1 to 11, 10 minutes: 600 changes in 11 parts (1,584 a day)"
        in printed
    )
    assert "3 tables, 1 of them busy; 1 changes per second" in printed
    assert document(tmp_path, "--changes-per-s", "7")["measured"] is None


def test_a_chain_that_tells_no_rate(tmp_path: Path) -> None:
    """The model's traffic, and the reason on standard error."""
    settings_in(tmp_path, control={"url": "redis://127.0.0.1:1/0"})
    for words in ((), ("--flush-s", "9")):
        with chdir(tmp_path):
            done = CliRunner().invoke(entry.app, ["cost", "--json", *words])
        assert json.loads(done.stdout)["traffic"]["tables"] == 100
        assert "too short for a rate" in done.stderr
    chain_of(tmp_path, minutes=0)
    assert document(tmp_path)["measured"] is None
