"""One test of many small cases, where an item of pytest for each would cost more than the case."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable
from typing import Any


def each(
    parameter: str, cases: Iterable[Any], ids: Callable[[Any], str] = repr
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Run the test for every case, like ``pytest.mark.parametrize`` but as one item.

    All cases run, whatever fails. Raises an ExceptionGroup of what failed, each with its case's id.
    Fixtures are made once, for all cases.
    """
    every = tuple(cases)
    assert every, f"{parameter} has no cases"

    def decorated(test: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(test)
        def run_all(**fixtures: Any) -> None:
            failed: list[Exception] = []
            for case in every:
                try:
                    test(**{parameter: case}, **fixtures)
                except Exception as error:  # noqa: BLE001 - all of them are raised below.
                    error.add_note(f"{parameter}: {ids(case)}")
                    failed.append(error)
            if failed:
                raise ExceptionGroup(f"{len(failed)} of {len(every)} cases failed", failed)

        signature = inspect.signature(test)
        fixtures = [one for name, one in signature.parameters.items() if name != parameter]
        run_all.__dict__["__signature__"] = signature.replace(parameters=fixtures)
        return run_all

    return decorated
