"""The checks of a part's file against its manifest, which all who read rows share."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pytest
from msgspec.structs import replace

from tests.fixtures.publishing import history_of_pairs
from tideline.contract.errors import CorruptData
from tideline.contract.manifest import Part, digest
from tideline.contract.part import SEQ
from tideline.store.part_file import opened_part, sequences_of


@dataclass(frozen=True)
class Stored:
    """A part, its bytes, and the sequences of its rows."""

    part: Part
    raw: bytes
    sequences: tuple[int, ...]


@pytest.fixture
def stored(tmp_path: Path) -> Stored:
    history = history_of_pairs(tmp_path)
    tail = history.chain.tail()
    assert tail is not None
    (part,) = tail.manifest.parts
    return Stored(part, history.part_path(part.key).read_bytes(), (part.first_seq, part.last_seq))


def rows(*sequences: int) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({SEQ: pa.array(sequences, pa.int64())})


def test_a_sound_part_is_read(stored: Stored) -> None:
    (batch,) = opened_part(stored.part, stored.raw).iter_batches()
    found = sequences_of(stored.part, batch, stored.part.first_seq - 1)
    assert tuple(found.tolist()) == stored.sequences


def test_bytes_that_are_no_part_are_an_error(stored: Stored) -> None:
    with pytest.raises(CorruptData, match="another digest than its manifest says"):
        opened_part(stored.part, stored.raw + b"\0")
    other = b"no Parquet"
    with pytest.raises(CorruptData, match="cannot be read as Parquet: ArrowInvalid"):
        opened_part(replace(stored.part, digest=digest(other)), other)
    with pytest.raises(CorruptData, match="cannot be read as Parquet: KeyError"):
        sequences_of(stored.part, pa.RecordBatch.from_pydict({"id": [1]}), 0)


@pytest.mark.parametrize(
    ("sequences", "after"), [((2, 1), 0), ((1, 1), 0), ((4, 5), 4), ((3, 5), 4)]
)
def test_rows_in_another_order_are_an_error(
    stored: Stored, sequences: tuple[int, ...], after: int
) -> None:
    """Within a batch, and behind the one before."""
    with pytest.raises(CorruptData, match="are not in order"):
        sequences_of(stored.part, rows(*sequences), after)
