"""Why Tideline asks for a snapshot: prefixes that chains hold, and that no user may take."""

from __future__ import annotations

import pytest

from tideline.contract.reasons import SnapshotReason, own_id, reason_of
from tideline.contract.request import DumpRequest


def test_the_words_that_chains_hold_stay() -> None:
    assert {reason.name: reason.value for reason in SnapshotReason} == {
        "INITIAL": "initial",
        "RESTART": "anew",
        "FOLLOW_UP": "follow-up",
        "DOUBT": "unproven",
        "REREAD": "reread",
        "PENDING": "pending",
    }


@pytest.mark.parametrize("reason", list(SnapshotReason))
def test_an_id_is_parsed_as_it_was_made(reason: SnapshotReason) -> None:
    made = own_id(reason, 7, "0123abcd")
    assert made == f"{reason.value}:7:0123abcd"
    assert DumpRequest(made, ("public.t",)).why is reason


@pytest.mark.parametrize("request_id", ["r1", "initial", "initial-1", "Initial:1", ":", "x:anew:1"])
def test_other_ids_are_a_user_s(request_id: str) -> None:
    assert reason_of(request_id) is None
