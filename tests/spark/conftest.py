"""What tests of merges begin with, unless they have a history of their own."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.fixtures.parts import History, Shaped
from tests.spark.orders import SCHEMA


@pytest.fixture
def history(tmp_path: Path) -> History:
    made = History(tmp_path)
    made.commit(Shaped(SCHEMA))
    return made
