"""Errors that are worth another try: all but those that stay until an operator acts."""

from __future__ import annotations

from airflow.sdk import ExceptionRetryPolicy, RetryAction, RetryRule

NOT_BY_RETRYING = ExceptionRetryPolicy(
    [
        RetryRule(
            exception=[
                "tideline.contract.errors.Misconfigured",
                "tideline.contract.errors.CorruptData",
                "tideline.contract.errors.InvariantBroken",
            ],
            action=RetryAction.FAIL,
            reason="another try would find the same",
        )
    ]
)
