"""Fuzzes the decoders: ``python -m tests.fuzz [--seconds N | --runs N] [--target NAME]…``

Targets are run one after another, or as many at once as there are ``--workers``; ``--seconds`` is
shared out among them. For each a line says how often it was run, how fast, how much of the code was
reached, and what was found. A finding's input and traceback lie in ``.run/fuzz/findings``; what
reached more of the code than anything before in ``.run/fuzz/corpus``, where the next run goes on
from. The kept corpus is only read. The exit status is 1 when anything was found.

``--repeat NAME FILE`` runs a target once on a finding's input, in this process, and shows what it
raises. An input that showed a mistake is kept, in the corpus or as a test, with what mends it.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from tests.fuzz.target import CORPUS, GOLDEN, ROOT, Target
from tests.fuzz.targets import TARGETS

RUN = ROOT / ".run" / "fuzz"
HANG_S = 25
GROWN_MB = 1536
_FINDING = ("finding-", "crash-", "timeout-", "oom-", "leak-")
_STATE = re.compile(r"#(\d+)\s.*cov: (\d+) ft: (\d+)")
_EXECUTED = re.compile(r"stat::number_of_executed_units:\s*(\d+)")
_PEAK = re.compile(r"stat::peak_rss_mb:\s*(\d+)")
_ENDINGS_MAX = 20
"""After so many hangs and crashes of one target its time is given back."""


@dataclass(frozen=True, slots=True)
class Ran:
    """What came of a target. ``code``: edges of ours that were reached."""

    name: str
    executions: int
    seconds: float
    code: int
    peak_mb: int
    findings: tuple[Path, ...]

    def __str__(self) -> str:
        rate = self.executions / max(self.seconds, 0.001)
        return (
            f"{self.name:18} {self.executions:>11,} executions {rate:>9,.0f}/s"
            f" {self.code:>6} edges {self.peak_mb:>6} MB {len(self.findings):>3} findings"
        )


def findings_of(target: Target) -> tuple[Path, ...]:
    """Everything that was ever found of a target, and not removed since."""
    folder = RUN / "findings" / target.name
    found = [path for path in folder.glob("*") if path.name.startswith(_FINDING)]
    return tuple(sorted(path for path in found if path.suffix != ".txt"))


def fuzz(target: Target, *, seconds: float, runs: int | None) -> Ran:
    """Run ``target`` for so long, or so often; hangs and crashes do not end it."""
    folder, corpus = RUN / "findings" / target.name, RUN / "corpus" / target.name
    for one in (folder, corpus):
        one.mkdir(parents=True, exist_ok=True)
    began, executed, code, peak = time.monotonic(), 0, 0, 0
    for _ in range(_ENDINGS_MAX):
        left = seconds - (time.monotonic() - began)
        wanted = None if runs is None else runs - executed
        if left < 1 or (wanted is not None and wanted <= 0):
            break
        limits = [f"-max_total_time={int(left)}"] if wanted is None else [f"-runs={wanted}"]
        done, reported = _child(target, folder, corpus, limits)
        counts = [int(one) for one in _EXECUTED.findall(reported)]
        states = _STATE.findall(reported)
        executed += counts[-1] if counts else int(states[-1][0]) if states else 0
        code = max([code, *(int(one[1]) for one in states)])
        peak = max([peak, *map(int, _PEAK.findall(reported))])
        (folder / "last.txt").write_text(reported)
        if done == 0:
            break
    return Ran(target.name, executed, time.monotonic() - began, code, peak, findings_of(target))


def _child(target: Target, folder: Path, corpus: Path, limits: Sequence[str]) -> tuple[int, str]:
    """One process of libFuzzer; its exit status and what it said."""
    kept = [CORPUS / target.name, *(GOLDEN / one for one in target.golden)]
    command = [
        *(sys.executable, "-m", "tests.fuzz.one", target.name, str(folder)),
        *limits,
        f"-timeout={HANG_S}",
        f"-rss_limit_mb={GROWN_MB}",
        f"-max_len={target.length_max}",
        f"-artifact_prefix={folder}/",
        "-print_final_stats=1",
        "-verbosity=1",
        *(str(one) for one in (corpus, *kept) if one.is_dir()),
    ]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, errors="replace")
    return ended.returncode, ended.stdout + ended.stderr


def repeat(name: str, path: Path) -> int:
    """Run a target on one input here."""
    error = TARGETS[name].check(path.read_bytes())
    if error is None:
        print(f"{name}: nothing is wrong with {path}")
        return 0
    raise error


def main(arguments: Sequence[str] | None = None) -> int:
    """Run what the command line says; the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description="fuzz the decoders")
    parser.add_argument("--seconds", type=float, default=600.0, help="in all")
    parser.add_argument("--runs", type=int, help="of each target, instead of seconds")
    parser.add_argument("--target", action="append", choices=sorted(TARGETS), default=[])
    parser.add_argument("--workers", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--repeat", nargs=2, metavar=("NAME", "FILE"))
    wanted = parser.parse_args(arguments)
    if wanted.repeat:
        return repeat(wanted.repeat[0], Path(wanted.repeat[1]))
    targets = [TARGETS[name] for name in wanted.target or TARGETS]
    workers = min(wanted.workers, len(targets))
    seconds = wanted.seconds * workers / len(targets)

    def one(target: Target) -> Ran:
        ran = fuzz(target, seconds=seconds, runs=wanted.runs)
        print(ran, *map(_reported, ran.findings), sep="\n  ", flush=True)
        return ran

    return int(any(ran.findings for ran in in_order(one, targets, workers)))


def in_order(
    one: Callable[[Target], Ran], targets: Sequence[Target], workers: int
) -> Sequence[Ran]:
    """What came of each target, ``workers`` of them at once."""
    with ThreadPoolExecutor(workers) as pool:
        return list(pool.map(one, targets))


def _reported(path: Path) -> str:
    text = path.with_name(path.name + ".txt")
    what = text.read_text().partition("\n")[0] if text.exists() else path.name.partition("-")[0]
    shown = path.relative_to(ROOT)
    return f"{what}: python -m tests.fuzz --repeat {path.parent.name} {shown}"


if __name__ == "__main__":
    sys.exit(main())
