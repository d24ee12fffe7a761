"""The report of a benchmark: one JSON line per figure."""

from __future__ import annotations

import msgspec


class Result(msgspec.Struct, frozen=True):
    """A figure: ``value`` and ``baseline_value`` of the same run; ``ratio`` is value by baseline.
    ``goal`` is the target in words."""

    name: str
    workload: str
    metric: str
    value: float
    unit: str
    baseline: str
    baseline_value: float
    ratio: float
    goal: str


def result(
    name: str,
    workload: str,
    metric: str,
    *,
    value: tuple[float, str],
    baseline: tuple[str, float],
    goal: str,
) -> Result:
    """Make a result; ``value`` with its unit, ``baseline`` by name with its value."""
    number, unit = value
    other, other_number = baseline
    ratio = number / other_number if other_number else float("nan")
    return Result(
        name,
        workload,
        metric,
        _rounded(number),
        unit,
        other,
        _rounded(other_number),
        _rounded(ratio),
        goal,
    )


def encode(line: Result) -> str:
    return msgspec.json.encode(line).decode()


def _rounded(number: float) -> float:
    return float(f"{number:.4g}")
