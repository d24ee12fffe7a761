"""Names by the rules of Avro."""

from __future__ import annotations

import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tideline_publish.formats.avro.names import avro_name

NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


@pytest.mark.parametrize(
    ("name", "wanted"),
    [
        ("id", "id"),
        ("_id", "_id"),
        ("Order Items", "Order_x20_Items"),
        ("2nd", "_x32_nd"),
        ("größe", "gr_xf6__xdf_e"),
        ("a_x20_b", "a_x5f_x20_b"),
    ],
)
def test_names(name: str, wanted: str) -> None:
    assert avro_name(name) == wanted


@given(st.text(min_size=1))
def test_every_name_is_one_of_avro(name: str) -> None:
    assert NAME.fullmatch(avro_name(name))


@given(st.text("ab_x 0125", min_size=1), st.text("ab_x 0125", min_size=1))
@example("_x20 ", " x20_")
@example("2", "_x32_")
def test_no_two_become_one(one: str, other: str) -> None:
    assert (avro_name(one) == avro_name(other)) == (one == other)
