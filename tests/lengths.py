"""Names the tests that `make test` leaves to `make long`: those of ``tests/long``, those marked
``long``, and deeper variations that the same tests run in another setting.

The conformance suite runs on every server in `make test`. What is asked beyond it runs there on one
of its servers each, in one mode, on the warehouse of one server's release before, spread over all
of them, and in `make long` on the others. Imports nothing of the project.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from zlib import crc32

import pytest

SERVERS = ("postgres", "mariadb", "mysql8", "mysql9")
MODES = ("current", "soft_deletes", "history", "append")
WAREHOUSES = ("golden_postgres", "golden_mariadb", "golden_mysql")
EVERY_ONE = (
    "tests/conformance/",
    "tests/unit/",
    "tests/properties/",
    "tests/release_before/test_release_before.py",
)
"""Where a variation is not a deeper one, or costs no time."""


def in_long_folder(nodeid: str) -> bool:
    """Whether a test lies among the long ones."""
    return nodeid.startswith("tests/long/")


def variations(nodeids: Iterable[str]) -> set[str]:
    """Those of ``nodeids`` that ask of one server, mode or warehouse what another one asks of
    another.

    Which one is asked in `make test` is drawn by the name of what is asked: the same in each run,
    and each has its share.
    """
    kept = [nodeid for nodeid in nodeids if not nodeid.startswith(EVERY_ONE)]
    left = set[str]()
    for choices in (SERVERS, MODES, WAREHOUSES):
        others = _others(kept, choices)
        kept = [nodeid for nodeid in kept if nodeid not in others]
        left |= others
    return left


def _others(nodeids: Iterable[str], choices: tuple[str, ...]) -> set[str]:
    asked = defaultdict[str, list[tuple[str, str]]](list)
    for nodeid in nodeids:
        test, _, parameters = nodeid.removesuffix("]").partition("[")
        words = parameters.split("-")
        chosen = [word for word in words if word in choices]
        if len(chosen) == 1:
            question = "-".join(word for word in words if word not in choices)
            asked[f"{test}[{question}]"].append((chosen[0], nodeid))
    left = set[str]()
    for question, found in asked.items():
        found.sort()
        del found[crc32(question.encode()) % len(found)]
        left.update(nodeid for _, nodeid in found)
    return left


@pytest.hookimpl(tryfirst=True)  # Before pytest looks at the marks.
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    others = variations(item.nodeid for item in items if not item.get_closest_marker("long"))
    for item in items:
        if in_long_folder(item.nodeid) or item.nodeid in others:
            item.add_marker(pytest.mark.long)
