"""The chain: who may append, what a lost answer means, and how few requests find the tail."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from typing import Any, Literal

import msgspec
import pytest

from tests.unit.contract.documents import first_manifest, following, manifest_number
from tests.unit.store.scripted_s3 import Fault, ScriptedS3
from tideline.contract import layout
from tideline.contract.errors import (
    CorruptData,
    Fenced,
    InvariantBroken,
    Misconfigured,
    Unavailable,
)
from tideline.contract.manifest import Manifest, ManifestKind, stored_manifest
from tideline.contract.schema import Column, TableSchema
from tideline.settings import Store
from tideline.store.chain import Chain, ManifestEntry
from tideline.store.objects import ObjectStore, open_store

MEMORY = Store(url="memory://chain")
ONE = layout.manifest_key("shop", 1)


@pytest.fixture
def server() -> Iterator[ScriptedS3]:
    with ScriptedS3() as server:
        yield server


@pytest.fixture
def chain(server: ScriptedS3) -> Chain:
    return Chain(open_store(server.settings()), "shop")


@pytest.mark.parametrize(
    "fault",
    [
        Fault(500),
        Fault(500, effect=True),
        Fault(409),
        Fault(409, effect=True),
        Fault(broken=True),
        Fault(broken=True, effect=True),
    ],
)
def test_append_survives_a_lost_answer(server: ScriptedS3, chain: Chain, fault: Fault) -> None:
    server.faults.append(fault)
    entry = chain.append(first_manifest())
    assert server.objects == {ONE: entry.raw}
    assert chain.read(1) == entry


@pytest.mark.parametrize("effect", [False, True])
def test_append_survives_a_time_out(server: ScriptedS3, effect: bool) -> None:
    chain = Chain(open_store(server.settings(timeout_s=1.0)), "shop")
    server.faults.append(Fault(silent=True, effect=effect))
    entry = chain.append(first_manifest())
    assert server.objects == {ONE: entry.raw}


def test_append_of_the_same_bytes_again_is_our_own_success(chain: Chain) -> None:
    assert chain.append(first_manifest()) == chain.append(first_manifest())


def test_append_after_unavailable_may_be_repeated(server: ScriptedS3) -> None:
    chain = Chain(open_store(server.settings(retry_s=0.1)), "shop")
    server.faults.extend([Fault(500, effect=True), *[Fault(500)] * 50])
    with pytest.raises(Unavailable):
        chain.append(first_manifest())
    server.faults.clear()
    assert chain.append(first_manifest()).raw == server.objects[ONE]


def test_append_where_another_writer_was_first(server: ScriptedS3, chain: Chain) -> None:
    theirs = stored_manifest(first_manifest(writer="writer-b", term=7))
    server.objects[ONE] = theirs
    with pytest.raises(Fenced, match=r"manifest 1 .* by writer writer-b of term 7") as raised:
        chain.append(first_manifest())
    assert "docs/RESTORE.md" in (raised.value.hint or "")
    assert server.objects == {ONE: theirs}


def test_another_writer_after_a_conflict(server: ScriptedS3, chain: Chain) -> None:
    """A 409 says nothing about who wins: the race goes on, and here the other one wins it."""
    server.faults.append(Fault(409))
    server.objects[ONE] = stored_manifest(first_manifest(writer="writer-b"))
    with pytest.raises(Fenced):
        chain.append(first_manifest())


def test_append_where_the_same_writer_wrote_something_else(chain: Chain) -> None:
    chain.append(first_manifest(written_at_us=1))
    with pytest.raises(Fenced, match="by writer writer-a of term 1"):
        chain.append(first_manifest(written_at_us=2))


def test_append_where_no_manifest_lies(server: ScriptedS3, chain: Chain) -> None:
    server.objects[ONE] = b"junk"
    with pytest.raises(Fenced, match="bytes that are no manifest"):
        chain.append(first_manifest())


def test_read_of_another_pipelines_manifest(server: ScriptedS3, chain: Chain) -> None:
    server.objects[ONE] = stored_manifest(first_manifest(pipeline="other"))
    with pytest.raises(CorruptData, match="pipeline other"):
        chain.read(1)


def test_read_of_a_manifest_under_another_number(server: ScriptedS3, chain: Chain) -> None:
    second = following(first_manifest())
    server.objects[layout.manifest_key("shop", 3)] = stored_manifest(second)
    with pytest.raises(CorruptData, match="holds manifest 2"):
        chain.read(3)


def test_an_empty_chain_and_a_lost_bucket_differ(server: ScriptedS3, chain: Chain) -> None:
    assert chain.tail() is None
    server.faults.extend([Fault(404, "NoSuchBucket")] * 2)
    with pytest.raises(Misconfigured, match="no such bucket"):
        chain.tail()


def test_open_state_of_a_manifest_that_names_a_stateless_one(chain: Chain) -> None:
    one = first_manifest()
    two = following(one)
    three = following(two, state_at=2)
    entries = [chain.append(manifest) for manifest in (one, two, three)]
    with pytest.raises(CorruptData, match="names manifest 2 for its state"):
        chain.open_state(entries[2])


def test_open_state_rolls_forward(chain: Chain) -> None:
    manifests = [first_manifest()]
    for rows in (2, 0, 3, 0):
        manifests.append(following(manifests[-1], rows=rows))
    entries = [chain.append(manifest) for manifest in manifests]
    seen = [chain.open_state(entry).tables for entry in entries]
    numbers = [{name: state.last_data_manifest for name, state in t.items()} for t in seen]
    assert numbers == [{}] + [{"public.orders": n} for n in (2, 2, 4, 4)]


def test_open_state_of_a_link_that_does_not_follow(chain: Chain) -> None:
    one = first_manifest()
    two = following(one, previous_digest="ff")
    chain.append(one)
    with pytest.raises(CorruptData, match="previous_digest"):
        chain.open_state(ManifestEntry(two, stored_manifest(two), "irrelevant"))


def test_two_writers_take_over_and_one_of_them_owns_every_number() -> None:
    """Both write takeovers for the same number at the same moment, again and again."""
    chains = [Chain(open_store(MEMORY), "shop") for _ in "ab"]
    tail = chains[0].append(first_manifest())
    barrier = Barrier(2)

    def take_over(writer: int) -> ManifestEntry | None:
        manifest = following(
            tail.manifest,
            term=tail.manifest.term + 1,
            kind=ManifestKind.TAKEOVER,
            writer=f"writer-{writer}",
            state_at=1,
        )
        barrier.wait()
        try:
            return chains[writer].append(manifest)
        except Fenced:
            return None

    winners = set()
    with ThreadPoolExecutor(2) as pool:
        for _ in range(100):
            won = [entry for entry in pool.map(take_over, range(2)) if entry is not None]
            assert len(won) == 1
            tail = won[0]
            winners.add(tail.manifest.writer)
    assert [entry.manifest.term for entry in chains[0].entries(1, 101)] == list(range(1, 102))
    assert winners <= {"writer-0", "writer-1"}


class VirtualManifests:
    """A client that has manifests 1..last without storing them, and counts what it is asked."""

    def __init__(self, last: int) -> None:
        self.last = last
        self.requests = 0

    def head(self, path: str) -> object:
        self.requests += 1
        if not 1 <= manifest_number(path) <= self.last:
            raise FileNotFoundError(path)
        return {}

    def get(self, path: str) -> Any:
        self.head(path)
        number = manifest_number(path)
        one = first_manifest()
        manifest = msgspec.structs.replace(
            one,
            manifest_number=number,
            previous_digest="" if number == 1 else "ff",
            state=one.state if number == 1 else None,
            state_at=None if number == 1 else number - 1,
        )
        return Body(stored_manifest(manifest))

    def put(
        self, path: str, file: bytes, *, mode: Literal["create", "overwrite"], use_multipart: bool
    ) -> object:
        raise NotImplementedError(path)

    def delete(self, paths: str) -> None:
        raise NotImplementedError(paths)

    def list(
        self, prefix: str, *, offset: str | None = None, chunk_size: int = 1
    ) -> Iterable[Sequence[Any]]:
        raise NotImplementedError(prefix)


class Body:
    def __init__(self, data: bytes) -> None:
        self._data = data

    def bytes(self) -> bytes:
        return self._data


def tail_and_requests(last: int, hint: int) -> tuple[int, int]:
    client = VirtualManifests(last)
    entry = Chain(ObjectStore(MEMORY, client), "shop").tail(hint)
    return (0 if entry is None else entry.manifest.manifest_number), client.requests


TEN_MILLION = 10_000_000


@pytest.mark.parametrize(
    ("hint", "requests_max"),
    [
        (0, 50),
        (1, 51),
        (TEN_MILLION, 3),
        (TEN_MILLION - 1, 5),
        (TEN_MILLION - 1000, 24),
        (TEN_MILLION + 1, 4),
        (TEN_MILLION + 1000, 24),
        (2 * TEN_MILLION, 52),
    ],
)
def test_tail_of_ten_million_takes_few_requests(hint: int, requests_max: int) -> None:
    number, requests = tail_and_requests(TEN_MILLION, hint)
    assert number == TEN_MILLION
    assert requests <= requests_max


@pytest.mark.parametrize("last", range(12))
def test_tail_from_every_hint(last: int) -> None:
    for hint in range(-1, 30):
        assert tail_and_requests(last, hint)[0] == last


def test_schema_documents(server: ScriptedS3, chain: Chain) -> None:
    schema = TableSchema("public.orders", (Column("id", "int64", "bigint", False),), ("id",))
    fingerprint = chain.write_schema(schema)
    assert chain.write_schema(schema) == fingerprint
    assert chain.read_schema(fingerprint) == schema
    key = layout.schema_key("shop", fingerprint)
    raw = server.objects[key]
    server.objects[key] = raw.replace(b"bigint", b"int")
    with pytest.raises(CorruptData, match="holds schema"):
        chain.read_schema(fingerprint)
    with pytest.raises(CorruptData, match=re.escape(key)):
        chain.write_schema(schema)
    server.objects[key] = b"{"
    with pytest.raises(CorruptData, match="not a schema"):
        chain.read_schema(fingerprint)
    del server.objects[key]
    with pytest.raises(CorruptData, match="no schema"):
        chain.read_schema(fingerprint)


def test_a_manifest_that_contradicts_itself_is_not_written(
    server: ScriptedS3, chain: Chain
) -> None:
    wrong: Manifest = first_manifest(last_seq=3)
    with pytest.raises(InvariantBroken):
        chain.append(wrong)
    assert server.requests == []
