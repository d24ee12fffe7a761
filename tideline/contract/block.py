"""The block, a thousand manifests as one object, with the files that hold their rows: document (f).

Block k stands for the manifests ``(k - 1) * 1000 + 1`` to ``k * 1000``. It repeats them, byte by
byte, so that a reader of a long history needs one request where it needed a thousand; and it names
for every table the files that together hold exactly the rows of those manifests' parts: roll-ups,
each of many small parts, and the parts that were large enough to stay.

Nothing in it is new: a chain without its blocks is the same chain.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence

import msgspec

from tideline.contract.document import DocumentReader, written_features, written_version
from tideline.contract.errors import CorruptData, InvariantBroken
from tideline.contract.manifest import Manifest, Part, digest
from tideline.contract.part import PartCounts

BLOCK_VERSION = 1
FEATURES: frozenset[str] = frozenset()
"""The optional features that this version understands."""
BLOCK_MANIFESTS = 1_000


class Block(msgspec.Struct, frozen=True, omit_defaults=True):
    """The manifests ``first_manifest`` to ``last_manifest`` of one chain.

    ``manifests`` are their raw bytes, which are JSON: the text of the n-th value is the n-th
    manifest, and ``digests`` has the sha256 of each. ``files`` hold the rows of all their parts, by
    table and then in seq order: a roll-up has a key of the block's own, a part that stayed has the
    key that its manifest gives it.
    """

    pipeline: str
    incarnation: str
    block_number: int
    first_manifest: int
    last_manifest: int
    first_seq: int
    last_seq: int
    files: tuple[Part, ...]
    digests: tuple[str, ...]
    manifests: tuple[msgspec.Raw, ...]
    version: int = written_version(BLOCK_VERSION)
    requires: tuple[str, ...] = written_features()


def block_of(manifest_number: int) -> int:
    """Return the number of the block that stands for manifest ``manifest_number``; both count from
    1."""
    return (manifest_number - 1) // BLOCK_MANIFESTS + 1


def manifests_of(block_number: int) -> tuple[int, int]:
    """Return the first and the last manifest that block ``block_number`` stands for."""
    last = block_number * BLOCK_MANIFESTS
    return last - BLOCK_MANIFESTS + 1, last


def make_block(entries: Sequence[tuple[Manifest, bytes]], files: Iterable[Part]) -> Block:
    """Make the block of ``entries``: its thousand manifests in order, each with its raw bytes.

    Raises InvariantBroken when these are not a block's manifests, or when ``files`` do not hold
    exactly what their parts hold.
    """
    first, last = entries[0][0], entries[-1][0]
    block = Block(
        pipeline=first.pipeline,
        incarnation=first.incarnation,
        block_number=block_of(first.manifest_number),
        first_manifest=first.manifest_number,
        last_manifest=last.manifest_number,
        first_seq=first.first_seq,
        last_seq=last.last_seq,
        files=tuple(sorted(files, key=lambda file: (file.table, file.first_seq, file.key))),
        digests=tuple(digest(raw) for _, raw in entries),
        manifests=tuple(msgspec.Raw(raw) for _, raw in entries),
    )
    try:
        _check(block)
        check_files(block, [manifest for manifest, _ in entries])
    except CorruptData as error:
        raise InvariantBroken(error.message) from None
    return block


def encode_block(block: Block) -> bytes:
    """Encode the block: the same bytes for the same manifests and files, whichever process writes
    them."""
    return msgspec.json.encode(block)


def decode_block(raw: bytes, at: str = "") -> Block:
    """Decode a block; CorruptData for bytes that are not one, or that need a newer reader.

    Its manifests are looked at by `raw_manifests`, its files by `check_files`.
    """
    block = _READER.read(raw, at)
    _check(block)
    return block


def raw_manifests(block: Block) -> Iterator[tuple[bytes, str]]:
    """Yield the raw bytes of each manifest, in order, with their digest.

    CorruptData for one that has not the digest that the block gives it.
    """
    for at, (value, named) in enumerate(zip(block.manifests, block.digests, strict=True)):
        raw = bytes(value)
        if digest(raw) != named:
            raise CorruptData(
                f"block {block.block_number} holds other bytes of manifest"
                f" {block.first_manifest + at} than it says"
            )
        yield raw, named


def check_files(block: Block, manifests: Iterable[Manifest]) -> None:
    """Raise CorruptData unless ``files`` hold, table by table, what the manifests' parts hold.

    The counts by schema are compared; only the rows themselves show where each of them went.
    """
    wanted = _tally(part for manifest in manifests for part in manifest.parts)
    found = _tally(block.files)
    wrong = sorted(
        table
        for table, schema in wanted.keys() | found.keys()
        if wanted.get((table, schema)) != found.get((table, schema))
    )
    if wrong:
        raise CorruptData(
            f"the files of block {block.block_number} do not hold what its manifests do, of"
            f" {', '.join(dict.fromkeys(wrong))}"
        )


def _check(block: Block) -> None:
    count = block.last_manifest - block.first_manifest + 1
    begins = manifests_of(block.block_number)[0]
    if block.first_manifest != begins or not 1 <= count <= BLOCK_MANIFESTS:
        raise CorruptData(
            f"block {block.block_number} does not stand for manifests {block.first_manifest} to"
            f" {block.last_manifest}"
        )
    if {len(block.manifests), len(block.digests)} != {count}:
        raise CorruptData(f"block {block.block_number} does not hold its {count} manifests")


def _tally(parts: Iterable[Part]) -> dict[tuple[str, str], dict[str, int]]:
    """Add up the counts of parts by table and schema; and where their rows lie."""
    sums: dict[tuple[str, str], dict[str, int]] = {}
    for part in parts:
        counts = sums.setdefault((part.table, part.schema), defaultdict(int))
        counts["rows"] += part.rows
        for name in PartCounts.__struct_fields__:
            counts[name] += getattr(part, name)
        for operation, count in part.operations.items():
            counts[f"op {operation}"] += count
        counts["first"] = min(counts.get("first", part.first_seq), part.first_seq)
        counts["last"] = max(counts["last"], part.last_seq)
    return sums


_READER = DocumentReader(Block, version=BLOCK_VERSION, features=FEATURES, name="block")
