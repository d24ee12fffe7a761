"""Names, reasons and errors as Airflow's log shows them."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar, cast

from tideline.contract.errors import TidelineError
from tideline.contract.printable import printable
from tideline_airflow.compat import AirflowException, AirflowSkipException

Method = TypeVar("Method", bound=Callable[..., Any])

_FOLDS = re.compile("::(?:end)?group::")


def log_line(text: str) -> str:
    """Return ``text`` as one line that Airflow's page shows: `printable`, and without the markers
    by which the page folds lines. It finds them anywhere in a line, and leaves that line out."""
    return _FOLDS.sub(lambda found: found[0].replace(":", "\\x3a"), printable(text))


def clear_errors(work: Method) -> Method:
    """Wrap an operator's method that Airflow calls: what it raises is logged first, as one error in
    a separate line, because Airflow's page folds tracebacks."""

    @wraps(work)
    def text(operator: Any, *given: Any, **named: Any) -> Any:
        try:
            return work(operator, *given, **named)
        except AirflowSkipException:
            raise
        except (AirflowException, TidelineError) as failed:
            operator.log.error("%s", log_line(str(failed)))
            raise

    return cast(Method, text)
