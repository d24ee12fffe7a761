"""Files of keys: what the database prints, untouched, and errors that never quote it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tideline.contract.errors import Misconfigured
from tideline.keys import parse_csv, parse_json_lines
from tideline_console.requests import read_keys

CANARY = "canary-9d02"


@pytest.mark.parametrize(
    ("text", "keys"),
    [
        ("1\n2\n", (("1",), ("2",))),
        ("1\r\n2", (("1",), ("2",))),
        ("\n1\n\n2\n\n", (("1",), ("2",))),
        ("1,a\n2,b\n", (("1", "a"), ("2", "b"))),
        ('"a,b",""\n', (("a,b", ""),)),
        ('"a\nb"\n"say ""hi"""\n', (("a\nb",), ('say "hi"',))),
        (" 1 ,x\n", ((" 1 ", "x"),)),
        ("007\n1e3\nü\n", (("007",), ("1e3",), ("ü",))),
        ("", ()),
    ],
)
def test_csv(text: str, keys: tuple[tuple[str, ...], ...]) -> None:
    assert parse_csv(text) == keys


@pytest.mark.parametrize(
    ("text", "keys"),
    [
        ("1\n2\n", (("1",), ("2",))),
        ('"a"\n\n["b"]\n', (("a",), ("b",))),
        ('[1, "x,y"]\n', (("1", "x,y"),)),
        (
            "[12345678901234567890123, 1.10, 1e400]",
            (("12345678901234567890123", "1.10", "1e400"),),
        ),
        ('"\\u2028 \u2028"', (("\u2028 \u2028",),)),
    ],
)
def test_json_lines(text: str, keys: tuple[tuple[str, ...], ...]) -> None:
    assert parse_json_lines(text) == keys


@pytest.mark.parametrize("line", ["{}", "[]", "null", "[null]", "true", "[[1]]", "[1", CANARY])
def test_json_lines_that_are_no_keys(line: str) -> None:
    with pytest.raises(Misconfigured, match="keys, line 2") as caught:
        parse_json_lines(f'"{CANARY}"\n{line}\n')
    assert CANARY not in str(caught.value)


def test_csv_that_is_none() -> None:
    with pytest.raises(Misconfigured, match="keys, line 2") as caught:
        parse_csv(f'1\n"{CANARY}"x\n')
    assert CANARY not in str(caught.value)


@pytest.mark.parametrize("name", ["k.csv", "k.txt", "k"])
def test_the_suffix_decides(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    path.write_bytes(b"\xef\xbb\xbf1,2\n")
    assert read_keys(path) == (("1", "2"),)
    lines = tmp_path / "k.jsonl"
    lines.write_text("[1,2]\n")
    assert read_keys(lines) == (("1", "2"),)


def test_files_that_hold_no_keys(tmp_path: Path) -> None:
    with pytest.raises(Misconfigured, match="No such file"):
        read_keys(tmp_path / "none")
    path = tmp_path / "keys"
    path.write_text("\n")
    with pytest.raises(Misconfigured, match="holds no key"):
        read_keys(path)
    path.write_bytes(b"\xff\n")
    with pytest.raises(Misconfigured, match="not UTF-8"):
        read_keys(path)
    path.write_text("1,2\n3\n")
    with pytest.raises(Misconfigured, match=r"keys of \[1, 2\] columns"):
        read_keys(path)
