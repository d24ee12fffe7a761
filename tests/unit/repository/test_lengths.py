"""Which variations of a test `make test` leaves to `make long`."""

from __future__ import annotations

import re
from pathlib import Path

from tests.lengths import MODES, SERVERS, WAREHOUSES, variations

TESTS = Path(__file__).parents[2]


def test_make_long_says_the_length_of_every_test_that_draws_its_cases() -> None:
    """And runs that test: it has a mark by which it is chosen."""
    [settings] = re.findall(r"^\t((?:[A-Z_]+=\d+ )+)\\\n.* -m \"long or drawn\"",
                        (TESTS.parent / "Makefile").read_text(), re.MULTILINE)  # fmt: skip
    lengths = set(re.findall(r"([A-Z_]+)=", settings))
    read = {
        path: set(re.findall(r'int\(os\.environ\.get\("([A-Z_]+)", "\d+"\)\)', path.read_text()))
        for path in TESTS.rglob("test_*.py")
    }
    for name in lengths:
        [path] = [path for path, names in read.items() if name in names]
        assert re.search(r"pytest\.mark\.(drawn|long)", path.read_text()), name
    drawn = [path for path in read if "pytest.mark.drawn" in path.read_text()]
    others = [path for path in drawn if path != Path(__file__)]
    assert len(others) >= 3
    assert all(read[path] & lengths for path in others)


def test_each_question_is_asked_of_one_server_and_every_server_is_asked() -> None:
    asked = [
        f"tests/integration/test_x.py::test_{number}[{server}-{how}]"
        for number in range(40)
        for how in ("marks", "read-only")
        for server in SERVERS
    ]
    left = variations(asked)
    kept = [nodeid for nodeid in asked if nodeid not in left]
    questions = [nodeid.replace(server, "") for nodeid in kept for server in SERVERS
                 if f"[{server}-" in nodeid]  # fmt: skip
    assert len(questions) == len(set(questions)) == 80
    shares = [sum(f"[{server}-" in nodeid for nodeid in kept) for server in SERVERS]
    assert min(shares) >= 80 / len(SERVERS) / 2
    assert variations(reversed(asked)) == left


def test_a_failure_that_is_run_again_is_not_left_out() -> None:
    asked = [f"tests/faults/test_x.py::test_x[{server}]" for server in SERVERS]
    (kept,) = (nodeid for nodeid in asked if nodeid not in variations(asked))
    assert variations([kept]) == set()


def test_what_is_asked_of_one_server_or_of_all_stays() -> None:
    assert not variations(
        [
            *(f"tests/conformance/test_x.py::test_x[{server}]" for server in SERVERS),
            *(f"tests/unit/test_x.py::test_x[{server}]" for server in SERVERS),
            "tests/integration/test_x.py::test_one[mysql8-from mariadb]",
            "tests/integration/test_x.py::test_both[mysql8-mariadb]",
            "tests/integration/test_x.py::test_none",
        ]
    )


def test_modes_and_warehouses_are_spread_as_servers_are() -> None:
    for words in (MODES, WAREHOUSES):
        asked = [f"tests/spark/test_x.py::test_x[row-{number}-{word}]" for number in range(9)
                 for word in words]  # fmt: skip
        kept = [nodeid for nodeid in asked if nodeid not in variations(asked)]
        assert [nodeid.rpartition("-")[0] for nodeid in kept] == [
            f"tests/spark/test_x.py::test_x[row-{number}" for number in range(9)
        ]
        assert len({nodeid.rpartition("-")[2] for nodeid in kept}) > 1
