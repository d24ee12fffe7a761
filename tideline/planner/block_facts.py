"""The facts of a block about the objects in it: all that judging garbage needs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tideline.contract import layout
from tideline.contract.block import Block, block_of, raw_manifests
from tideline.contract.manifest import Part, decode_manifest


@dataclass(frozen=True, slots=True)
class BlockFacts:
    """A block's ``files``, the objects that its manifests name (with their number), and the
    prefixes that each lists as uploading."""

    first_manifest: int
    last_manifest: int
    files: Mapping[str, Part]
    named: Mapping[str, tuple[int, Part]]
    uploading: Mapping[int, frozenset[int]]

    @classmethod
    def of(cls, block: Block) -> BlockFacts:
        manifests = [decode_manifest(raw) for raw, _ in raw_manifests(block)]
        return cls(
            block.first_manifest,
            block.last_manifest,
            {file.key: file for file in block.files},
            {
                part.key: (m.manifest_number, part)
                for m in manifests
                for part in (*m.parts, *m.logged_messages)
            },
            {m.manifest_number: frozenset(m.uploading) for m in manifests if m.uploading},
        )

    def settled(self, prefix: int) -> bool:
        """Return whether a manifest at or behind the prefix does not list it: nothing is named
        later."""
        numbers = range(max(prefix, self.first_manifest), self.last_manifest + 1)
        return any(prefix not in self.uploading.get(number, ()) for number in numbers)


def block_of_key(key: str) -> int | None:
    """Return the block that a part's prefix, or a roll-up, lies in."""
    prefix = layout.parse_part_key(key)
    return layout.parse_rollup_key(key) if prefix is None else block_of(prefix)
