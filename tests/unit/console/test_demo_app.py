"""What the demo says and when it ends, without any server."""

from __future__ import annotations

import io
import subprocess
import sys

import pytest

from console.demo.app import stays_up
from console.demo.compare import Comparison, Difference, TableComparison
from console.demo.screen import Screen


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_progress_is_replaced_in_a_terminal() -> None:
    out = Terminal()
    screen = Screen(out)
    screen.scene("dump")
    screen.progress("1 row")
    screen.progress("2 rows")
    screen.say("done")
    lines = out.getvalue().split("\r\x1b[K")
    assert lines[1].strip() == "… 1 row" and lines[2].strip() == "… 2 rows"
    assert lines[3].strip() == "done"


def test_progress_in_a_log_is_a_line_every_few_seconds() -> None:
    out = io.StringIO()
    screen = Screen(out)
    for number in range(50):
        screen.progress(f"{number} rows")
    assert out.getvalue().count("rows") == 1
    assert "\x1b" not in out.getvalue()


@pytest.mark.parametrize(
    ("wish", "terminal", "expected"),
    [(None, True, True), ("0", True, True), ("1", True, False), (None, False, False)],
)
def test_it_stays_up_only_for_somebody_at_a_terminal(
    monkeypatch: pytest.MonkeyPatch, wish: str | None, terminal: bool, expected: bool
) -> None:
    if wish is None:
        monkeypatch.delenv("DEMO_EXIT", raising=False)
    else:
        monkeypatch.setenv("DEMO_EXIT", wish)
    stream = Terminal() if terminal else io.StringIO()
    monkeypatch.setattr(sys, "stdin", stream)
    monkeypatch.setattr(sys, "stdout", stream)
    assert stays_up() is expected


def test_the_verdict_names_tables_and_rows_or_the_differences() -> None:
    equal = TableComparison("public.orders", 7, 0, ())
    assert Comparison((equal,)).lines() == ["demo: ok, 1 tables, 7 rows equal"]
    first = Difference("public.items", "has another value", "12", "total")
    wrong = TableComparison("public.items", 6, 3, (first,))
    result = Comparison((equal, wrong))
    assert not result.equal
    assert result.lines() == [
        "demo: FAILED, 3 differences in 1 tables",
        "  public.items row 12 column total: has another value",
        "  public.items: 2 more",
    ]


def test_the_comparison_shares_nothing_with_what_it_judges() -> None:
    script = (
        "import sys, console.demo.compare;"
        "print({name.partition('.')[0] for name in sys.modules} & {'capture', 'spark_jobs'})"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=False
    )
    assert done.stdout.strip() == "set()", done.stdout + done.stderr
