"""``python -m devtools.matrix [NAME | NAME/TESTS …]``: run the tests of Spark and Airflow with the
oldest and the newest versions, and write docs/VERSIONS.md's table of results.

Each combination has a lock, ``requirements/matrix/NAME.txt``, and an environment that is built from
it, ``.run/matrix/NAME``. Up to three tests that fail are run once more when all others have ended,
alone, as by ``make test``; the table counts those that pass then separately. Exits with 1 when a
test failed twice, or a run did not come to its end.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import xml.etree.ElementTree as ET
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from types import MappingProxyType

from tideline.warehouse.delta.jars import VERSION as DELTA

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "VERSIONS.md"
BEGIN, END = "<!-- results -->\n", "<!-- end of results -->\n"
NOT_RUN = "**Not run with these versions yet**: "
NAMES = ("oldest", "newest")
TESTS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "airflow": ("tests/airflow",),
        "spark": (
            "tests/spark",
            "tests/conformance/test_target.py",
            "tests/release_before",
            "tests/unit/spark",
        ),
    }
)
"""All tests whose subject is Airflow or Spark; each group is a run of its own."""
RUNS = tuple(f"{name}/{tests}" for name in NAMES for tests in TESTS)
SIDE_BY_SIDE = (
    "--numprocesses=4", "--dist=loadscope", "--no-loadscope-reorder", "--max-worker-restart=0",
)  # fmt: skip
"""As `make test` runs them."""
SECOND_CHANCES = 3
COLUMNS = (
    "run", "Spark", "Delta", "Airflow", "Spark provider", "Python", "day (UTC)",
    "passed", "passed alone", "failed", "skipped", "command",
)  # fmt: skip
_PACKAGES = ("pyspark", "apache-airflow", "apache-airflow-providers-apache-spark")
_ASK = f"""
import json, platform
from importlib.metadata import version
found = {{name: version(name) for name in {_PACKAGES!r}}}
print(json.dumps({{**found, "python": platform.python_version()}}))
"""


@dataclass(frozen=True, slots=True)
class Counts:
    """Tests of one run by how they ended; ``failed`` has their names."""

    passed: int
    skipped: int
    failed: tuple[str, ...]


def lock_of(name: str) -> Path:
    """Return the lock of the combination ``name``."""
    return ROOT / "requirements" / "matrix" / f"{name}.txt"


def environment(name: str) -> Path:
    """Build the environment of ``name`` from its lock; return its Python."""
    folder = ROOT / ".run" / "matrix" / name
    _run([ROOT / "scripts" / "setup", folder], name)
    python = folder / "bin" / "python"
    _run([python, "-m", "devtools.services.prepare", "--no-archive"], name)
    return python


def versions_of(python: Path) -> dict[str, str]:
    """Return what is installed for ``python``: versions of Spark, Airflow, its Spark provider and
    Python, by package."""
    done = subprocess.run([python, "-c", _ASK], capture_output=True, text=True, check=True)
    return dict(json.loads(done.stdout))


def run_tests(python: Path, name: str, tests: Sequence[str]) -> tuple[Counts, int]:
    """Run the tests; return the counts and how many tests failed first and passed alone.

    RuntimeError where pytest did not come to the end of its tests.
    """
    first = _pytest(python, name, "first", [*tests, *SIDE_BY_SIDE])
    if not 0 < len(first.failed) <= SECOND_CHANCES:
        return first, 0
    second = _pytest(python, name, "second", [*tests, "--last-failed", "--numprocesses=0"])
    alone = len(first.failed) - len(second.failed)
    return Counts(first.passed, first.skipped, second.failed), alone


def _pytest(python: Path, name: str, run: str, arguments: Sequence[str]) -> Counts:
    folder = ROOT / ".run" / "matrix" / f"{name}-results"
    folder.mkdir(parents=True, exist_ok=True)
    report = folder / f"{run}.xml"
    report.unlink(missing_ok=True)
    options = ["-m", "not long", f"--junitxml={report}"]
    options += ["-o", f"cache_dir={folder / 'cache'}"]
    code = _run([python, "-m", "pytest", *arguments, *options], name, check=False)
    if code not in (0, 1) or not report.exists():
        raise RuntimeError(f"pytest ended with {code}")
    return counts_in(report.read_text())


def counts_in(report: str) -> Counts:
    """Read pytest's report (JUnit XML). A test with an error of its fixtures has failed."""
    passed, skipped = 0, 0
    failed: dict[str, None] = {}
    for case in ET.fromstring(report).iter("testcase"):
        test = f"{case.get('classname')}.{case.get('name')}"
        if case.find("failure") is not None or case.find("error") is not None:
            failed[test] = None
        elif case.find("skipped") is not None:
            skipped += 1
        else:
            passed += 1
    return Counts(passed, skipped, tuple(failed))


def _run(command: Sequence[str | Path], name: str, *, check: bool = True) -> int:
    # Tests that build an environment take the same lock.
    variables = {**os.environ, "SETUP_LOCK": str(lock_of(name).relative_to(ROOT))}
    words = [str(word) for word in command]
    return subprocess.run(words, cwd=ROOT, env=variables, check=check).returncode


def row(run: str, versions: Mapping[str, str], counts: Counts, alone: int, day: str) -> str:
    """Return the page's line for one run, a name of `RUNS`."""
    spark, airflow, provider = (versions[one] for one in _PACKAGES)
    words = [
        run, spark, DELTA, airflow, provider, versions["python"], day, counts.passed, alone,
        len(counts.failed), counts.skipped, f"`make matrix RUN={run}`",
    ]  # fmt: skip
    return f"| {' | '.join(str(word) for word in words)} |\n"


def with_rows(page: str, rows: Mapping[str, str]) -> str:
    """Return ``page`` with ``rows``, lines by run, in place of theirs; others stay. Below the table
    stand the runs that have no line."""
    before, _, rest = page.partition(BEGIN)
    table, _, after = rest.partition(END)
    lines = [line for line in table.splitlines()[2:] if line.startswith("|")]
    known = {line.split("|")[1].strip(): f"{line}\n" for line in lines}
    kept = {**known, **rows}
    lines = [kept[run] for run in RUNS if run in kept]
    if missing := [run for run in RUNS if run not in kept]:
        lines.append(f"\n{NOT_RUN}{', '.join(missing)}\n")
    head = f"| {' | '.join(COLUMNS)} |\n|{'---|' * len(COLUMNS)}\n"
    return f"{before}{BEGIN}{head}{''.join(lines)}{END}{after}"


def record(run: str, python: Path) -> bool:
    """Do one run of `RUNS` and write its line; return whether all tests passed."""
    name, _, tests = run.partition("/")
    counts, alone = run_tests(python, name, TESTS[tests])
    line = row(run, versions_of(python), counts, alone, f"{datetime.now(UTC):%Y-%m-%d}")
    PAGE.write_text(with_rows(PAGE.read_text(), {run: line}))
    print(f"matrix: {line}", end="", flush=True)
    for test in counts.failed:
        print(f"matrix: {run}: failed: {test}")
    return not counts.failed


def main(given: Iterable[str]) -> int:
    """Do the given runs, or all; return the exit code."""
    words = list(given) or list(NAMES)
    if unknown := [word for word in words if word not in (*NAMES, *RUNS)]:
        print(f"matrix: no {', '.join(unknown)}; there are {', '.join(RUNS)}", file=sys.stderr)
        return 2
    passed = True
    for run in (run for run in RUNS if run in words or run.partition("/")[0] in words):
        try:
            passed &= record(run, environment(run.partition("/")[0]))
        except (RuntimeError, subprocess.SubprocessError) as error:
            print(f"matrix: {run}: {error}", file=sys.stderr)
            passed = False
    return int(not passed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
