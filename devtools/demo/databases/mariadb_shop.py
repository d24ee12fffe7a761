"""The shop in MariaDB: the same eight tables and one, with the types that are hard to capture here.

Everything is made by the server from its sequence tables, so that half a million rows take seconds.
What the tables are for, besides looking like a shop:

- ``orders`` has 100,000 rows and more, ``order_items`` and ``addresses`` have composite keys;
- ``customers.ref`` and the key of ``payments`` are UUID, which this server keeps in another order;
- ``order_items.discount`` has more digits than any warehouse's decimal;
- ``products.digest`` is BINARY, with zeros at its end, which the log omits;
- ``coupons`` has negative times, texts in latin1 and a key of text that the traffic changes;
- ``addresses.valid_until`` holds the zero date, which no warehouse has;
- ``returns`` is empty at first.

Invariant: the same seed of rows for every run; nothing here depends on a clock or on chance.
"""

from __future__ import annotations

_SESSION = "SET sql_mode = 'STRICT_TRANS_TABLES,NO_UNSIGNED_SUBTRACTION'"
"""The numbers of a sequence table are unsigned."""

_CUSTOMERS = """
CREATE TABLE customers (
    id bigint PRIMARY KEY,
    ref uuid NOT NULL UNIQUE,
    name varchar(100) NOT NULL,
    email varchar(100),
    tier enum('basic', 'silver', 'gold') NOT NULL DEFAULT 'basic',
    credit_limit decimal(12,2),
    preferences json NOT NULL DEFAULT '{}',
    tags json,
    interests set('books', 'games', 'gärten') NOT NULL DEFAULT '',
    active boolean NOT NULL DEFAULT true,
    birth_date date,
    created_at timestamp(6) NOT NULL DEFAULT current_timestamp(6),
    seen_at datetime(6)
);
INSERT INTO customers
SELECT seq, insert(insert(md5(concat('customer ', seq)), 13, 1, '4'), 17, 1, '8'),
    concat('Customer ', seq, if(seq % 5 = 0, ' Öztürk', '')),
    CASE seq % 7 WHEN 0 THEN NULL WHEN 1 THEN '' ELSE concat('c', seq, '@example.org') END,
    elt(1 + seq % 3, 'basic', 'silver', 'gold'),
    if(seq % 4 > 0, seq % 9000 + (seq % 100) / 100.0, NULL),
    json_object('newsletter', seq % 2, 'theme', 'dark', 'size', seq % 11),
    if(seq % 3 > 0, json_array(concat('t', seq % 10), NULL, concat('a,"b" ', seq % 4)), NULL),
    seq % 8, seq % 13 > 0, DATE '1950-01-01' + INTERVAL seq % 20000 DAY,
    TIMESTAMP '2024-01-01 00:00:00' + INTERVAL seq * 37123456 MICROSECOND,
    if(seq % 6 > 0, TIMESTAMP '2026-01-01 00:00:00' + INTERVAL seq * 11500000 MICROSECOND, NULL)
FROM seq_1_to_%(customers)s;
"""

_ADDRESSES = """
CREATE TABLE addresses (
    customer_id bigint NOT NULL,
    kind varchar(20) NOT NULL,
    street varchar(200) NOT NULL,
    city varchar(100),
    country char(2) NOT NULL,
    location point,
    valid_until date,
    PRIMARY KEY (customer_id, kind),
    FOREIGN KEY (customer_id) REFERENCES customers (id)
);
INSERT INTO addresses
SELECT seq, kind, concat(seq % 300, ' ', kind, ' street'),
    if(seq % 9 > 0, concat('City ', seq % 90), NULL),
    elt(1 + seq % 3, 'DE', 'FR', 'US'), point(seq % 90, (seq % 180) / 3.0),
    CASE seq % 10 WHEN 0 THEN '0000-00-00' WHEN 1 THEN NULL
        ELSE DATE '2027-01-01' + INTERVAL seq % 900 DAY END
FROM seq_1_to_%(customers)s
JOIN (SELECT 'home' AS kind, 1 AS every UNION ALL SELECT 'work', 4) AS kinds ON seq % every = 0;
"""

_PRODUCTS = """
CREATE TABLE products (
    id int unsigned PRIMARY KEY,
    sku varchar(20) CHARACTER SET ascii NOT NULL,
    name varchar(100) NOT NULL,
    price decimal(10,2) NOT NULL,
    weight_kg float,
    rating double,
    stock mediumint NOT NULL,
    attributes json,
    manual mediumtext,
    thumbnail blob,
    digest binary(16) NOT NULL,
    changed_at timestamp(3) NOT NULL DEFAULT current_timestamp(3)
);
INSERT INTO products
SELECT seq, concat('SKU-', lpad(seq, 6, '0')), concat('Product ', seq),
    1 + seq % 500 + (seq % 100) / 100.0, (seq % 70) / 7.0, if(seq % 8 > 0, seq / 3e0, NULL),
    1000000, json_object('colour', elt(1 + seq % 3, 'red', 'green', 'blue'),
        'sizes', json_array(seq % 5, NULL)),
    if(seq % 10 > 0, repeat(md5(concat('manual ', seq)), 100), NULL),
    if(seq % 5 > 0, unhex(md5(concat('thumbnail ', seq))), NULL),
    unhex(left(md5(concat('digest ', seq)), 2 * (seq % 16))),
    TIMESTAMP '2025-06-01 00:00:00' + INTERVAL seq HOUR
FROM seq_1_to_%(products)s;
"""

_COUPONS = """
CREATE TABLE coupons (
    code varchar(40) PRIMARY KEY,
    percent decimal(5,2) NOT NULL,
    season year,
    terms text CHARACTER SET latin1,
    grace time(3)
);
INSERT INTO coupons
SELECT concat('WELCOME-', seq), seq % 50 + 0.5, if(seq % 3 > 0, 2020 + seq % 10, 0),
    CASE seq % 4 WHEN 0 THEN '' WHEN 1 THEN NULL
        ELSE concat('Zeile eins: 5 €\\nline "two", größer ', seq) END,
    sec_to_time((seq % 40 - 20) * 4567.891)
FROM seq_1_to_%(coupons)s;
"""

_ORDERS = """
CREATE TABLE orders (
    id bigint PRIMARY KEY,
    customer_id bigint NOT NULL,
    status enum('open', 'paid', 'shipped', 'closed') NOT NULL,
    total decimal(14,2) NOT NULL,
    currency char(3) NOT NULL,
    note text,
    placed_at timestamp(6) NOT NULL DEFAULT current_timestamp(6),
    shipped_at datetime(6),
    FOREIGN KEY (customer_id) REFERENCES customers (id)
);
INSERT INTO orders
SELECT seq, 1 + seq % %(customers)s, elt(1 + seq % 4, 'open', 'paid', 'shipped', 'closed'),
    10 + seq % 900 + (seq % 100) / 100.0, elt(1 + seq % 2, 'EUR', 'USD'),
    CASE seq % 6 WHEN 0 THEN '' WHEN 1 THEN 'gift, "wrapped" ☕' END,
    TIMESTAMP '2025-01-01 00:00:00' + INTERVAL seq * 250000001 MICROSECOND,
    if(seq % 4 > 1, TIMESTAMP '2025-01-03 00:00:00' + INTERVAL seq * 250 SECOND, NULL)
FROM seq_1_to_%(orders)s;
"""

_ORDER_ITEMS = """
CREATE TABLE order_items (
    order_id bigint NOT NULL,
    line smallint unsigned NOT NULL,
    product_id int unsigned NOT NULL,
    quantity tinyint unsigned NOT NULL,
    unit_price decimal(10,2) NOT NULL,
    discount decimal(65,30),
    PRIMARY KEY (order_id, line),
    FOREIGN KEY (order_id) REFERENCES orders (id),
    FOREIGN KEY (product_id) REFERENCES products (id)
);
INSERT INTO order_items
SELECT o.seq, l.seq, 1 + (o.seq + l.seq * 7) % %(products)s,
    1 + o.seq % 4, 1 + o.seq % 500 + l.seq / 100.0,
    if(o.seq % 5 = 0, cast(o.seq % 17 - 8 AS decimal(30,26)) / 7, NULL)
FROM seq_1_to_%(orders)s AS o
JOIN seq_1_to_2 AS l ON l.seq <= 1 + o.seq % 2;
"""

_PAYMENTS = """
CREATE TABLE payments (
    id uuid PRIMARY KEY,
    order_id bigint NOT NULL,
    method varchar(20) NOT NULL,
    amount decimal(14,2) NOT NULL,
    fee double,
    details json,
    paid_at timestamp(3) NOT NULL DEFAULT current_timestamp(3),
    FOREIGN KEY (order_id) REFERENCES orders (id)
);
INSERT INTO payments
SELECT insert(insert(md5(concat('payment ', seq)), 13, 1, '4'), 17, 1, '8'), seq,
    elt(1 + seq % 3, 'card', 'transfer', 'cash'),
    10 + seq % 900 + (seq % 100) / 100.0, if(seq % 3 > 0, (seq % 100) / 30e0, NULL),
    if(seq % 4 > 0, concat('{"bank" : "B', seq % 20, '", "amount":1.50}'), NULL),
    TIMESTAMP '2025-01-01 06:00:00' + INTERVAL seq * 250500 * 1000 MICROSECOND
FROM seq_1_to_%(orders)s WHERE seq % 2 = 0;
"""

_STOCK_MOVEMENTS = """
CREATE TABLE stock_movements (
    id bigint PRIMARY KEY,
    product_id int unsigned NOT NULL,
    delta int NOT NULL,
    reason tinytext,
    moved_at datetime NOT NULL,
    FOREIGN KEY (product_id) REFERENCES products (id)
);
INSERT INTO stock_movements
SELECT seq, 1 + seq % %(products)s, seq % 21 - 10,
    if(seq % 3 > 0, concat('count ', seq % 12), NULL),
    TIMESTAMP '2026-01-01 00:00:00' + INTERVAL seq * 61 SECOND
FROM seq_1_to_%(orders)s WHERE seq % 4 = 0;
"""

_RETURNS = """
CREATE TABLE returns (
    order_id bigint NOT NULL,
    returned_at timestamp(6) NOT NULL,
    reason text,
    refund decimal(14,2),
    PRIMARY KEY (order_id, returned_at)
);
"""

STATEMENTS = tuple(
    statement.strip()
    for part in (
        _SESSION,
        _CUSTOMERS,
        _ADDRESSES,
        _PRODUCTS,
        _COUPONS,
        _ORDERS,
        _ORDER_ITEMS,
        _PAYMENTS,
        _STOCK_MOVEMENTS,
        _RETURNS,
    )
    for statement in part.split(";")
    if statement.strip()
)

GRANTS = (
    "CREATE USER tideline@'127.0.0.1' IDENTIFIED BY %s",
    "GRANT REPLICATION SLAVE, REPLICATION CLIENT ON *.* TO tideline@'127.0.0.1'",
    "GRANT SELECT ON shop.* TO tideline@'127.0.0.1'",
    "GRANT CREATE, SELECT, INSERT, UPDATE ON tideline.* TO tideline@'127.0.0.1'",
)
"""The grants for capture on a server it does not own, as in the README."""
