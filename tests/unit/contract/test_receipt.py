"""What a receipt asks to have read again."""

from __future__ import annotations

from msgspec.structs import replace

from tideline.contract.receipt import Outcome, Receipt, TableReceipt, reread_requests
from tideline.contract.request import check_request

ORDERS = TableReceipt(
    'public."order items"',
    Outcome.APPLIED,
    7,
    70,
    pending=2,
    pending_keys=(("1", "a"), ("2", "b")),
)
RECEIPT = Receipt("run/1", "shop", "5f0c6a3e9b1d4c7e", (ORDERS,))


def test_the_keys_of_what_is_pending() -> None:
    whole = replace(ORDERS, table="public.done", pending=0, pending_keys=())
    [request] = reread_requests(replace(RECEIPT, tables=(whole, ORDERS)))
    check_request(request)
    assert request.tables == (ORDERS.table,)
    assert request.keys == ORDERS.pending_keys


def test_the_same_state_is_asked_for_once_and_another_again() -> None:
    asked = reread_requests(RECEIPT)
    assert reread_requests(replace(RECEIPT, plan_id="run/2")) == asked
    for other in (
        replace(ORDERS, table="public.other"),
        replace(ORDERS, applied_manifest=8),
    ):
        [request] = reread_requests(replace(RECEIPT, tables=(other,)))
        assert request.request_id != asked[0].request_id
    assert reread_requests(replace(RECEIPT, incarnation="another"))[0].request_id != (
        asked[0].request_id
    )


def test_too_many_or_too_long_keys_ask_for_the_whole_table() -> None:
    many = replace(ORDERS, pending=20_000, pending_keys=())
    long = replace(ORDERS, pending_keys=(("x" * 600_000, "y"),))
    for table in (many, long):
        [request] = reread_requests(replace(RECEIPT, tables=(table,)))
        assert request.whole
