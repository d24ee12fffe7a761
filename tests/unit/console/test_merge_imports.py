"""What `tideline merge` imports: not what only other commands, or few merges, need."""

from __future__ import annotations

import subprocess
import sys

import pytest

_WITHOUT = """
import sys
class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("sqlglot", "google", "pyiceberg"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Blocked())
"""


def test_a_merge_imports_no_control_queue_and_no_spark_before_it_has_a_plan() -> None:
    program = (
        "import sys, tideline_console.app, tideline_console.merge\n"
        "print([name for name in ('redis', 'pyspark', 'pyarrow') if name in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize("job", ["merge", "verify", "maintain", "swap", "aggregate"])
def test_jobs_start_without_the_extras_of_formats_that_are_not_used(job: str) -> None:
    """As they are installed by `tideline-cdc[spark]` alone."""
    program = f"{_WITHOUT}import tideline_spark.{job}, tideline_spark.formats.registry\n"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_a_format_without_its_libraries_names_the_extra() -> None:
    program = (
        f"{_WITHOUT}from tideline.contract.errors import Misconfigured\n"
        "from tideline_spark.formats.registry import FORMATS\n"
        "try:\n    FORMATS['bigquery'].check(None)\n"
        "except Misconfigured as error:\n    print(error, error.hint)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert "sqlglot is not installed" in done.stdout
    assert "tideline-cdc[bigquery]" in done.stdout
