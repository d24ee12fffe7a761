"""``tideline inspect`` over a small chain in a local store."""

from __future__ import annotations

import io
import json
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from tests.fixtures.settings import as_toml
from tideline.contract.errors import CorruptData, Misconfigured
from tideline.contract.manifest import (
    Manifest,
    ManifestKind,
    Part,
    VerificationChunk,
    digest,
)
from tideline.contract.open_state import (
    OpenRequest,
    OpenState,
    TableCondition,
    TableDump,
    TableState,
)
from tideline.contract.position import PostgresPosition, SourceIdentity
from tideline.contract.request import DumpRequest, KeyRange
from tideline.settings import Store
from tideline.store.chain import Chain
from tideline.store.objects import ObjectStore, open_store
from tideline_console.app import app

CANARY = "canary-55e1"
KEY = "shop/data/00000000000000000002/t-public.a-0123456789abcdef-x.parquet"


def segment(number: int, previous: str, **changed: object) -> Manifest:
    values: dict[str, object] = {
        "first_seq": 1,
        "last_seq": 0,
        "state": OpenState(),
        "kind": ManifestKind.HEARTBEAT,
        **changed,
    }
    return Manifest(
        pipeline="shop",
        incarnation="i1",
        manifest_number=number,
        term=1,
        writer="w1",
        previous_digest=previous,
        position=PostgresPosition(number),
        identity=SourceIdentity("postgres", "7", 1, "shop"),
        written_at_us=number * 1_000_000,
        **values,  # type: ignore[arg-type]
    )


def part_bytes() -> bytes:
    table = pa.table(
        {
            "_tl_seq": pa.array([1, 2, 3], pa.int64()),
            "note": pa.array([CANARY, "ü", None]),
            "raw": pa.array([b"\x00\xff", b"", None], pa.binary()),
            "price": pa.array([Decimal("1.50"), None, Decimal("2.00")], pa.decimal128(5, 2)),
        }
    )
    sink = io.BytesIO()
    pq.write_table(table, sink)
    return sink.getvalue()


@pytest.fixture
def store(tmp_path: Path) -> ObjectStore:
    return open_store(Store(url=(tmp_path / "store").as_uri()))


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "tideline.toml"
    values = {
        "pipeline": "shop",
        "source": {"url": "postgresql://u@h/d"},
        "store": {"url": (tmp_path / "store").as_uri()},
        "warehouse": {"url": (tmp_path / "warehouse").as_uri()},
    }
    path.write_text(as_toml(values))
    return path


@pytest.fixture
def chain(store: ObjectStore) -> Chain:
    """Two manifests: an empty one, and one with a part, a quarantined table and an open request."""
    chain = Chain(store, "shop")
    first = chain.append(segment(1, ""))
    raw = part_bytes()
    store.put(KEY, raw)
    part = Part(
        KEY, "public.a", "0123456789abcdef", 3, {"c": 2, "u": 1}, len(raw), digest(raw), 1, 3,
        key_min="1",
    )  # fmt: skip
    request = DumpRequest("r1", ("public.a",), keys=((CANARY,), ("2",)))
    state = OpenState(
        requests=(OpenRequest(request, (TableDump("public.a", chunks=4, rows=40),)),),
        tables={
            "public.a": TableState(last_data_manifest=2),
            "public.b": TableState(TableCondition.QUARANTINED, since_seq=2, reason="it has no key"),
        },
    )
    chain.append(
        segment(2, first.digest, kind=ManifestKind.SEGMENT, last_seq=3, parts=(part,), state=state)
    )
    return chain


def inspect(config: Path, *words: str) -> str:
    done = CliRunner().invoke(
        app, ["inspect", *words, "--config", str(config)], catch_exceptions=False
    )
    assert done.exit_code == 0
    return done.stdout


def test_manifests(chain: Chain, config: Path) -> None:
    lines = inspect(config, "manifests").splitlines()
    assert any("heartbeat" in line and "1970-01-01 00:00:01Z" in line for line in lines)
    assert any("segment" in line and "0/2" in line for line in lines)
    only = inspect(config, "manifests", "--last", "1")
    assert "segment" in only
    assert "heartbeat" not in only


def test_one_manifest(chain: Chain, config: Path) -> None:
    entry = chain.read(2)
    assert entry is not None
    out = inspect(config, "manifest", "2", "--values")
    document, _, hashed = out.rpartition("sha256 ")
    assert json.loads(document) == json.loads(entry.raw)
    assert hashed.strip() == entry.digest
    masked = json.loads(inspect(config, "manifest", "2").rpartition("sha256 ")[0])
    assert masked["parts"][0] == {**json.loads(document)["parts"][0], "key_min": "(masked)"}
    assert masked["state"]["requests"][0]["request"]["keys"] == "(masked)"


def test_keys_of_a_verification_are_masked(store: ObjectStore, config: Path) -> None:
    bounds = KeyRange((f"{CANARY} a",), (f"{CANARY} b",))
    request = DumpRequest("v1", ("public.a",), key_range=bounds, purpose="verify")
    chunk = VerificationChunk(
        "v1", "public.a", "0123", 0, 0, 0, after_key=(f"{CANARY} a",), last_key=(f"{CANARY} c",)
    )
    opened = OpenState(requests=(OpenRequest(request, (TableDump("public.a"),)),))
    Chain(store, "shop").append(segment(1, "", verification_chunks=(chunk,), state=opened))
    assert CANARY in inspect(config, "manifest", "1", "--values")
    assert CANARY not in inspect(config, "manifest", "1")


def test_parts(chain: Chain, config: Path) -> None:
    out = inspect(config, "parts")
    assert KEY in out
    assert "c:2 u:1" in out
    assert KEY in inspect(config, "parts", "public.a")
    assert KEY not in inspect(config, "parts", "public.b")


def test_rows_show_values(chain: Chain, config: Path) -> None:
    rows = [json.loads(line) for line in inspect(config, "rows", KEY).splitlines()]
    assert rows[0] == {"_tl_seq": 1, "note": CANARY, "raw": "00ff", "price": "1.50"}
    assert [row["_tl_seq"] for row in rows] == [1, 2, 3]
    assert len(inspect(config, "rows", KEY, "--limit", "2").splitlines()) == 2


def test_state_counts_keys_and_shows_none(chain: Chain, config: Path) -> None:
    out = inspect(config, "state")
    assert "after manifest 2, seq 3" in out
    assert "quarantined" in out
    assert "it has no key" in out
    assert "r1" in out
    for words in (["state"], ["manifests"], ["parts"], ["manifest", "2"]):
        assert CANARY not in inspect(config, *words)


@pytest.mark.parametrize(
    "words", [("manifest", "3"), ("rows", "shop/data/none.parquet"), ("rows", "../../etc/passwd")]
)
def test_what_is_not_there(words: tuple[str, ...], chain: Chain, config: Path) -> None:
    done = CliRunner().invoke(app, ["inspect", *words, "--config", str(config)])
    assert isinstance(done.exception, Misconfigured)


def test_an_empty_pipeline(config: Path) -> None:
    done = CliRunner().invoke(app, ["inspect", "manifests", "--config", str(config)])
    assert isinstance(done.exception, Misconfigured)
    assert "no manifest" in str(done.exception)


def test_a_part_that_is_none(store: ObjectStore, chain: Chain, config: Path) -> None:
    store.put("shop/data/x.parquet", b"nothing")
    done = CliRunner().invoke(
        app, ["inspect", "rows", "shop/data/x.parquet", "--config", str(config)]
    )
    assert isinstance(done.exception, CorruptData)
