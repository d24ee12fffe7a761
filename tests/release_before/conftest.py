"""The goldens of the release before, and servers that stand in for theirs."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.release_before.golden import BEFORE, KINDS, Golden, unpack
from tests.release_before.stand_in import stand_in

__all__ = ["golden", "stand_in"]


@pytest.fixture(params=[f"golden_{kind}" for kind in KINDS])
def golden(request: pytest.FixtureRequest, tmp_path: Path) -> Golden:
    return unpack(BEFORE, request.param.removeprefix("golden_"), tmp_path)
