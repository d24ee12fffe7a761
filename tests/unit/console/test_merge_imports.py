"""What `tideline merge` imports: not what only other commands, or few merges, need."""

from __future__ import annotations

import subprocess
import sys


def test_a_merge_imports_no_control_queue_and_no_spark_before_it_has_a_plan() -> None:
    program = (
        "import sys, tideline_console.app, tideline_console.merge\n"
        "print([name for name in ('redis', 'pyspark', 'pyarrow') if name in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"
