"""Errors that are worth another try: all but those that stay until an operator acts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def _policy() -> dict[str, Any]:
    try:
        # heavy: missing before Airflow 3.3, which then tries these errors again like all others
        from airflow.sdk import ExceptionRetryPolicy, RetryAction, RetryRule
    except ImportError:
        return {}
    rule = RetryRule(
        exception=[
            "tideline.contract.errors.Misconfigured",
            "tideline.contract.errors.CorruptData",
            "tideline.contract.errors.InvariantBroken",
        ],
        action=RetryAction.FAIL,
        reason="another try would find the same",
    )
    return {"retry_policy": ExceptionRetryPolicy([rule])}


NOT_BY_RETRYING: Mapping[str, Any] = _policy()
"""Arguments of a task."""
