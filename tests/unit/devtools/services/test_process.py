"""Programs that are run beside us, and what is said of one that ended."""

from __future__ import annotations

from pathlib import Path

import pytest

from devtools.services.process import Child
from tideline.contract.errors import Unavailable


def test_the_end_of_its_log_is_told_line_by_line(tmp_path: Path) -> None:
    child = Child(
        "it", ["/bin/sh", "-c", "printf 'one\\ntwo\\033[2J'; exit 3"], run_folder=tmp_path
    )
    child.start()
    with pytest.raises(Unavailable) as caught:
        child.wait_until(lambda: False, timeout_s=60.0)
    assert caught.value.message == "it ended with 3:\n  one\n  two\\x1b[2J"
