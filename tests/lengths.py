"""Names the tests that `make test` leaves to `make long`: those of ``tests/long``, those marked
``long``, and deeper variations that the same tests run on another server.

The conformance suite runs on every server in `make test`. What is asked beyond it is asked there of
the servers that differ most, and of all of them in `make long`. Imports nothing of the project.
"""

from __future__ import annotations

from collections.abc import Mapping

import pytest

ONE_SERVER_LESS: Mapping[str, tuple[str, ...]] = {
    # MySQL 8.0 is asked the same, and MariaDB, which differs from both.
    "tests/integration/": ("mysql9",),
    # One of each family of logs: PostgreSQL's and MariaDB's.
    "tests/faults/test_mysql_faults.py": ("mysql9",),
    # The proxy, the killed jobs and the real DDL are the same for every source behind them.
    "tests/faults/test_proxy_faults.py": ("mariadb",),
    "tests/spark/test_changes_merged.py": ("mariadb",),
    "tests/spark/test_verify.py": ("mariadb",),
}


def is_long(nodeid: str) -> bool:
    """Whether the test lies among the long ones, or is such a variation."""
    name, _, variation = nodeid.partition("[")
    if name.startswith("tests/long/"):
        return True
    named = variation.removesuffix("]").split("-")
    return any(
        name.startswith(place) and set(servers) & set(named)
        for place, servers in ONE_SERVER_LESS.items()
    )


@pytest.hookimpl(tryfirst=True)  # Before pytest looks at the marks.
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if is_long(item.nodeid):
            item.add_marker(pytest.mark.long)
