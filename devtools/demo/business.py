# ruff: noqa: S608  statements are made of constants
"""The shop's transactions: each function is one transaction over a lane's rows.

Together they insert, update and delete in nine tables, change keys (text, composite and of many
rows at once), leave large values alone and rewrite them, and roll work back, whole and to
savepoints. The statements are the same for every kind of database, except for the expressions in
the lane's `SourceWords`.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Mapping
from types import MappingProxyType

from devtools.demo.lane import Lane, Undo

_STATUSES = ("open", "paid", "shipped", "closed")
_EMAILS = (None, "", "moved@example.org", "neu+ä@example.org")
_NOTES = (None, "", "leave at the door", 'two\nlines, "quoted"')


def place_order(lane: Lane) -> None:
    with lane.transaction():
        order_id = _insert_order(lane)
    lane.remember(order_id)


def place_order_and_change_mind(lane: Lane) -> None:
    """Makes a whole new order, and rolls it back."""
    with lane.transaction():
        _insert_order(lane)
        _update_customer(lane)
        raise Undo


def pay(lane: Lane) -> None:
    """Makes a payment; its first attempt is sometimes rolled back to a savepoint."""
    order_id = _some_order(lane)
    with lane.transaction():
        if lane.random.random() < 0.2:
            with lane.savepoint():
                _insert_payment(lane, order_id, "card")
                lane.change("DELETE FROM order_items WHERE order_id = %s", (order_id,))
                raise Undo
        with lane.savepoint():
            _insert_payment(lane, order_id, "transfer")
        lane.change("UPDATE orders SET status = 'paid' WHERE id = %s", (order_id,))


def ship(lane: Lane) -> None:
    note = lane.random.choice(_NOTES)
    with lane.transaction():
        lane.change(
            f"UPDATE orders SET status = 'shipped', shipped_at = {lane.words.now}, note = %s"
            " WHERE id = %s",
            (note, _some_order(lane)),
        )


def revise_old_orders(lane: Lane) -> None:
    """Updates rows that are as old as the shop, so that dumps meet live traffic."""
    chosen = lane.random.sample(lane.old_orders, min(3, len(lane.old_orders)))
    with lane.transaction():
        for order_id in chosen:
            lane.change(
                "UPDATE orders SET status = %s, total = total + 0.10 WHERE id = %s",
                (lane.random.choice(_STATUSES), order_id),
            )


def cancel(lane: Lane) -> None:
    """Deletes an order and all that belongs to it."""
    if not lane.recent_orders:
        return place_order(lane)
    order_id = lane.recent_orders.pop(lane.random.randrange(len(lane.recent_orders)))
    with lane.transaction():
        _delete_order(lane, order_id)
    return None


def archive(lane: Lane) -> None:
    """Deletes the oldest order; sometimes the customer had returned it."""
    if not lane.old_orders:
        return place_order(lane)
    order_id = lane.old_orders.pop(0)
    with lane.transaction():
        _delete_order(lane, order_id)
        if lane.random.random() < 0.5:
            lane.change(
                f"INSERT INTO returns VALUES (%s, {lane.words.now}, %s, %s)",
                (order_id, lane.random.choice(_NOTES), lane.random.randrange(100_000) / 100),
            )
    return None


def edit_customer(lane: Lane) -> None:
    with lane.transaction():
        _update_customer(lane)


def join(lane: Lane) -> None:
    customer_id = lane.new_id()
    with lane.transaction():
        lane.change(
            "INSERT INTO customers (id, ref, name, email, credit_limit, tags, created_at)"
            f" VALUES (%s, %s, %s, %s, %s, %s, {lane.words.now})",
            (
                customer_id,
                _uuid(lane),
                f"Newcomer {customer_id}",
                lane.random.choice(_EMAILS),
                lane.random.choice((None, 100, 2500.5)),
                lane.words.texts(["new", None]),
            ),
        )
        lane.change(
            "INSERT INTO addresses"
            f" VALUES (%s, 'home', 'New street', NULL, 'DE', NULL, {lane.words.no_end})",
            (customer_id,),
        )
    lane.joined.append(customer_id)


def leave(lane: Lane) -> None:
    if not lane.joined:
        return join(lane)
    customer_id = lane.joined.pop(0)
    with lane.transaction():
        lane.change("DELETE FROM addresses WHERE customer_id = %s", (customer_id,))
        lane.change("DELETE FROM customers WHERE id = %s", (customer_id,))
    return None


def move_address(lane: Lane) -> None:
    """Changes one half of a composite key, there or back."""
    customer_id = lane.random.choice(lane.customers)
    there = lane.random.random() < 0.5
    with lane.transaction():
        moved = lane.change(
            "UPDATE addresses SET kind = %s, valid_until = NULL"
            " WHERE customer_id = %s AND kind = %s",
            ("home" if there else "cottage", customer_id, "cottage" if there else "home"),
            moves_key=True,
        )
        if moved == 0:
            lane.change(
                "UPDATE addresses SET street = concat(street, ' 1') WHERE customer_id = %s",
                (customer_id,),
            )


def rename_coupon(lane: Lane) -> None:
    """Changes a text key."""
    at = lane.random.randrange(len(lane.coupons))
    old = lane.coupons[at]
    new = f"{old.partition('/')[0]}/{lane.random.randrange(10**6)}"
    if new in lane.coupons:
        return
    with lane.transaction():
        lane.change("UPDATE coupons SET code = %s WHERE code = %s", (new, old), moves_key=True)
    lane.coupons[at] = new


def renumber_items(lane: Lane) -> None:
    """Changes the keys of all items of an order in one statement."""
    with lane.transaction():
        lane.change(
            "UPDATE order_items SET line = line + 10 WHERE order_id = %s AND line < 30000",
            (_some_order(lane),),
            moves_key=True,
        )


def rewrite_manual(lane: Lane) -> None:
    """Writes a new TOASTed value, or none."""
    text = None if lane.random.random() < 0.1 else f"edition {lane.random.random()} " * 200
    with lane.transaction():
        lane.change(
            f"UPDATE products SET manual = %s, changed_at = {lane.words.now} WHERE id = %s",
            (text, lane.random.choice(lane.products)),
        )


def reprice(lane: Lane) -> None:
    """Updates many rows in one statement; their manuals are unchanged and not in the log."""
    chosen = lane.random.sample(lane.products, min(15, len(lane.products)))
    with lane.transaction():
        lane.change(
            "UPDATE products SET price = %s, rating = %s, weight_kg = %s, attributes = %s"
            " WHERE id IN %s",
            (
                lane.random.randrange(100, 100_000) / 100,
                lane.random.random() * 5,
                lane.random.random(),
                json.dumps({"season": lane.random.randrange(9)}),
                tuple(chosen),
            ),
        )


DOINGS: Mapping[Callable[[Lane], None], int] = MappingProxyType(
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


def _insert_order(lane: Lane) -> int:
    order_id = lane.new_id()
    products = lane.random.sample(lane.products, min(lane.random.randint(1, 3), len(lane.products)))
    price = lane.random.randrange(100, 50_000) / 100
    lane.change(
        f"INSERT INTO orders VALUES (%s, %s, 'open', %s, 'EUR', %s, {lane.words.now}, NULL)",
        (
            order_id,
            lane.random.choice(lane.customers),
            price * len(products),
            lane.random.choice(_NOTES),
        ),
    )
    items = [(order_id, line, product, 1, price, None) for line, product in enumerate(products, 1)]
    lane.change(
        f"INSERT INTO order_items VALUES {', '.join(['%s'] * len(items))}",
        tuple(items),
    )
    lane.change(
        f"UPDATE products SET stock = stock - 1, changed_at = {lane.words.now} WHERE id IN %s",
        (tuple(products),),
    )
    lane.change(
        f"INSERT INTO stock_movements VALUES (%s, %s, -1, %s, {lane.words.now})",
        (order_id, products[0], lane.random.choice(_NOTES)),
    )
    return order_id


def _insert_payment(lane: Lane, order_id: int, method: str) -> None:
    lane.change(
        f"INSERT INTO payments SELECT %s, id, %s, %s, %s, %s, {lane.words.now}"
        " FROM orders WHERE id = %s",
        (
            _uuid(lane),
            method,
            lane.random.randrange(100_000) / 100,
            lane.random.choice((None, 0.1, lane.random.random())),
            json.dumps({"attempt": lane.random.randrange(3)}),
            order_id,
        ),
    )


def _delete_order(lane: Lane, order_id: int) -> None:
    lane.change("DELETE FROM payments WHERE order_id = %s", (order_id,))
    lane.change("DELETE FROM order_items WHERE order_id = %s", (order_id,))
    lane.change("DELETE FROM orders WHERE id = %s", (order_id,))


def _update_customer(lane: Lane) -> None:
    lane.change(
        f"UPDATE customers SET email = %s, preferences = {lane.words.merged_preferences},"
        f" tags = %s, seen_at = {lane.words.now} WHERE id = %s",
        (
            lane.random.choice(_EMAILS),
            json.dumps({"size": lane.random.randrange(20)}),
            lane.words.texts(lane.random.choice((None, [], ["vip"], ["a,b", None, '"']))),
            lane.random.choice(lane.customers),
        ),
    )


def _some_order(lane: Lane) -> int:
    """Return mostly a recent order, otherwise an old one."""
    if lane.recent_orders and (lane.random.random() < 0.8 or not lane.old_orders):
        return lane.random.choice(lane.recent_orders)
    return lane.random.choice(lane.old_orders)


def _uuid(lane: Lane) -> str:
    return str(uuid.UUID(int=lane.random.getrandbits(128), version=4))
