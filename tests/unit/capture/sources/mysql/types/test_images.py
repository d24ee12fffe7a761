"""Row images and their values are found where they are, and whatever does not add up is refused."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import pytest

from tests.fixtures.mysql_binlog import joined
from tests.fixtures.mysql_images import behind_length, image
from tideline.contract.errors import CorruptData
from tideline_capture.sources.mysql.types import images
from tideline_capture.sources.mysql.types.columns import Code, MysqlColumn
from tideline_capture.sources.mysql.types.fields import Fixed, Variable, locate
from tideline_capture.sources.mysql.types.gather import Bytes, Offsets
from tideline_capture.sources.mysql.types.images import (
    ImageShape,
    Slot,
    image_starts,
    image_starts_loop,
)

Walk = Callable[[Bytes, Offsets, Offsets, ImageShape], tuple[Offsets, Offsets]]
SHAPE = ImageShape((Slot(8), Slot(0, 1), Slot(3), Slot(0, 2), Slot(4)))
COLUMNS = [MysqlColumn(f"c{at}", Code.BLOB) for at in range(len(SHAPE.slots))]

both = pytest.mark.parametrize("walk", [image_starts, image_starts_loop])


def row(number: int, *, note: bytes | None = b"", last: bool = True) -> bytes:
    values = [
        number.to_bytes(8, "little"),
        behind_length(b"x" * (number % 5), 1),
        b"abc",
        None if note is None else behind_length(note, 2),
        b"last" if last else None,
    ]
    return image(COLUMNS, values)


@both
def test_images_of_uneven_events(walk: Walk) -> None:
    """More events than the side-by-side walk needs at least, of one to many rows each."""
    rows = [[row(at) for at in range(1 + number % 7)] for number in range(images.LANES_MIN * 3)]
    rows[5] = [row(at, note=None if at % 2 else b"n" * 300) for at in range(90)]
    areas = [b"".join(event) for event in rows]
    places, counts = walk(*joined(areas), SHAPE)
    expected, at = [], 0
    for event in rows:
        for one in event:
            expected.append(at)
            at += len(one)
    assert places.tolist() == expected
    assert counts.tolist() == [len(event) for event in rows]


@both
def test_an_event_without_rows_is_refused(walk: Walk) -> None:
    with pytest.raises(CorruptData, match="holds no row"):
        walk(*joined([row(1), b"", row(2)]), SHAPE)


@both
@pytest.mark.parametrize("change", [-1, 1, 7])
def test_an_event_that_ends_elsewhere_is_refused(walk: Walk, change: int) -> None:
    data, starts, ends = joined([row(1) + row(2)])
    with pytest.raises(CorruptData, match="does not end where"):
        walk(data, starts, ends + change, SHAPE)


@both
def test_a_length_beyond_everything_is_refused(walk: Walk) -> None:
    shape = ImageShape((Slot(0, 4),))
    for length in (10_000, 2**31 + 5, 2**32 - 1):
        area = b"\xfe" + length.to_bytes(4, "little") + b"abc"
        with pytest.raises(CorruptData):
            walk(*joined([area]), shape)


@both
@pytest.mark.parametrize("columns", [1, 7, 8, 9, 63, 64, 65, 200])
def test_null_bitmaps_of_every_width(walk: Walk, columns: int) -> None:
    """Fixed and variable columns by turns, a third of them NULL, bits behind the last one set."""
    shape = ImageShape(tuple(Slot(2) if at % 2 else Slot(0, 1) for at in range(columns)))
    holders = [MysqlColumn(f"c{at}", Code.BLOB) for at in range(columns)]
    areas = []
    for number in range(images.LANES_MIN + 10):
        values = [
            None if (at + number) % 3 == 0 else b"fx" if at % 2 else behind_length(b"v" * at, 1)
            for at in range(columns)
        ]
        areas.append(image(holders, values) * 2)
    data, starts, ends = joined(areas)
    places, counts = walk(data, starts, ends, shape)
    assert counts.tolist() == [2] * len(areas)
    fields = locate(data, places, shape, range(columns))
    for at in range(columns):
        expected = [at_row % 3 == (-at) % 3 for at_row in range(len(areas)) for _ in range(2)]
        nulls = fields[at].nulls
        assert (nulls.tolist() if nulls is not None else [False] * len(places)) == expected
        assert values_of(data, fields[at]) == [
            None if null else b"fx" if at % 2 else b"v" * at for null in expected
        ]


def test_fixed_values_far_apart_are_fetched_apart() -> None:
    """More bytes than one gather takes."""
    shape = ImageShape(tuple(Slot(8) for _ in range(100)))
    holders = [MysqlColumn(f"c{at}", Code.LONGLONG) for at in range(100)]
    area = image(holders, [at.to_bytes(8, "little") for at in range(100)])
    data, starts, _ = joined([area])
    fields = locate(data, starts, shape, range(100))
    assert [values_of(data, fields[at]) for at in range(100)] == [
        [at.to_bytes(8, "little")] for at in range(100)
    ]


def test_only_what_is_wanted_is_located() -> None:
    data, starts, _ = joined([row(3)])
    assert locate(data, starts, SHAPE, [0, 2]).keys() == {0, 2}
    assert locate(data, starts, SHAPE, []) == {}


def values_of(data: npt.NDArray[np.uint8], field: Fixed | Variable) -> list[bytes | None]:
    rows = len(field.raw) if isinstance(field, Fixed) else len(field.at)
    found: list[bytes | None] = []
    for at in range(rows):
        if field.nulls is not None and field.nulls[at]:
            found.append(None)
        elif isinstance(field, Fixed):
            found.append(field.raw[at].tobytes())
        else:
            found.append(data[field.at[at] :][: field.length[at]].tobytes())
    return found
