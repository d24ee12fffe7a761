"""GTID sets behave as sets of numbers do, and survive their texts and encodings."""

from __future__ import annotations

import uuid

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tideline_capture.sources.mysql.binlog.gtid import GtidSet

SOURCES = (uuid.UUID(int=1), uuid.UUID(int=2**127))
Gtid = tuple[uuid.UUID, str, int]
gtids = st.sets(
    st.tuples(st.sampled_from(SOURCES), st.sampled_from(("", "a", "b_1")), st.integers(1, 30))
)


def _made(found: set[Gtid]) -> GtidSet:
    made = GtidSet()
    for source, tag, number in found:
        made.add(source, tag, number)
    return made


@given(gtids, gtids)
def test_it_is_a_set(left: set[Gtid], right: set[Gtid]) -> None:
    one, other = _made(left), _made(right)
    assert one.subtract(other) == _made(left - right)
    assert one.contains(other) == (right <= left)
    assert len(one) == len(left)
    assert (one == other) == (left == right)
    joined = one.copy()
    joined.update(other)
    assert joined == _made(left | right)
    assert all(joined.holds(*gtid) for gtid in left | right)
    assert not any(one.holds(*gtid) for gtid in right - left)


@given(gtids)
def test_it_survives_text_and_encoding(found: set[Gtid]) -> None:
    made = _made(found)
    assert GtidSet.parse(str(made)) == made
    assert GtidSet.decode(made.encode()) == made


@given(st.lists(st.lists(st.integers(1, 40), max_size=20), max_size=5))
def test_many_at_once_are_those_one_by_one(batches: list[list[int]]) -> None:
    many, single = GtidSet(), GtidSet()
    for batch in batches:
        many.add_many(SOURCES[0], "", np.array(batch, dtype=np.int64))
        for number in batch:
            single.add(SOURCES[0], "", number)
    assert many == single
