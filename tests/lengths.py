"""Names the tests that `make test` leaves to `make long`: those of ``tests/long``, those marked
``long``, and deeper variations that the same tests run on another server.

The conformance suite runs on every server in `make test`. What is asked beyond it runs there on one
of its servers each, spread over all of them, and in `make long` on the others. Imports nothing of
the project.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from zlib import crc32

import pytest

SERVERS = ("postgres", "mariadb", "mysql8", "mysql9")
EVERY_SERVER = ("tests/conformance/", "tests/unit/", "tests/properties/")
"""Where a variation is not a deeper one, or needs no server."""


def in_long_folder(nodeid: str) -> bool:
    """Whether a test lies among the long ones."""
    return nodeid.startswith("tests/long/")


def variations(nodeids: Iterable[str]) -> set[str]:
    """Those of ``nodeids`` that ask on one server what another one asks on another.

    Which server is asked in `make test` is drawn by the name of what is asked: the same in each
    run, and each server has its share.
    """
    asked = defaultdict[str, list[tuple[str, str]]](list)
    for nodeid in nodeids:
        test, _, parameters = nodeid.removesuffix("]").partition("[")
        words = parameters.split("-")
        servers = [word for word in words if word in SERVERS]
        if len(servers) == 1 and not test.startswith(EVERY_SERVER):
            others = "-".join(word for word in words if word not in SERVERS)
            asked[f"{test}[{others}]"].append((servers[0], nodeid))
    left = set[str]()
    for question, found in asked.items():
        found.sort()
        del found[crc32(question.encode()) % len(found)]
        left.update(nodeid for _, nodeid in found)
    return left


@pytest.hookimpl(tryfirst=True)  # Before pytest looks at the marks.
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    others = variations(item.nodeid for item in items)
    for item in items:
        if in_long_folder(item.nodeid) or item.nodeid in others:
            item.add_marker(pytest.mark.long)
