"""One suite over every store: what the chain needs holds in memory, in a directory and in S3."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier

import pytest
from msgspec.structs import replace
from pydantic import SecretStr

from devtools.services.s3 import REGION, S3Server
from tests.fixtures.certificates import make_authority
from tests.fixtures.tls_front import TlsFront
from tests.unit.contract.documents import first_manifest, following
from tideline.contract import layout
from tideline.contract.errors import CorruptData, Fenced, Misconfigured
from tideline.contract.manifest import Manifest, ManifestKind, stored_manifest
from tideline.settings import Store
from tideline.store.chain import Chain
from tideline.store.objects import ObjectStore, open_store
from tideline.store.probe import probe_store

RACERS = 8
ODD_KEYS = ("a/~20b~~c", "a-b_c/.hidden", "a/t-public.~F0~9F~98~80-00.parquet", "a=b/c+d")


def memory(request: pytest.FixtureRequest) -> Store:
    return Store(url=f"memory://{uuid.uuid4().hex}")


def directory(request: pytest.FixtureRequest) -> Store:
    tmp_path: Path = request.getfixturevalue("tmp_path")
    return Store(url=f"file://{tmp_path}/store")


def s3(request: pytest.FixtureRequest) -> Store:
    server: S3Server = request.getfixturevalue("s3")
    return Store(
        url=f"s3://tideline/{uuid.uuid4().hex}",
        endpoint=server.endpoint,
        region=REGION,
        access_key_id=server.access_key_id,
        secret_access_key=SecretStr(server.secret_access_key),
    )


@pytest.fixture(params=[memory, directory, s3], ids=lambda make: make.__name__)
def settings(request: pytest.FixtureRequest) -> Store:
    make: Callable[[pytest.FixtureRequest], Store] = request.param
    return make(request)


@pytest.fixture
def store(settings: Store) -> ObjectStore:
    return open_store(settings)


@pytest.fixture
def chain(store: ObjectStore) -> Chain:
    return Chain(store, "shop")


def test_what_is_written_is_read(store: ObjectStore) -> None:
    store.put("a/b", b"one")
    store.put("a/b", b"two")
    store.put("a/empty", b"")
    assert (store.get("a/b"), store.get("a/empty")) == (b"two", b"")
    assert (store.exists("a/b"), store.exists("a"), store.exists("a/c")) == (True, False, False)
    assert (store.get("a"), store.get("a/c")) == (None, None)
    assert store.list("a") == ["a/b", "a/empty"]
    store.delete("a/b")
    store.delete("a/b")
    assert store.list("a") == ["a/empty"]
    assert store.list("elsewhere") == []


@pytest.mark.parametrize("key", ODD_KEYS)
def test_keys_are_kept_as_they_are(store: ObjectStore, key: str) -> None:
    store.put(key, key.encode())
    assert store.get(key) == key.encode()
    assert store.list("") == [key]


def test_a_large_object(store: ObjectStore) -> None:
    data = bytes(range(256)) * (40 * 1024 * 1024 // 256)
    store.put("large", data)
    assert store.get("large") == data


def test_of_concurrent_creators_exactly_one_wins(settings: Store) -> None:
    stores = [open_store(settings) for _ in range(RACERS)]
    barrier = Barrier(RACERS)

    def create(racer: int, key: str) -> bool:
        barrier.wait()
        return stores[racer].create(key, str(racer).encode())

    with ThreadPoolExecutor(RACERS) as pool:
        for attempt in range(3):
            key = f"race/{attempt}"
            won = list(pool.map(create, range(RACERS), [key] * RACERS))
            assert won.count(True) == 1
            assert stores[0].get(key) == str(won.index(True)).encode()


def test_create_does_not_replace(store: ObjectStore) -> None:
    assert store.create("a", b"one") is True
    assert store.create("a", b"one") is False
    assert store.create("a", b"two") is False
    assert store.get("a") == b"one"


def test_the_probe_accepts_it_and_cleans_up(settings: Store) -> None:
    probe_store(settings, "shop")
    assert open_store(settings).list("") == []


def extend(chain: Chain, rows: list[int]) -> list[Manifest]:
    manifests = [first_manifest()]
    chain.append(manifests[0])
    for count in rows:
        manifests.append(following(manifests[-1], rows=count))
        chain.append(manifests[-1])
    return manifests


def test_a_chain_is_read_as_it_was_written(chain: Chain) -> None:
    assert chain.tail() is None
    assert chain.read(1) is None
    manifests = extend(chain, [1, 0, 5] * 7)
    assert [entry.manifest for entry in chain.entries(1, 22)] == manifests
    assert [entry.manifest for entry in chain.entries(3, 4)] == manifests[2:4]
    for hint in (0, 1, 5, 22, 23, 400):
        assert chain.tail(hint) == chain.read(22)
    tail = chain.tail()
    assert tail is not None
    state = chain.open_state(tail)
    assert state.tables["public.orders"].last_data_manifest == 22


def test_a_fork_is_fenced(settings: Store) -> None:
    ours, theirs = (Chain(open_store(settings), "shop") for _ in "ab")
    one = extend(ours, [])[0]
    theirs.append(following(one, writer="writer-b"))
    with pytest.raises(Fenced, match=r"manifest 2 .*writer-b.* term 1"):
        ours.append(following(one, rows=1))
    assert ours.tail() == theirs.tail()


def test_what_comes_twice_or_late_changes_nothing(settings: Store) -> None:
    """A network may deliver a request again when the chain has long gone on."""
    store, successor = open_store(settings), Chain(open_store(settings), "shop")
    ours = Chain(store, "shop")
    one, two = extend(ours, [1])
    taken = following(two, writer="writer-b", term=2, kind=ManifestKind.TAKEOVER)
    late = following(two, rows=3)
    successor.append(taken)
    tail = successor.append(following(taken, rows=1))
    for manifest in (one, two, late):
        key = layout.manifest_key("shop", manifest.manifest_number)
        assert not store.create(key, stored_manifest(manifest))
    with pytest.raises(Fenced):
        ours.append(late)
    store.put("shop/data/1/t-a", b"part")
    store.put("shop/data/1/t-a", b"part")
    assert store.get("shop/data/1/t-a") == b"part"
    assert successor.tail() == tail
    assert len(list(successor.entries(1, 4))) == 4


def test_a_changed_manifest_breaks_the_digests(store: ObjectStore, chain: Chain) -> None:
    extend(chain, [1, 1, 1])
    second = chain.read(2)
    assert second is not None
    changed = stored_manifest(replace(second.manifest, writer="writer-x"))
    store.put(layout.manifest_key("shop", 2), changed)
    with pytest.raises(CorruptData, match=r"manifest 3 does not follow .*previous_digest"):
        list(chain.entries(1, 4))


def test_a_hole_is_corrupt(store: ObjectStore, chain: Chain) -> None:
    extend(chain, [1, 1, 1])
    store.delete(layout.manifest_key("shop", 3))
    numbers = []
    with pytest.raises(CorruptData, match="manifest 3 of shop is missing"):
        for entry in chain.entries(1, 4):
            numbers.append(entry.manifest.manifest_number)
    assert numbers == [1, 2]


def test_bytes_that_are_no_manifest(store: ObjectStore, chain: Chain) -> None:
    extend(chain, [1])
    for junk in (b"", b"{}", b"\xff", b'{"version":1}', stored_manifest(first_manifest())[:-1]):
        store.put(layout.manifest_key("shop", 2), junk)
        with pytest.raises(CorruptData):
            chain.read(2)


def test_a_bucket_that_is_not_there(s3: S3Server) -> None:
    settings = Store(
        url="s3://missing-bucket/x",
        endpoint=s3.endpoint,
        region=REGION,
        access_key_id=s3.access_key_id,
        secret_access_key=SecretStr(s3.secret_access_key),
    )
    with pytest.raises(Misconfigured, match="no such bucket"):
        open_store(settings).create("a", b"data")
    with pytest.raises(Misconfigured, match="no such bucket"):
        Chain(open_store(settings), "shop").tail()


def test_tls_of_s3_is_verified(
    s3: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the machine's authorities, which ``SSL_CERT_FILE`` names."""
    own = make_authority(tmp_path)

    def looked(port: int) -> bool:
        settings = Store(
            url=f"s3://tideline/{uuid.uuid4().hex}",
            endpoint=f"https://127.0.0.1:{port}",
            region=REGION,
            access_key_id=s3.access_key_id,
            secret_access_key=SecretStr(s3.secret_access_key),
            retry_s=3600.0,  # It is not tried again.
        )
        return open_store(settings).exists("nothing")

    def refused(port: int, words: str) -> None:
        with pytest.raises(
            Misconfigured, match=f"no verified TLS to the store: .*{words}"
        ) as reported:
            looked(port)
        assert "SSL_CERT_FILE" in str(reported.value.hint)

    with TlsFront(tmp_path, own, s3.port) as front:
        refused(front.port, "UnknownIssuer")
        monkeypatch.setenv("SSL_CERT_FILE", str(own.file))
        assert not looked(front.port)
        assert front.encrypted == 1
    with TlsFront(tmp_path, own, s3.port, address="127.0.0.2") as front:
        refused(front.port, "NotValidForName")
    refused(s3.port, "it speaks no TLS")


def test_wrong_credentials(s3: S3Server) -> None:
    settings = Store(
        url="s3://tideline/x",
        endpoint=s3.endpoint,
        region=REGION,
        access_key_id=s3.access_key_id,
        secret_access_key=SecretStr("wrong-secret-key"),
    )
    with pytest.raises(Misconfigured, match="access_key_id") as caught:
        open_store(settings).put("a", b"data")
    assert "wrong-secret-key" not in str(caught.value)
