"""A search cluster as an output: what is sent again, put aside, or stops it."""

from __future__ import annotations

import json
import ssl
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from devtools.services.search_stand_in import SearchServer, StandInIndex
from tests.fixtures.certificates import make_authority, sign
from tests.fixtures.publishing import BEGINNING, SkippedPauses
from tests.publish.documents import Documents
from tideline.contract.errors import Misconfigured, Unavailable
from tideline.contract.publishing import ChainPosition
from tideline.settings import PublishSettings
from tideline.system import RealSystem
from tideline_publish.events import ChangeEvent
from tideline_publish.outputs.base import OutputContext
from tideline_publish.outputs.opensearch.output import OpenSearchOutput

INDEX = "shop-public-a"


def event(
    seq: int, key: Any = 1, op: str = "u", table: str = "public.a", **more: Any
) -> ChangeEvent:
    keys = key if isinstance(key, dict) else {"id": key}
    value: dict[str, Any] = {"op": op, "table": table, "seq": seq, "key": keys, **more}
    if op in "cur":
        value["row"] = {**keys, "n": more.get("n", seq)}
    if op == "t" or key is None:
        del value["key"]
    raw = json.dumps(value).encode()
    return ChangeEvent(seq, 0, table, op, 7, 1_000, json.dumps(keys).encode(), raw)


@pytest.fixture
def server() -> Iterator[SearchServer]:
    with SearchServer() as server:
        yield server


@pytest.fixture
def opened(
    server: SearchServer, pauses: SkippedPauses
) -> Iterator[Callable[..., OpenSearchOutput]]:
    made = []

    def make(
        position: ChainPosition = BEGINNING, tables: Sequence[str] = ("*.*",), **given: Any
    ) -> OpenSearchOutput:
        cluster = {"url": server.url, "timeout_s": 5, **given}
        chosen = {"output": "opensearch", "tables": tables, "opensearch": cluster}
        settings = PublishSettings.model_validate(chosen)
        made.append(OpenSearchOutput(OutputContext("shop", "e", settings, RealSystem(), pauses)))
        made[-1].open(position)
        return made[-1]

    yield make
    for one in made:
        one.close()


Opened = Callable[..., OpenSearchOutput]


def publish(output: OpenSearchOutput, *events: ChangeEvent) -> None:
    output.write(events)
    output.settle(ChainPosition("one", events[-1].seq, events[-1].seq))


def test_the_last_change_of_each_row_is_its_document(opened: Opened, server: SearchServer) -> None:
    output = opened()
    publish(output, event(1), event(2, 2), event(3), event(4, 2, "d"), event(5, 9, "d"))
    assert server.sources(INDEX) == {"1": {"id": 1, "n": 3, "tl_seq": 3}}
    # What comes again, late, changes nothing.
    publish(output, event(1), event(2, 2), event(3))
    assert server.sources(INDEX) == {"1": {"id": 1, "n": 3, "tl_seq": 3}}


@pytest.mark.parametrize(
    ("key", "name"),
    [
        ({"id": 7}, "7"),
        ({"id": "seven"}, "seven"),
        ({"id": ""}, '[""]'),
        ({"a": 1, "b": "x,y"}, '[1,"x,y"]'),
        ({"id": "2026-01-01"}, "2026-01-01"),
        ({"id": "long" * 200}, None),
    ],
)
def test_ids_come_from_keys(
    opened: Opened, server: SearchServer, key: dict[str, Any], name: str | None
) -> None:
    publish(opened(), event(1, key))
    ((found, source),) = server.sources(INDEX).items()
    assert found == name or (name is None and found.startswith("sha256:") and len(found) == 71)
    assert source["n"] == 1


def test_indexes_are_named_by_their_tables(opened: Opened, server: SearchServer) -> None:
    """Names have no upper-case letters, and those of two tables differ."""
    output = opened()
    tables = ("public.a", "public.A", 'public."a b"', "aggregates.customer", "a.b-c", "a-b.c")
    for at, table in enumerate(tables, 1):
        publish(output, event(at, table=table))
    publish(opened(index="one", tables=["public.a"]), event(9, 5))
    assert {name for name in server.indexes if name != "tideline-publishers"} == {
        "shop-public-a",
        "shop-public-_x41_",
        "shop-public-a_x20_b",
        "shop-aggregates-customer",
        "shop-a-b_x2d_c",
        "shop-a_x2d_b-c",
        "one",
    }
    with pytest.raises(Misconfigured, match="begin with a small letter"):
        publish(opened(index="{table}", tables=["public.*"]), event(1, table="public._a"))


@pytest.mark.parametrize(
    ("index", "given", "lacks"),
    [
        ("one", {"tables": ["public.a", "public.b"]}, "{table}"),
        ("one", {"tables": ["public.*"]}, "{table}"),
        ("x-{table}", {}, "{schema}"),
        ("{table}", {"tables": ["a.t", "b.t"]}, "{schema}"),
        ("{schema}", {"aggregates": ["customer", "order"]}, "{table}"),
    ],
)
def test_an_index_of_several_tables_is_refused(
    index: str, given: dict[str, Any], lacks: str
) -> None:
    """Their documents have the same ids, and a truncate would remove those of others."""
    cluster = {"url": "https://host:9200", "index": index}
    with pytest.raises(ValidationError, match=f"to several tables.*contain {lacks}"):
        PublishSettings.model_validate({"output": "opensearch", "opensearch": cluster, **given})


@pytest.mark.parametrize(
    ("index", "given"),
    [
        ("one", {"tables": ["public.a"]}),
        ("one", {"tables": ["public.a"], "exclude_tables": ["*.*_old"]}),
        ("x-{table}", {"tables": ["public.a", "public.b*"]}),
        ("{schema}", {"tables": ['tenant_1."t[1]"', 'tenant_2."t[1]"']}),
        ("one", {"aggregates": ["customer"]}),
        ("{table}", {"aggregates": ["customer", "order"]}),
    ],
)
def test_an_index_that_is_of_one_table_is_taken(index: str, given: dict[str, Any]) -> None:
    cluster = {"url": "https://host:9200", "index": index}
    PublishSettings.model_validate({"output": "opensearch", "opensearch": cluster, **given})


def test_what_is_not_taken_for_now_is_sent_again(
    opened: Opened, server: SearchServer, pauses: SkippedPauses
) -> None:
    """Requests, and single items of one that was taken."""
    statuses = iter((429, 503, 0))
    server.fault = lambda call: next(statuses, None) if call.number else None
    faults: dict[tuple[int, int], tuple[int, str]] = {
        (4, 1): (429, "es_rejected_execution_exception"),
        (5, 0): (503, "unavailable_shards_exception"),
        (6, 0): (403, "cluster_block_exception"),
    }
    server.item_fault = lambda number, place: faults.get((number, place))
    publish(opened(), event(1), event(2, 2), event(3, 3))
    assert server.sources(INDEX).keys() == {"1", "2", "3"}
    bulks = [call.body.count(b"\n") // 2 for call in server.calls if call.number]
    assert bulks == [3, 3, 3, 3, 1, 1, 1]
    assert pauses.asked == [0.5, 1.0, 2.0, 0.5, 1.0, 2.0]


def test_it_stops_while_nothing_is_taken(
    opened: Opened, server: SearchServer, pauses: SkippedPauses
) -> None:
    output = opened()
    pauses.stop_after = 3
    server.fault = lambda _: 503
    with pytest.raises(Unavailable, match="stopped before"):
        publish(output, event(1))


def test_a_refused_document_stops_it(opened: Opened, server: SearchServer) -> None:
    server.indexes[INDEX] = StandInIndex(numbers=frozenset({"n"}))
    with pytest.raises(Misconfigured, match=r"refuses change 2 of public\.a: mapper_p") as caught:
        publish(opened(), event(1), event(2, 2, n="secret"), event(3, 3))
    assert "secret" not in str(caught.value)
    assert "row!" not in str(caught.value)


def test_a_refused_document_is_put_aside(
    opened: Opened, server: SearchServer, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """In a file, which is cut back to the position where it begins again; all others are there."""
    server.indexes[INDEX] = StandInIndex(numbers=frozenset({"n"}))
    aside = {"on_refused": "dead_letter", "dead_letter_folder": str(tmp_path)}
    output = opened(**aside)
    publish(output, event(1), event(2, 2, n="secret"), event(3, 3), event(4, 4, n="secret"))
    assert server.sources(INDEX).keys() == {"1", "3"}
    letters = [json.loads(line) for line in (tmp_path / "shop.e.jsonl").read_text().splitlines()]
    assert [(one["seq"], one["status"], one["event"]["row"]["n"]) for one in letters] == [
        (2, 400, "secret"),
        (4, 400, "secret"),
    ]
    assert output.dead_letters == 2
    assert "secret" not in "".join(capfd.readouterr())
    output.close()
    assert opened(ChainPosition("one", 3, 3), **aside).dead_letters == 1


def test_a_batch_that_is_too_large_is_halved(
    opened: Opened, server: SearchServer, tmp_path: Path
) -> None:
    server.bulk_bytes_max = 700
    aside = {"on_refused": "dead_letter", "dead_letter_folder": str(tmp_path)}
    events = [event(at, at, n="x" * (900 if at == 5 else 100)) for at in range(1, 10)]
    publish(opened(**aside), *events)
    assert server.sources(INDEX).keys() == {str(at) for at in range(1, 10) if at != 5}
    assert (tmp_path / "shop.e.jsonl").read_text().count("\n") == 1


def test_a_truncate_removes_what_is_older(opened: Opened, server: SearchServer) -> None:
    output = opened()
    publish(output, event(1, op="t"))  # There is no index yet.
    publish(output, event(2), event(3, 3), event(4, op="t"), event(5, 5))
    assert server.sources(INDEX).keys() == {"5"}
    publish(output, event(4, op="t"))
    assert server.sources(INDEX).keys() == {"5"}


def test_columns_that_the_log_left_out_must_be_known(opened: Opened, server: SearchServer) -> None:
    publish(opened(), event(1, unchanged=["text"], before={"id": 1, "text": "old"}))
    assert server.sources(INDEX)["1"]["text"] == "old"
    publish(opened(), event(2, overflow={"x": "NaN"}))
    assert server.sources(INDEX)["1"]["x"] == "NaN"
    with pytest.raises(Misconfigured, match=r"change 3 of public\.a lacks its column"):
        publish(opened(), event(3, unchanged=["text"]))


def test_a_table_without_a_key_is_refused(opened: Opened) -> None:
    with pytest.raises(Misconfigured, match=r"public\.a has no key"):
        publish(opened(), event(1, None))


def test_a_column_of_the_sequences_name_is_refused(opened: Opened) -> None:
    with pytest.raises(Misconfigured, match="has a column n, the name of the sequence's field"):
        publish(opened(sequence_field="n"), event(1))


def test_another_life_of_the_pipeline_is_refused(opened: Opened, server: SearchServer) -> None:
    """Its sequences begin again: each change would count as older than what is there."""
    publish(opened(), event(7))
    opened().close()
    with pytest.raises(Misconfigured, match="of an earlier life of shop"):
        opened(ChainPosition("two", 0, 0))
    server.indexes.clear()
    publish(opened(ChainPosition("two", 0, 0)), event(1))
    assert server.sources(INDEX)["1"]["n"] == 1


def test_a_user_and_a_key(opened: Opened, server: SearchServer, tmp_path: Path) -> None:
    server.require_user("tideline", "pässword")
    password, key = tmp_path / "password", tmp_path / "key"
    password.write_text("pässword\n")
    publish(opened(user="tideline", password_file=str(password)), event(1))
    server.authorization = "ApiKey abc=="
    key.write_text("abc==")
    publish(opened(api_key_file=str(key)), event(2))
    assert server.sources(INDEX)["1"]["n"] == 2
    with pytest.raises(Misconfigured, match="takes no requests of ours: 401 security_exception"):
        opened()


def test_the_cluster_is_verified(tmp_path: Path, pauses: SkippedPauses) -> None:
    authority = make_authority(tmp_path)
    pem = tmp_path / "server.pem"
    pem.write_bytes(b"".join(sign(authority)))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pem)
    with SearchServer(context) as server:
        for ca_file in (str(authority.file), None):
            cluster = {"url": server.url, "timeout_s": 5, "ca_file": ca_file}
            settings = PublishSettings.model_validate(
                {"output": "opensearch", "opensearch": cluster}
            )
            output = OpenSearchOutput(OutputContext("shop", "e", settings, RealSystem(), pauses))
            if ca_file is None:
                with pytest.raises(Misconfigured, match="is not verified"):
                    output.open(BEGINNING)
            else:
                output.open(BEGINNING)
                publish(output, event(1))
            output.close()
        assert server.sources(INDEX).keys() == {"1"}


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"url": None}, "names no cluster"),
        ({"url": "http://search.example.com:9200"}, "must be https://"),
        ({"url": "https://u:secret@host"}, "must not hold credentials"),
        ({"url": "ftp://host"}, "must be https://"),
        ({"user": "u"}, "needs both user and password_file"),
        ({"user": "u", "password": "secret", "api_key": "k"}, "both a user and an API key"),
        ({"on_refused": "dead_letter"}, "no place for events"),
        ({"index": "Upper"}, "pattern"),
        ({"timeout_s": 14}, "would be taken over while it waits"),
    ],
)
def test_settings_that_cannot_be(given: dict[str, Any], message: str) -> None:
    cluster = {"url": "https://host:9200", **given}
    with pytest.raises(ValidationError, match=message) as caught:
        PublishSettings.model_validate({"output": "opensearch", "opensearch": cluster})
    assert "secret" not in str(caught.value)


def test_documents_of_aggregates_are_indexed(
    tmp_path: Path, opened: Opened, server: SearchServer
) -> None:
    chain = Documents(tmp_path)
    chain.commit(10)
    output = opened()
    publish(output, *chain.events())
    found = server.sources("shop-aggregates-customer")
    seqs = [source.pop("tl_seq") for source in found.values()]
    assert found == {str(key): row for key, row in chain.joins[chain.history.last_seq].items()}
    assert max(seqs) <= chain.history.last_seq
