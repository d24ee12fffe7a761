# ruff: noqa: S608  statements are made of constants
"""The shop's transactions: each function is one transaction over a worker's rows.

Together they insert, update and delete in nine tables, change keys (text, composite and of many
rows at once), leave large values alone and rewrite them, and roll work back, whole and to
savepoints. The statements are the same for every kind of database, except for the expressions in
the worker's `SourceWords`.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Mapping
from types import MappingProxyType

from devtools.demo.worker import ShopWorker, Undo

_STATUSES = ("open", "paid", "shipped", "closed")
_EMAILS = (None, "", "moved@example.org", "neu+ä@example.org")
_NOTES = (None, "", "leave at the door", 'two\nlines, "quoted"')


def place_order(worker: ShopWorker) -> None:
    with worker.transaction():
        order_id = _insert_order(worker)
    worker.remember(order_id)


def place_order_and_change_mind(worker: ShopWorker) -> None:
    """Make a whole new order, and rolls it back."""
    with worker.transaction():
        _insert_order(worker)
        _update_customer(worker)
        raise Undo


def pay(worker: ShopWorker) -> None:
    """Make a payment; its first attempt is sometimes rolled back to a savepoint."""
    order_id = _some_order(worker)
    with worker.transaction():
        if worker.random.random() < 0.2:
            with worker.savepoint():
                _insert_payment(worker, order_id, "card")
                worker.change("DELETE FROM order_items WHERE order_id = %s", (order_id,))
                raise Undo
        with worker.savepoint():
            _insert_payment(worker, order_id, "transfer")
        worker.change("UPDATE orders SET status = 'paid' WHERE id = %s", (order_id,))


def ship(worker: ShopWorker) -> None:
    note = worker.random.choice(_NOTES)
    with worker.transaction():
        worker.change(
            f"UPDATE orders SET status = 'shipped', shipped_at = {worker.words.now}, note = %s"
            " WHERE id = %s",
            (note, _some_order(worker)),
        )


def revise_old_orders(worker: ShopWorker) -> None:
    """Update rows that are as old as the shop, so that dumps meet live traffic."""
    chosen = worker.random.sample(worker.old_orders, min(3, len(worker.old_orders)))
    with worker.transaction():
        for order_id in chosen:
            worker.change(
                "UPDATE orders SET status = %s, total = total + 0.10 WHERE id = %s",
                (worker.random.choice(_STATUSES), order_id),
            )


def cancel(worker: ShopWorker) -> None:
    """Delete an order and all that belongs to it."""
    if not worker.recent_orders:
        return place_order(worker)
    order_id = worker.recent_orders.pop(worker.random.randrange(len(worker.recent_orders)))
    with worker.transaction():
        _delete_order(worker, order_id)
    return None


def archive(worker: ShopWorker) -> None:
    """Delete the oldest order; sometimes the customer had returned it."""
    if not worker.old_orders:
        return place_order(worker)
    order_id = worker.old_orders.pop(0)
    with worker.transaction():
        _delete_order(worker, order_id)
        if worker.random.random() < 0.5:
            worker.change(
                f"INSERT INTO returns VALUES (%s, {worker.words.now}, %s, %s)",
                (order_id, worker.random.choice(_NOTES), worker.random.randrange(100_000) / 100),
            )
    return None


def edit_customer(worker: ShopWorker) -> None:
    with worker.transaction():
        _update_customer(worker)


def join(worker: ShopWorker) -> None:
    customer_id = worker.new_id()
    with worker.transaction():
        worker.change(
            "INSERT INTO customers (id, ref, name, email, credit_limit, tags, created_at)"
            f" VALUES (%s, %s, %s, %s, %s, %s, {worker.words.now})",
            (
                customer_id,
                _uuid(worker),
                f"Newcomer {customer_id}",
                worker.random.choice(_EMAILS),
                worker.random.choice((None, 100, 2500.5)),
                worker.words.texts(["new", None]),
            ),
        )
        worker.change(
            "INSERT INTO addresses"
            f" VALUES (%s, 'home', 'New street', NULL, 'DE', NULL, {worker.words.no_end})",
            (customer_id,),
        )
    worker.joined.append(customer_id)


def leave(worker: ShopWorker) -> None:
    if not worker.joined:
        return join(worker)
    customer_id = worker.joined.pop(0)
    with worker.transaction():
        worker.change("DELETE FROM addresses WHERE customer_id = %s", (customer_id,))
        worker.change("DELETE FROM customers WHERE id = %s", (customer_id,))
    return None


def move_address(worker: ShopWorker) -> None:
    """Change one half of a composite key, there or back."""
    customer_id = worker.random.choice(worker.customers)
    there = worker.random.random() < 0.5
    with worker.transaction():
        moved = worker.change(
            "UPDATE addresses SET kind = %s, valid_until = NULL"
            " WHERE customer_id = %s AND kind = %s",
            ("home" if there else "cottage", customer_id, "cottage" if there else "home"),
            moves_key=True,
        )
        if moved == 0:
            worker.change(
                "UPDATE addresses SET street = concat(street, ' 1') WHERE customer_id = %s",
                (customer_id,),
            )


def rename_coupon(worker: ShopWorker) -> None:
    """Change a text key."""
    at = worker.random.randrange(len(worker.coupons))
    old = worker.coupons[at]
    new = f"{old.partition('/')[0]}/{worker.random.randrange(10**6)}"
    if new in worker.coupons:
        return
    with worker.transaction():
        worker.change("UPDATE coupons SET code = %s WHERE code = %s", (new, old), moves_key=True)
    worker.coupons[at] = new


def renumber_items(worker: ShopWorker) -> None:
    """Change the keys of all items of an order in one statement."""
    with worker.transaction():
        worker.change(
            "UPDATE order_items SET line = line + 10 WHERE order_id = %s AND line < 30000",
            (_some_order(worker),),
            moves_key=True,
        )


def rewrite_manual(worker: ShopWorker) -> None:
    """Write a new TOASTed value, or none."""
    text = None if worker.random.random() < 0.1 else f"edition {worker.random.random()} " * 200
    with worker.transaction():
        worker.change(
            f"UPDATE products SET manual = %s, changed_at = {worker.words.now} WHERE id = %s",
            (text, worker.random.choice(worker.products)),
        )


def reprice(worker: ShopWorker) -> None:
    """Update many rows in one statement; their manuals are unchanged and not in the log."""
    chosen = worker.random.sample(worker.products, min(15, len(worker.products)))
    with worker.transaction():
        worker.change(
            "UPDATE products SET price = %s, rating = %s, weight_kg = %s, attributes = %s"
            " WHERE id IN %s",
            (
                worker.random.randrange(100, 100_000) / 100,
                worker.random.random() * 5,
                worker.random.random(),
                json.dumps({"season": worker.random.randrange(9)}),
                tuple(chosen),
            ),
        )


DOINGS: Mapping[Callable[[ShopWorker], None], int] = MappingProxyType(
    {
        place_order: 30,
        place_order_and_change_mind: 5,
        pay: 18,
        ship: 10,
        revise_old_orders: 7,
        cancel: 6,
        archive: 4,
        edit_customer: 6,
        join: 2,
        leave: 1,
        move_address: 4,
        rename_coupon: 2,
        renumber_items: 2,
        rewrite_manual: 1,
        reprice: 2,
    }
)
"""The transactions with their weights."""


def _insert_order(worker: ShopWorker) -> int:
    order_id = worker.new_id()
    products = worker.random.sample(
        worker.products, min(worker.random.randint(1, 3), len(worker.products))
    )
    price = worker.random.randrange(100, 50_000) / 100
    worker.change(
        f"INSERT INTO orders VALUES (%s, %s, 'open', %s, 'EUR', %s, {worker.words.now}, NULL)",
        (
            order_id,
            worker.random.choice(worker.customers),
            price * len(products),
            worker.random.choice(_NOTES),
        ),
    )
    items = [(order_id, line, product, 1, price, None) for line, product in enumerate(products, 1)]
    worker.change(
        f"INSERT INTO order_items VALUES {', '.join(['%s'] * len(items))}",
        tuple(items),
    )
    worker.change(
        f"UPDATE products SET stock = stock - 1, changed_at = {worker.words.now} WHERE id IN %s",
        (tuple(products),),
    )
    worker.change(
        f"INSERT INTO stock_movements VALUES (%s, %s, -1, %s, {worker.words.now})",
        (order_id, products[0], worker.random.choice(_NOTES)),
    )
    return order_id


def _insert_payment(worker: ShopWorker, order_id: int, method: str) -> None:
    worker.change(
        f"INSERT INTO payments SELECT %s, id, %s, %s, %s, %s, {worker.words.now}"
        " FROM orders WHERE id = %s",
        (
            _uuid(worker),
            method,
            worker.random.randrange(100_000) / 100,
            worker.random.choice((None, 0.1, worker.random.random())),
            json.dumps({"attempt": worker.random.randrange(3)}),
            order_id,
        ),
    )


def _delete_order(worker: ShopWorker, order_id: int) -> None:
    worker.change("DELETE FROM payments WHERE order_id = %s", (order_id,))
    worker.change("DELETE FROM order_items WHERE order_id = %s", (order_id,))
    worker.change("DELETE FROM orders WHERE id = %s", (order_id,))


def _update_customer(worker: ShopWorker) -> None:
    worker.change(
        f"UPDATE customers SET email = %s, preferences = {worker.words.merged_preferences},"
        f" tags = %s, seen_at = {worker.words.now} WHERE id = %s",
        (
            worker.random.choice(_EMAILS),
            json.dumps({"size": worker.random.randrange(20)}),
            worker.words.texts(worker.random.choice((None, [], ["vip"], ["a,b", None, '"']))),
            worker.random.choice(worker.customers),
        ),
    )


def _some_order(worker: ShopWorker) -> int:
    """Return mostly a recent order, otherwise an old one."""
    if worker.recent_orders and (worker.random.random() < 0.8 or not worker.old_orders):
        return worker.random.choice(worker.recent_orders)
    return worker.random.choice(worker.old_orders)


def _uuid(worker: ShopWorker) -> str:
    return str(uuid.UUID(int=worker.random.getrandbits(128), version=4))
