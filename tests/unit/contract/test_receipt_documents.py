"""The documents that a run stores: its record, then its receipt."""

from __future__ import annotations

from tideline.contract import layout
from tideline.contract.receipt import (
    Outcome,
    Receipt,
    TableReceipt,
    decode_receipt,
    run_of,
    stored_documents,
)
from tideline.contract.timeliness import decode_run


def test_the_record_comes_first() -> None:
    table = TableReceipt("public.a", Outcome.FAILED, 2, 2, error="lost a disk")
    receipt = Receipt("run/1", "shop", "i", (table,))
    (run_key, run), (key, document) = stored_documents(receipt, 5)
    assert run_key == layout.run_key("shop", 5, "run/1")
    assert key == layout.receipt_key("shop", "run/1")
    assert decode_run(run, run_key) == run_of(receipt, 5)
    assert decode_receipt(document, key) == receipt
