"""The command that runs the tests with the oldest and the newest versions: what it counts, what
it writes, how it ends."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from devtools import matrix
from devtools.matrix import BEGIN, END, Counts, counts_in, main, row, run_tests, with_rows

REPORT = """<testsuites><testsuite>
<testcase classname="tests.a" name="one" />
<testcase classname="tests.a" name="two"><failure message="x">x</failure></testcase>
<testcase classname="tests.a" name="three"><error message="x">x</error></testcase>
<testcase classname="tests.a" name="three"><failure message="x">x</failure></testcase>
<testcase classname="tests.a" name="four"><skipped message="x">x</skipped></testcase>
</testsuite></testsuites>"""
VERSIONS = {
    "pyspark": "4.0.4",
    "apache-airflow": "3.1.8",
    "apache-airflow-providers-apache-spark": "6.3.0",
    "python": "3.11.7",
}
GREEN = Counts(5, 1, ())
RED = Counts(4, 1, ("tests.a.two",))


def test_a_report_is_counted_by_test() -> None:
    assert counts_in(REPORT) == Counts(1, 1, ("tests.a.two", "tests.a.three"))


def test_a_line_replaces_its_own_and_no_other() -> None:
    old = row("oldest/spark", VERSIONS, RED, 0, "2026-01-01")
    newest = row("newest/spark", VERSIONS, GREEN, 0, "2026-01-01")
    page = with_rows(f"before\n{BEGIN}{END}after\n", {"newest/spark": newest})
    page = with_rows(page, {"oldest/spark": old})
    new = row("oldest/spark", VERSIONS, GREEN, 1, "2026-01-02")
    page = with_rows(page, {"oldest/spark": new})
    lines = page.splitlines(keepends=True)
    missing = f"{matrix.NOT_RUN}oldest/airflow, newest/airflow\n"
    assert lines[4:] == [new, newest, "\n", missing, END, "after\n"]
    assert lines[0] == "before\n" and lines[2].count("|") == new.count("|")


class Runs:
    """Pytest, which ends with ``codes`` and writes ``reports``; each run is listed in ``seen``."""

    def __init__(self, *runs: tuple[int, str]) -> None:
        self.runs = list(runs)
        self.seen: list[list[str]] = []

    def __call__(self, command: list[str], **_: object) -> subprocess.CompletedProcess[str]:
        self.seen.append(command)
        [path] = [word.partition("=")[2] for word in command if word.startswith("--junitxml=")]
        code, report = self.runs.pop(0)
        if report:
            Path(path).write_text(report)
        return subprocess.CompletedProcess(command, code)


def runs(monkeypatch: pytest.MonkeyPatch, folder: Path, *ends: tuple[int, str]) -> Runs:
    made = Runs(*ends)
    monkeypatch.setattr(matrix, "ROOT", folder)
    monkeypatch.setattr(subprocess, "run", made)
    return made


def one(ending: str) -> str:
    return f'<testsuite><testcase classname="a" name="b">{ending}</testcase></testsuite>'


FAILS, PASSES = (1, one("<failure/>")), (0, one(""))


def test_what_failed_runs_again_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = runs(monkeypatch, tmp_path, FAILS, PASSES)
    assert run_tests(Path("python"), "oldest", ["tests/x"]) == (Counts(0, 0, ()), 1)
    assert "--last-failed" in made.seen[1] and "--numprocesses=0" in made.seen[1]


def test_what_fails_twice_has_failed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    runs(monkeypatch, tmp_path, FAILS, FAILS)
    assert run_tests(Path("python"), "oldest", ["tests/x"]) == (Counts(0, 0, ("a.b",)), 0)


def test_what_passed_runs_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    runs(monkeypatch, tmp_path, PASSES)
    assert run_tests(Path("python"), "oldest", ["tests/x"]) == (Counts(1, 0, ()), 0)


@pytest.mark.parametrize("end", [(2, one("")), (5, one("")), (-9, ""), (0, "")])
def test_a_run_that_was_cut_off_counts_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, end: tuple[int, str]
) -> None:
    runs(monkeypatch, tmp_path, end)
    with pytest.raises(RuntimeError, match="pytest ended"):
        run_tests(Path("python"), "oldest", ["tests/x"])


@pytest.fixture
def page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "VERSIONS.md"
    path.write_text(f"{BEGIN}{END}")
    monkeypatch.setattr(matrix, "PAGE", path)
    monkeypatch.setattr(matrix, "environment", lambda name: Path(name))
    monkeypatch.setattr(matrix, "versions_of", lambda _: VERSIONS)
    return path


def test_each_result_is_written(page: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(matrix, "run_tests", lambda *_: (GREEN, 0))
    assert main([]) == 0
    assert [line.split(" | ")[0] for line in page.read_text().splitlines()[3:-1]] == [
        "| oldest/airflow",
        "| oldest/spark",
        "| newest/airflow",
        "| newest/spark",
    ]


def test_a_failed_test_is_red_and_written(
    page: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(matrix, "run_tests", lambda *_: (RED, 0))
    assert main(["oldest/spark"]) == 1
    assert "| 4 | 0 | 1 | 1 |" in page.read_text()
    assert "failed: tests.a.two" in capsys.readouterr().out


def test_a_run_that_was_cut_off_is_red_and_leaves_the_page(
    page: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def cut_off(*_: object) -> None:
        raise RuntimeError("pytest ended with -9")

    monkeypatch.setattr(matrix, "run_tests", cut_off)
    assert main(["oldest"]) == 1
    assert page.read_text() == f"{BEGIN}{END}"


def test_a_name_stands_for_its_runs(page: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(matrix, "run_tests", lambda *_: (GREEN, 0))
    assert main(["newest", "oldest/airflow"]) == 0
    assert [line.split(" | ")[0][2:] for line in page.read_text().splitlines()[3:-3]] == [
        "oldest/airflow",
        "newest/airflow",
        "newest/spark",
    ]


def test_an_unknown_name_runs_nothing(page: Path) -> None:
    assert main(["middle"]) == 2
    assert page.read_text() == f"{BEGIN}{END}"
