"""The shop in PostgreSQL: eight related tables with the types that make capture hard.

Everything is made by the server with generate_series, so that half a million rows take seconds.
What the tables are for, besides looking like a shop:

- ``orders`` has 100,000 rows and more, ``order_items`` and ``addresses`` have composite keys;
- ``products.manual`` is a TOASTed value, so that most updates of a product do not carry it;
- ``coupons`` and ``addresses`` have text keys that the traffic changes;
- ``addresses.valid_until`` holds ``infinity``, a date that no warehouse has;
- ``returns`` is empty at first.

Invariant: the same seed of rows for every run; nothing here depends on a clock or on chance.
"""

from __future__ import annotations

_TYPES = """
CREATE TYPE customer_tier AS ENUM ('basic', 'silver', 'gold');
CREATE TYPE order_status AS ENUM ('open', 'paid', 'shipped', 'closed');
"""

_CUSTOMERS = """
CREATE TABLE customers (
    id bigint PRIMARY KEY,
    ref uuid NOT NULL UNIQUE,
    name text NOT NULL,
    email text,
    tier customer_tier NOT NULL DEFAULT 'basic',
    credit_limit numeric(12,2),
    preferences jsonb NOT NULL DEFAULT '{}',
    tags text[],
    active boolean NOT NULL DEFAULT true,
    birth_date date,
    created_at timestamptz NOT NULL,
    seen_at timestamp
);
INSERT INTO customers
SELECT g, md5('customer ' || g)::uuid,
    'Customer ' || g || CASE g % 5 WHEN 0 THEN ' Öztürk' ELSE '' END,
    CASE g % 7 WHEN 0 THEN NULL WHEN 1 THEN '' ELSE 'c' || g || '@example.org' END,
    (ARRAY['basic', 'silver', 'gold'])[1 + g % 3]::customer_tier,
    CASE WHEN g % 4 > 0 THEN (g % 9000) + (g % 100) / 100.0 END,
    jsonb_build_object('newsletter', g % 2 = 0, 'theme', 'dark', 'size', g % 11),
    CASE WHEN g % 3 > 0 THEN ARRAY['t' || g % 10, NULL, 'a,"b" ' || g % 4] END,
    g % 13 > 0, DATE '1950-01-01' + g % 20000,
    TIMESTAMPTZ '2024-01-01 00:00:00+00' + g * INTERVAL '37.123456 seconds',
    CASE WHEN g % 6 > 0 THEN TIMESTAMP '2026-01-01' + g * INTERVAL '11.5 seconds' END
FROM generate_series(1, %(customers)s) g;
"""

_ADDRESSES = """
CREATE TABLE addresses (
    customer_id bigint NOT NULL REFERENCES customers,
    kind text NOT NULL,
    street text NOT NULL,
    city text,
    country char(2) NOT NULL,
    location point,
    valid_until date,
    PRIMARY KEY (customer_id, kind)
);
INSERT INTO addresses
SELECT g, k.kind, g % 300 || ' ' || k.kind || ' street',
    CASE WHEN g % 9 > 0 THEN 'City ' || g % 90 END,
    (ARRAY['DE', 'FR', 'US'])[1 + g % 3], point(g % 90, (g % 180) / 3.0),
    CASE g % 10 WHEN 0 THEN 'infinity' WHEN 1 THEN NULL ELSE DATE '2027-01-01' + g % 900 END
FROM generate_series(1, %(customers)s) g
JOIN (VALUES ('home', 1), ('work', 4)) k (kind, every) ON g % k.every = 0;
"""

_PRODUCTS = """
CREATE TABLE products (
    id integer PRIMARY KEY,
    sku text NOT NULL,
    name text NOT NULL,
    price numeric(10,2) NOT NULL,
    weight_kg real,
    rating double precision,
    stock integer NOT NULL,
    attributes jsonb,
    manual text,
    thumbnail bytea,
    changed_at timestamptz NOT NULL
);
ALTER TABLE products ALTER COLUMN manual SET STORAGE EXTERNAL;
INSERT INTO products
SELECT g, 'SKU-' || lpad(g::text, 6, '0'), 'Product ' || g, 1 + g % 500 + (g % 100) / 100.0,
    (g % 70) / 7.0, CASE WHEN g % 8 > 0 THEN g / 3.0 END, 1000000,
    jsonb_build_object('colour', (ARRAY['red', 'green', 'blue'])[1 + g % 3],
        'sizes', jsonb_build_array(g % 5, NULL)),
    CASE WHEN g % 10 > 0 THEN repeat(md5('manual ' || g), 100) END,
    CASE WHEN g % 5 > 0 THEN decode(md5('thumbnail ' || g), 'hex') END,
    TIMESTAMPTZ '2025-06-01 00:00:00+00' + g * INTERVAL '1 hour'
FROM generate_series(1, %(products)s) g;
"""

_COUPONS = """
CREATE TABLE coupons (
    code text PRIMARY KEY,
    percent numeric(5,2) NOT NULL,
    limits int4range,
    terms text,
    grace interval
);
INSERT INTO coupons
SELECT 'WELCOME-' || g, g % 50 + 0.5, CASE WHEN g % 3 > 0 THEN int4range(g % 10, 100) END,
    CASE g % 4 WHEN 0 THEN '' WHEN 1 THEN NULL ELSE E'line one\\nline "two", ' || g END,
    g % 40 * INTERVAL '36 hours'
FROM generate_series(1, %(coupons)s) g;
"""

_ORDERS = """
CREATE TABLE orders (
    id bigint PRIMARY KEY,
    customer_id bigint NOT NULL REFERENCES customers,
    status order_status NOT NULL,
    total numeric(14,2) NOT NULL,
    currency char(3) NOT NULL,
    note text,
    placed_at timestamptz NOT NULL,
    shipped_at timestamptz
);
INSERT INTO orders
SELECT g, 1 + g % %(customers)s,
    (ARRAY['open', 'paid', 'shipped', 'closed'])[1 + g % 4]::order_status,
    10 + g % 900 + (g % 100) / 100.0, (ARRAY['EUR', 'USD'])[1 + g % 2],
    CASE g % 6 WHEN 0 THEN '' WHEN 1 THEN 'gift, "wrapped" ☕' END,
    TIMESTAMPTZ '2026-01-01 00:00:00+00' + g * INTERVAL '250.000001 seconds',
    CASE WHEN g % 4 > 1 THEN TIMESTAMPTZ '2026-01-03 00:00:00+00' + g * INTERVAL '250 seconds' END
FROM generate_series(1, %(orders)s) g;
"""

_ORDER_ITEMS = """
CREATE TABLE order_items (
    order_id bigint NOT NULL REFERENCES orders,
    line smallint NOT NULL,
    product_id integer NOT NULL REFERENCES products,
    quantity integer NOT NULL,
    unit_price numeric(10,2) NOT NULL,
    discount numeric,
    PRIMARY KEY (order_id, line)
);
INSERT INTO order_items
SELECT g, l, 1 + (g + l * 7) % %(products)s, 1 + g % 4, 1 + g % 500 + l / 100.0,
    CASE WHEN g % 5 = 0 THEN (g % 17) / 8.0 END
FROM generate_series(1, %(orders)s) g, generate_series(1, 1 + g % 2) l;
"""

_PAYMENTS = """
CREATE TABLE payments (
    id uuid PRIMARY KEY,
    order_id bigint NOT NULL REFERENCES orders,
    method text NOT NULL,
    amount numeric(14,2) NOT NULL,
    fee double precision,
    details json,
    paid_at timestamptz NOT NULL
);
INSERT INTO payments
SELECT md5('payment ' || g)::uuid, g, (ARRAY['card', 'transfer', 'cash'])[1 + g % 3],
    10 + g % 900 + (g % 100) / 100.0, CASE WHEN g % 3 > 0 THEN (g % 100) / 30.0 END,
    CASE WHEN g % 4 > 0 THEN ('{"bank" : "B' || g % 20 || '", "amount":1.50}')::json END,
    TIMESTAMPTZ '2026-01-01 06:00:00+00' + g * INTERVAL '250.5 seconds'
FROM generate_series(1, %(orders)s) g WHERE g % 2 = 0;
CREATE INDEX ON payments (order_id);
"""

_STOCK_MOVEMENTS = """
CREATE TABLE stock_movements (
    id bigint PRIMARY KEY,
    product_id integer NOT NULL REFERENCES products,
    delta integer NOT NULL,
    reason text,
    moved_at timestamp NOT NULL
);
INSERT INTO stock_movements
SELECT g, 1 + g % %(products)s, g % 21 - 10, CASE WHEN g % 3 > 0 THEN 'count ' || g % 12 END,
    TIMESTAMP '2026-01-01' + g * INTERVAL '61 seconds'
FROM generate_series(1, %(orders)s / 4) g;
"""

_RETURNS = """
CREATE TABLE returns (
    order_id bigint NOT NULL,
    returned_at timestamptz NOT NULL,
    reason text,
    refund numeric(14,2),
    PRIMARY KEY (order_id, returned_at)
);
"""

GRANTS = """
CREATE ROLE tideline LOGIN REPLICATION PASSWORD %s;
GRANT USAGE ON SCHEMA public TO tideline;
GRANT SELECT ON ALL TABLES IN SCHEMA public TO tideline;
CREATE PUBLICATION tideline_shop FOR TABLE customers, addresses, products, coupons, orders,
    order_items, payments, stock_movements, returns
    WITH (publish = 'insert, update, delete, truncate', publish_via_partition_root = true);
"""
"""The grants for capture on a database it does not own, as in the README."""

STATEMENTS = (
    _TYPES,
    _CUSTOMERS,
    _ADDRESSES,
    _PRODUCTS,
    _COUPONS,
    _ORDERS,
    _ORDER_ITEMS,
    _PAYMENTS,
    _STOCK_MOVEMENTS,
    _RETURNS,
    "ANALYZE;",
)
