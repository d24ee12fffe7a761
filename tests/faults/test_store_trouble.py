"""A real S3 server behind a proxy that spoils requests: what the real client makes of each fault,
and what the chain and the worker do then."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator

import pytest
from pydantic import SecretStr

from devtools.services.s3 import REGION, S3Server
from tests.faults.s3_faults import ALWAYS, Kind, S3Faults, Trouble
from tests.unit.contract.documents import first_manifest, following
from tideline.contract import layout
from tideline.contract.errors import CorruptData, Fenced, Misconfigured, Unavailable
from tideline.contract.manifest import ManifestKind, stored_manifest
from tideline.settings import Store
from tideline.store.chain import Chain
from tideline.store.objects import ObjectStore, open_store
from tideline.store.probe import probe_store

DATA = bytes(range(256)) * 400
PASSING = (
    Trouble(status=500),
    Trouble(status=503, code="SlowDown"),
    Trouble(status=429, code="TooManyRequests"),
    Trouble(status=409, code="ConditionalRequestConflict"),
    Trouble(dropped=True),
)
"""Before the effect; with ``effect`` after it."""


@pytest.fixture
def faults(s3: S3Server) -> Iterator[S3Faults]:
    with S3Faults(s3) as faults:
        yield faults


def store_behind(
    faults: S3Faults, s3: S3Server, *, retry_s: float = 60.0, timeout_s: float = 30.0
) -> Store:
    return Store(
        url=f"s3://tideline/{uuid.uuid4().hex}",
        endpoint=faults.endpoint,
        region=REGION,
        access_key_id=s3.access_key_id,
        secret_access_key=SecretStr(s3.secret_access_key),
        retry_s=retry_s,
        timeout_s=timeout_s,
    )


@pytest.fixture
def settings(faults: S3Faults, s3: S3Server) -> Store:
    return store_behind(faults, s3)


@pytest.fixture
def store(settings: Store) -> ObjectStore:
    return open_store(settings)


def spoil(
    faults: S3Faults, pattern: Trouble, kind: Kind, *, effect: bool, times: int = 1
) -> Trouble:
    return faults.add(
        Trouble(
            kind=kind,
            times=times,
            status=pattern.status,
            code=pattern.code,
            dropped=pattern.dropped,
            effect=effect,
        )
    )


class TestAnswersThatGoWrong:
    """Each through the real client, before and after the request had its effect."""

    @pytest.mark.parametrize("effect", [False, True], ids=["before", "after"])
    @pytest.mark.parametrize("pattern", PASSING, ids=["500", "503", "429", "409", "dropped"])
    def test_every_request_passes_in_the_end(
        self, faults: S3Faults, store: ObjectStore, pattern: Trouble, effect: bool
    ) -> None:
        met = []
        for kind in ("put", "create", "get", "head"):
            met.append(spoil(faults, pattern, kind, effect=effect))
        store.put("a", DATA)
        created = store.create("b", DATA)
        assert created is not effect  # 412 on our own success says only that something is there
        assert (store.get("a"), store.get("b")) == (DATA, DATA)
        assert store.exists("a")
        assert [trouble.met for trouble in met] == [1, 1, 1, 1]

    @pytest.mark.parametrize("effect", [False, True], ids=["before", "after"])
    @pytest.mark.parametrize("pattern", PASSING, ids=["500", "503", "429", "409", "dropped"])
    def test_an_append_is_there_once_and_ours(
        self, faults: S3Faults, store: ObjectStore, pattern: Trouble, effect: bool
    ) -> None:
        chain = Chain(store, "shop")
        first = first_manifest()
        chain.append(first)
        trouble = spoil(faults, pattern, "create", effect=effect)
        second = following(first, rows=1)
        assert chain.append(second).manifest == second
        assert trouble.met == 1
        assert [entry.manifest for entry in chain.entries(1, 2)] == [first, second]

    def test_nor_does_a_412_make_anothers_manifest_ours(
        self, faults: S3Faults, store: ObjectStore
    ) -> None:
        chain = Chain(store, "shop")
        first = first_manifest()
        chain.append(first)
        chain.append(following(first, writer="writer-b"))
        faults.add(Trouble(kind="create", status=500, effect=True))
        with pytest.raises(Fenced):
            chain.append(following(first, rows=1))

    @pytest.mark.parametrize("effect", [False, True], ids=["before", "after"])
    def test_time_outs(self, faults: S3Faults, s3: S3Server, effect: bool) -> None:
        store = open_store(store_behind(faults, s3, timeout_s=0.4))
        for kind in ("put", "create", "get", "head"):
            faults.add(Trouble(kind=kind, silent=True, effect=effect))
        chain = Chain(store, "shop")
        store.put("a", DATA)
        first = first_manifest()
        assert chain.append(first).manifest == first
        assert (store.get("a"), store.exists("a")) == (DATA, True)
        assert all(trouble.met == 1 for trouble in faults.troubles)

    @pytest.mark.parametrize("effect", [False, True], ids=["before", "after"])
    def test_deletions(self, faults: S3Faults, store: ObjectStore, effect: bool) -> None:
        store.put("a", DATA)
        faults.add(Trouble(kind="delete", status=503, code="SlowDown", effect=effect))
        faults.add(Trouble(kind="delete", dropped=True, effect=effect))
        store.delete("a")
        assert faults.seen["delete"] == 3
        assert not store.exists("a")

    def test_slow_answers_are_waited_for(self, faults: S3Faults, store: ObjectStore) -> None:
        faults.add(Trouble(delay_s=0.3, times=3))
        begun = time.monotonic()
        store.put("a", DATA)
        assert store.create("b", DATA)
        assert store.get("a") == DATA
        assert time.monotonic() - begun > 0.9
        assert sum(faults.seen.values()) == 3


class TestTruncatedReads:
    @pytest.mark.parametrize("left", [0, 1, 1000, len(DATA) - 1])
    def test_a_body_shorter_than_announced_is_read_again(
        self, faults: S3Faults, store: ObjectStore, left: int
    ) -> None:
        store.put("a", DATA)
        trouble = faults.add(Trouble(kind="get", body_bytes=left, times=2))
        assert store.get("a") == DATA
        assert (trouble.met, faults.seen["get"]) == (2, 3)

    def test_and_is_never_handed_out(self, faults: S3Faults, s3: S3Server) -> None:
        settings = store_behind(faults, s3, retry_s=0.3)
        store, chain = open_store(settings), Chain(open_store(settings), "shop")
        chain.append(first_manifest())
        store.put("a", DATA)
        faults.add(Trouble(kind="get", body_bytes=50, times=ALWAYS))
        with pytest.raises(Unavailable):
            store.get("a")
        with pytest.raises(Unavailable):
            chain.tail()

    def test_one_whose_length_agrees_is_no_manifest(
        self, faults: S3Faults, store: ObjectStore
    ) -> None:
        """A cache in between that kept half an answer."""
        chain = Chain(store, "shop")
        raw = chain.append(first_manifest()).raw
        for left in (0, 1, len(raw) // 2, len(raw) - 1):
            trouble = faults.add(Trouble(kind="get", body_bytes=left, short_length=True))
            with pytest.raises(CorruptData):
                chain.read(1)
            assert trouble.met == 1
        assert chain.read(1) is not None

    @pytest.mark.parametrize("agrees", [False, True])
    @pytest.mark.parametrize("left", [0, 60, 400])
    def test_half_a_listing_is_none(
        self, faults: S3Faults, store: ObjectStore, left: int, agrees: bool
    ) -> None:
        keys = [f"a/{number}" for number in range(5)]
        for key in keys:
            store.put(key, b"")
        trouble = faults.add(Trouble(kind="list", body_bytes=left, short_length=agrees))
        assert store.list("a") == keys
        assert trouble.met == 1


class TestLateDuplicates:
    """A request that a network held back arrives when the chain has long gone on."""

    def test_a_manifest_after_later_ones_changes_nothing(
        self, faults: S3Faults, store: ObjectStore
    ) -> None:
        chain = Chain(store, "shop")
        manifests = [first_manifest()]
        faults.add(Trouble(kind="create", key="/log/", kept=True, times=3))
        for _ in range(3):
            chain.append(manifests[-1])
            manifests.append(following(manifests[-1], rows=1))
        assert faults.deliver_late() == [412, 412, 412]
        assert [entry.manifest for entry in chain.entries(1, 3)] == manifests[:3]

    @pytest.mark.parametrize("order", ["takeover-first", "late-first"])
    def test_a_zombies_manifest_around_a_takeover(
        self, faults: S3Faults, settings: Store, order: str
    ) -> None:
        """The zombie's PUT was never answered; its own or its successor's manifest stands, and
        the other one learns it."""
        zombie, successor = (Chain(open_store(settings), "shop") for _ in "ab")
        first = first_manifest()
        zombie.append(first)
        key = layout.manifest_key("shop", 2)
        faults.add(Trouble(kind="create", key=key, status=500, kept=True, times=ALWAYS))
        ours = following(first, rows=1)
        theirs = following(first, writer="writer-b", term=2, kind=ManifestKind.TAKEOVER)
        impatient = open_store(settings.model_copy(update={"retry_s": 0.2}))
        with pytest.raises(Unavailable):
            Chain(impatient, "shop").append(ours)
        copies = len(faults.kept)
        assert copies >= 1
        faults.heal()
        if order == "takeover-first":
            successor.append(theirs)
            assert set(faults.deliver_late()) == {412}
            with pytest.raises(Fenced):
                zombie.append(ours)
            expected = theirs
        else:
            assert faults.deliver_late() == [200] + [412] * (copies - 1)
            with pytest.raises(Fenced):
                successor.append(theirs)
            assert zombie.append(ours).manifest == ours
            expected = ours
        assert [entry.manifest for entry in successor.entries(1, 2)] == [first, expected]

    def test_a_part_is_the_same_part(self, faults: S3Faults, store: ObjectStore) -> None:
        faults.add(Trouble(kind="put", kept=True, status=500, times=2))
        store.put("data/1/t-a", DATA)
        store.put("data/2/t-b", DATA[::-1])
        assert faults.deliver_late() == [200, 200]
        assert (store.get("data/1/t-a"), store.get("data/2/t-b")) == (DATA, DATA[::-1])


class TestProbe:
    def test_a_store_behind_something_that_drops_the_condition_is_refused(
        self, faults: S3Faults, settings: Store
    ) -> None:
        faults.add(Trouble(kind="create", unconditional=True, times=ALWAYS))
        with pytest.raises(Misconfigured, match="lets two writers create the same object"):
            probe_store(settings, "shop")
        faults.heal()
        probe_store(settings, "shop")

    @pytest.mark.parametrize("pattern", PASSING, ids=["500", "503", "429", "409", "dropped"])
    def test_lost_answers_do_not_condemn_one(
        self, faults: S3Faults, settings: Store, pattern: Trouble
    ) -> None:
        trouble = spoil(faults, pattern, "create", effect=True, times=2)
        probe_store(settings, "shop")
        assert trouble.met == 2


def test_nothing_that_matters_lists(faults: S3Faults, store: ObjectStore) -> None:
    """A listing may be stale or fail: chain, tail and open state are found by name."""
    faults.add(Trouble(kind="list", status=500, times=ALWAYS))
    chain = Chain(store, "shop")
    manifests = [first_manifest()]
    chain.append(manifests[0])
    for _ in range(20):
        manifests.append(following(manifests[-1], rows=1))
        chain.append(manifests[-1])
    for hint in (0, 7, 21, 300):
        tail = chain.tail(hint)
        assert tail is not None and tail.raw == stored_manifest(manifests[-1])
        chain.open_state(tail)
    assert faults.seen["list"] == 0
