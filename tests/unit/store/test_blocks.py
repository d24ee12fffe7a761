"""The chain read through its blocks: the same links, a thousandth of the requests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from msgspec.structs import replace

from tests.fixtures.troubled_store import TroubledStore
from tests.unit.contract.documents import first_manifest, following
from tideline.contract import layout
from tideline.contract.block import Block, decode_block, encode_block, make_block, manifests_of
from tideline.contract.errors import CorruptData, InvariantBroken
from tideline.store.chain import Chain, ManifestEntry


@pytest.fixture(scope="module")
def written() -> tuple[TroubledStore, list[ManifestEntry]]:
    """2,005 manifests, a row in every third, and the blocks of the first 2,000."""
    store = TroubledStore()
    chain = Chain(store, "shop")
    entries = [chain.append(first_manifest())]
    while len(entries) < 2_005:
        last = entries[-1].manifest
        rows = last.manifest_number % 3 == 0
        changes = {} if last.manifest_number % 200 else {"state": first_manifest().state}
        state_at = {"state_at": None} if changes else {}
        entries.append(chain.append(following(last, rows=int(rows), **changes, **state_at)))
    for number in (1, 2):
        first, last_number = manifests_of(number)
        mine = entries[first - 1 : last_number]
        parts = [part for entry in mine for part in entry.manifest.parts]
        chain.write_block(make_block([(entry.manifest, entry.raw) for entry in mine], parts))
    return store, entries


@pytest.fixture
def asked(written: tuple[TroubledStore, list[ManifestEntry]]) -> Iterator[list[str]]:
    """The keys that are read."""
    keys: list[str] = []
    written[0].before = lambda kind, key: keys.append(key) if kind == "get" else None
    yield keys
    written[0].before = lambda kind, key: None


@pytest.mark.parametrize(
    ("first", "last", "requests_max"),
    [
        (1, 1000, 2),
        (1, 2000, 3),
        (1, 2005, 7),
        (500, 1500, 3),
        (990, 1010, 21),
        (1990, 2005, 16),
        (5, 5, 1),
        (900, 1003, 4),
    ],
)
def test_links_are_the_same_and_requests_few(
    written: tuple[TroubledStore, list[ManifestEntry]],
    asked: list[str],
    first: int,
    last: int,
    requests_max: int,
) -> None:
    store, entries = written
    assert list(Chain(store, "shop").entries(first, last)) == entries[first - 1 : last]
    assert len(asked) <= requests_max


def test_the_newest_block(written: tuple[TroubledStore, list[ManifestEntry]]) -> None:
    chain = Chain(written[0], "shop")
    for hint in range(6):
        assert chain.newest_block(hint) == 2
    assert Chain(written[0], "other").newest_block() == 0


def test_a_block_is_written_once(written: tuple[TroubledStore, list[ManifestEntry]]) -> None:
    store, _ = written
    chain = Chain(store, "shop")
    block = chain.read_block(1)
    assert block is not None
    chain.write_block(block)
    with pytest.raises(CorruptData, match="another block lies at shop/blocks/000000000001"):
        chain.write_block(replace(block, files=()))


def damaged(block: Block, raw: bytes) -> dict[str, bytes]:
    other = replace(block, manifests=(*block.manifests[:5], *block.manifests[4:-1]))
    moved = replace(
        other, digests=(*block.digests[:5], *block.digests[4:-1]), incarnation=block.incarnation
    )
    return {
        "cut": raw[:-100],
        "a digit": raw.replace(b'"writer-a"', b'"writer-b"', 1),
        "a manifest twice": encode_block(other),
        "a manifest twice, digests too": encode_block(moved),
        "another pipeline": encode_block(replace(block, pipeline="other")),
        "another block": encode_block(
            replace(block, block_number=2, first_manifest=1001, last_manifest=2000)
        ),
        "fewer": encode_block(
            replace(
                block, last_manifest=5, digests=block.digests[:5], manifests=block.manifests[:5]
            )
        ),
        "newer": encode_block(replace(block, requires=("zip",))),
    }


@pytest.mark.parametrize(
    "how",
    [
        "cut",
        "a digit",
        "a manifest twice",
        "a manifest twice, digests too",
        "another pipeline",
        "another block",
        "fewer",
        "newer",
    ],
)
def test_a_damaged_block_is_a_named_error(
    written: tuple[TroubledStore, list[ManifestEntry]], how: str
) -> None:
    store, _ = written
    key = layout.block_key("shop", 1)
    raw = store.get(key)
    assert raw is not None
    store.put(key, damaged(decode_block(raw), raw)[how])
    try:
        with pytest.raises(CorruptData, match=r"block|upgrade"):
            list(Chain(store, "shop").entries(1, 1000))
    finally:
        store.put(key, raw)


def test_a_block_that_does_not_follow(written: tuple[TroubledStore, list[ManifestEntry]]) -> None:
    """Each link is checked against the one before, over the borders of blocks as well."""
    store, _ = written
    key = layout.block_key("shop", 2)
    raw = store.get(key)
    chain = Chain(store, "shop")
    block = chain.read_block(2)
    assert raw is not None and block is not None
    fork = Chain(TroubledStore(), "shop")
    other = fork.append(first_manifest(writer="stranger"))
    forged = [other]
    while len(forged) < 2000:
        forged.append(
            fork.append(following(forged[-1].manifest, state_at=None, state=first_manifest().state))
        )
    mine = forged[1000:]
    store.put(key, encode_block(make_block([(one.manifest, one.raw) for one in mine], [])))
    try:
        with pytest.raises(CorruptData, match=r"manifest 1001 does not follow .*previous_digest"):
            list(chain.entries(1, 2000))
    finally:
        store.put(key, raw)


@pytest.mark.parametrize(
    ("last", "shown"), [(2000, True), (1500, True), (2005, True), (1000, False)]
)
def test_a_block_of_the_chain_before_a_restore(
    written: tuple[TroubledStore, list[ManifestEntry]], last: int, shown: bool
) -> None:
    """It follows the block before it, and the chain's own manifests are other ones."""
    store, entries = written
    kept = {
        key: store.get(key) for key in (layout.manifest_key("shop", n) for n in range(1500, 2006))
    }
    chain = Chain(store, "shop")
    try:
        tail = entries[1498]
        for number in range(1500, 2006):
            store.delete(layout.manifest_key("shop", number))
            other = following(tail.manifest, state_at=None, state=first_manifest().state)
            tail = chain.append(replace(other, writer="restored"))
        if not shown:
            assert len(list(chain.entries(1, last))) == last
            return
        with pytest.raises(CorruptData) as raised:
            list(chain.entries(1, last))
        assert "blocks/000000000002.json repeats another manifest" in raised.value.message
        assert "remove it" in (raised.value.hint or "")
    finally:
        for key, raw in kept.items():
            assert raw is not None
            store.put(key, raw)


def test_what_is_no_block(written: tuple[TroubledStore, list[ManifestEntry]]) -> None:
    entries = [(entry.manifest, entry.raw) for entry in written[1]]
    for wrong in (entries[1:1001], entries[:1001]):
        with pytest.raises(InvariantBroken, match="does not stand for manifests"):
            make_block(wrong, [])
