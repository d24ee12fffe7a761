"""Logs why a task failed in a separate line: Airflow's page folds tracebacks."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar, cast

from tideline.contract.errors import TidelineError
from tideline_airflow.compat import AirflowException, AirflowSkipException
from tideline_airflow.log_lines import log_line

Method = TypeVar("Method", bound=Callable[..., Any])


def plainly(work: Method) -> Method:
    """Wrap an operator's method that Airflow calls: what it raises is logged as one error first."""

    @wraps(work)
    def said(operator: Any, *given: Any, **named: Any) -> Any:
        try:
            return work(operator, *given, **named)
        except AirflowSkipException:
            raise
        except (AirflowException, TidelineError) as failed:
            operator.log.error("%s", log_line(str(failed)))
            raise

    return cast(Method, said)
