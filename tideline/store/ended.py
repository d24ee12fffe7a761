"""Confirms by the chain how a request ended: any client of the queue can also write answers into
it."""

from __future__ import annotations

from msgspec.structs import replace

from tideline.contract.request import Answer
from tideline.store.chain import Chain


def confirmed(chain: Chain, answer: Answer) -> Answer | None:
    """Return the end that the chain has for the request of ``answer``, a final one, in the manifest
    that it names; None where that manifest has no such end.

    Raises Unavailable and Misconfigured like the store, CorruptData for a manifest that is none.
    """
    number = answer.manifest_number
    link = None if number is None or number < 1 else chain.read(number)
    if link is None:
        return None
    for found in (*link.manifest.finished, *link.manifest.refused):
        if (found.request_id, found.state) == (answer.request_id, answer.state):
            return replace(found, manifest_number=number)
    return None
