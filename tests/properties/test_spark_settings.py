"""Keys of ``[merge]`` that Spark takes: any text is taken or is a named mistake."""

from __future__ import annotations

import re
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from tideline.settings import Merge
from tideline.settings.spark import heap_bytes

KEYS = ("master", "driver_memory", "driver_host", "driver_bind_address", "jars", "py_files")
FRAGMENTS = st.sampled_from(
    [
        *("local", "[", "]", "*", ",", " ", "2", "0", "m", "g", "yarn", "/a.jar"),
        *("spark://", "k8s://", "https://", ":", "::1", "7077", "h", "h.example"),
        *("_", "-", "@", "%", "?", "\x00", "\udcff"),
    ]
)
TEXTS = st.one_of(st.text(), st.lists(FRAGMENTS, max_size=8).map("".join))
UNITS = {"k": 10, "m": 20, "g": 30, "t": 40}


def taken(key: str, text: str) -> Any:
    """The value in the settings; None for a mistake."""
    try:
        return getattr(Merge.model_validate({key: text}), key)
    except ValidationError as error:
        assert [one["loc"] for one in error.errors()] == [(key,)]
        return None


@given(st.sampled_from(KEYS), TEXTS)
def test_any_text_is_taken_or_a_mistake_and_what_is_taken_stays(key: str, text: str) -> None:
    value = taken(key, text)
    assert value is None or taken(key, value) == value


@given(st.integers(0, 1 << 60), st.sampled_from("kmgt"), st.booleans(), st.booleans())
def test_memory_keeps_its_size(number: int, unit: str, upper: bool, long: bool) -> None:
    text = f"{number}{unit}{'b' if long else ''}"
    value = taken("driver_memory", text.upper() if upper else text)
    size = number << UNITS[unit]
    assert (value is not None) is (450 << 20 <= size <= 64 << 40 and number < 10**18)
    if value is not None:
        assert re.fullmatch(r"[0-9]+[kmgt]", value, re.ASCII) and heap_bytes(value) == size
