"""The source's own users: sessions that change rows, keys and tables, and keep a bank's sum."""

from __future__ import annotations

import random
from collections.abc import Callable

from devtools.simulation.columns import Alteration, draw_alteration, value_of
from devtools.simulation.database import Database
from devtools.simulation.log import Aborted, DatabaseKind, SessionWork
from devtools.simulation.scenario import Scenario
from devtools.simulation.scheduler import Process, World
from devtools.simulation.tables import ACCOUNTS, ITEMS, LATER, NAMES, TOAST, Form, Key, Row

ACCOUNTS_OPEN = 14
BALANCE = 100
KEYS = 34
ALTERED_EVERY_S = 6.0
HOT = 4
"""Keys of `ITEMS` that are changed again and again, in every chunk's window."""
_STEMS = ("alpha", "Bravo", "charlie", "Delta", "echo")


def load(database: Database, own: random.Random) -> None:
    """Load the rows that are there before capture begins."""
    work = database.begin()
    for at in range(ACCOUNTS_OPEN):
        row = {"id": at, "balance": BALANCE, TOAST: f"note {own.getrandbits(40):x}"}
        database.lock(work, ACCOUNTS, (at,))
        database.write(work, ACCOUNTS, "c", (at,), row)
    for table in (ITEMS, NAMES):
        for key in all_keys(table):
            if own.random() < 0.7:
                database.lock(work, table, key)
                database.write(work, table, "c", key, fresh_row(table, key, own))
    database.commit(work)


def all_keys(table: str) -> list[Key]:
    """Return the keys that rows of ``table`` have and get."""
    if table == NAMES:
        return [(f"{_STEMS[at % 5]}{at // 5}",) for at in range(KEYS)]
    return [(at,) for at in range(ACCOUNTS_OPEN if table == ACCOUNTS else KEYS)]


def fresh_row(table: str, key: Key, own: random.Random) -> Row:
    name = "name" if table == NAMES else "id"
    return {name: key[0], "v": f"{own.getrandbits(32):x}", TOAST: f"big {own.getrandbits(60):x}"}


class Workload:
    """The workload of a run.

    ``transactions`` in all, by several sessions at once; ``done`` when they are over.
    """

    def __init__(
        self, world: World, database: Database, own: random.Random, transactions: int
    ) -> None:
        self.database = database
        self.left = transactions
        self.busy = 0
        self.altered = 0
        self._world = world
        self._own = own

    @property
    def done(self) -> bool:
        return self.left <= 0 and self.busy == 0

    def session(self, own: random.Random) -> Callable[[], None]:
        """Run one session's task."""

        def run() -> None:
            while self.left > 0:
                self._world.sleep(own.expovariate(1 / 0.18))
                if self.left <= 0:
                    return
                if not self.database.up:
                    self._world.sleep(0.5)
                    continue
                self.busy += 1
                self._transaction(own)
                self.busy -= 1

        return run

    def plain(self, own: random.Random) -> Callable[[], None]:
        """Run one user's task, who inserts, and updates whole rows, one in each transaction."""

        def run() -> None:
            self._world.sleep(6.0)
            while self.left > 0:
                work, table = self.database.begin(), own.choice((ITEMS, NAMES))
                key = own.choice(all_keys(table))
                self.database.lock(work, table, key)
                before = self.database.current(work, table, key)
                row = fresh_row(table, key, own)
                self.database.write(work, table, "c" if before is None else "u", key, row)
                self._world.wait(self.database.commit(work), None)
                self.left -= 1
                self._world.sleep(own.uniform(0.04, 0.12))

        return run

    def owner(self, own: random.Random) -> Callable[[], None]:
        """Run the task of an owner who alters tables now and then."""

        def run() -> None:
            while self.left > 0:
                self._world.sleep(own.expovariate(1 / ALTERED_EVERY_S))
                if self.left > 0 and self.database.up:
                    self.busy += 1
                    self.alter(own, draw_alteration)
                    self.busy -= 1

        return run

    def maker(self, own: random.Random) -> Callable[[], None]:
        """Run the task of a user who makes a table, fills it at once, and leaves it then."""

        def run() -> None:
            self._world.sleep(own.uniform(2.0, 20.0))
            while not self.database.up or self.database.began_at is None:
                self._world.sleep(0.5)
            if self.left <= 0:
                return
            self.busy += 1
            self.database.make(LATER)
            for _ in range(8):
                work = self.database.begin()
                try:
                    for _ in range(3):
                        self.change(work, LATER, own)
                    self._world.wait(self.database.commit(work), None)
                except Aborted:
                    continue
            self.busy -= 1

        return run

    def alter(self, own: random.Random, draw: Callable[[Form, random.Random], Alteration]) -> bool:
        """Alter the columns of a table as soon as no session holds anything of it.

        False when that does not come, or there is nothing to alter. A reader of the log does not
        understand every statement.
        """
        held = self.database.tables[own.choice((ITEMS, NAMES))]
        for _ in range(400):
            if not held.locked and not held.exclusive:
                break
            self._world.sleep(0.02)
        else:
            return False
        what = draw(held.form, own)
        if what.steps:
            self.altered += 1
            self.database.alter(held, what, understood=own.random() < 0.85)
        return bool(what.steps)

    def _transaction(self, own: random.Random) -> None:
        work = self.database.begin()
        try:
            draw = own.random()
            if draw < 0.25:
                self._transfer(work, own)
            else:
                self._changes(work, own, own.choice((1, 1, 2, 3)))
            if draw > 0.93:
                self._with_savepoint(work, own)
            self._end(work, own)
        except Aborted:
            return

    def _changes(self, work: SessionWork, own: random.Random, count: int) -> None:
        for _ in range(count):
            table = own.choice((ITEMS, ITEMS, NAMES))
            self.change(work, table, own)
            self._pause(work, own)

    def _transfer(self, work: SessionWork, own: random.Random) -> None:
        """Transfer from one account to another: the sum stays."""
        one, other = own.sample(range(ACCOUNTS_OPEN), 2)
        amount = own.randint(1, 20)
        for at in (one, other):
            if not self.database.lock(work, ACCOUNTS, (at,)):
                return
        for at, change in ((one, -amount), (other, amount)):
            row = self.database.current(work, ACCOUNTS, (at,))
            if row is not None:
                changed = {**row, "balance": row["balance"] + change}
                if own.random() < 0.3:
                    changed[TOAST] = f"note {own.getrandbits(40):x}"
                self.database.write(work, ACCOUNTS, "u", (at,), changed)
            self._pause(work, own)

    def change(self, work: SessionWork, table: str, own: random.Random) -> None:
        """Change one row once, if no other session has it."""
        database, keys = self.database, all_keys(table)
        key = own.choice(keys[:HOT]) if own.random() < 0.35 else own.choice(keys)
        if work.aborted or not database.lock(work, table, key):
            return
        row = database.current(work, table, key)
        if row is None:
            database.write(work, table, "c", key, fresh_row(table, key, own))
            return
        draw = own.random()
        if draw < 0.17:
            database.write(work, table, "d", key, None)
        elif draw < 0.30:
            self._move(work, table, key, row, own)
        else:
            database.write(work, table, "u", key, self._updated(table, row, own))

    def _move(self, work: SessionWork, table: str, key: Key, row: Row, own: random.Random) -> None:
        """Move a row to a free key, or swap it with the row that is there."""
        database, to = self.database, own.choice(all_keys(table))
        if to == key or not database.lock(work, table, to):
            return
        there = database.current(work, table, to)
        changed = row if own.random() < 0.6 else self._updated(table, row, own)
        if there is None:
            database.move(work, table, key, to, changed)
            return
        spare: Key = ("zulu",) if table == NAMES else (KEYS + 7,)
        if database.lock(work, table, spare) and database.current(work, table, spare) is None:
            database.move(work, table, to, spare, there)
            database.move(work, table, key, to, changed)
            database.move(work, table, spare, key, there)

    def _updated(self, table: str, row: Row, own: random.Random) -> Row:
        changed = {**row, "v": f"{own.getrandbits(32):x}"}
        if own.random() < 0.35:
            changed[TOAST] = f"big {own.getrandbits(60):x}"
        form = self.database.tables[table].form
        for name in form.schema.column_names[4:]:
            if own.random() < 0.5:
                changed[name] = value_of(form, name, own)
        return changed

    def _with_savepoint(self, work: SessionWork, own: random.Random) -> None:
        savepoint = self.database.savepoint(work)
        self._changes(work, own, 2)
        if own.random() < 0.6 and not work.aborted:
            self.database.roll_back_to(work, savepoint)

    def _pause(self, work: SessionWork, own: random.Random) -> None:
        self._world.sleep(own.expovariate(1 / 0.03))
        if work.aborted:
            raise Aborted

    def _end(self, work: SessionWork, own: random.Random) -> None:
        database = self.database
        draw = own.random()
        if not work.changes or draw < 0.07:
            database.roll_back(work)
        elif draw < 0.16 and database.kind is DatabaseKind.MYSQL and database.began_at is not None:
            self._xa(work, own)
        else:
            self._world.wait(database.commit(work), None)
            self.left -= 1

    def _xa(self, work: SessionWork, own: random.Random) -> None:
        """Prepare an XA transaction.

        It is committed or rolled back some time later, whatever happens to sessions.
        """
        name = f"xa-{work.xid}"
        self.database.prepare_xa(work, name)
        self._world.sleep(own.uniform(0.1, 4.0))
        while not self.database.up:
            self._world.sleep(0.3)
        commit = own.random() < 0.6
        self.database.end_xa(work, name, commit=commit)
        self.left -= commit

    # -- what faults ask for -------------------------------------------------------------------

    def huge(self, own: random.Random) -> None:
        """Run one transaction with very many changes."""
        work = self.database.begin()
        try:
            for at in range(150):
                self.change(work, own.choice((ITEMS, NAMES)), own)
                if at % 40 == 0:
                    self._pause(work, own)
            if work.changes:
                self._world.wait(self.database.commit(work), None)
            else:
                self.database.roll_back(work)
        except Aborted:
            return

    def long(self, own: random.Random, seconds: float) -> None:
        """Run one that changes a few rows and stays open."""
        work = self.database.begin()
        try:
            self._changes(work, own, 2)
            self._world.sleep(seconds)
            if work.aborted:
                return
            if work.changes and own.random() < 0.8:
                self._world.wait(self.database.commit(work), None)
            else:
                self.database.roll_back(work)
        except Aborted:
            return

    def packed(self, own: random.Random) -> None:
        """Run one whose rows are compressed in the log."""
        work = self.database.begin()
        work.packed = True
        try:
            self._changes(work, own, 3)
            self._world.wait(self.database.commit(work), None)
        except Aborted:
            return

    def truncate(self, own: random.Random) -> bool:
        """Truncate, and add a few new rows in the same transaction; False when never alone.

        Rather a table of which a chunk is being read.
        """
        database = self.database
        self._world.wait(database.chunk_read, 4.0)
        table = database.chunk_of if database.chunk_of != ACCOUNTS else own.choice((ITEMS, NAMES))
        work = self.database.begin()
        try:
            for _ in range(400):
                if self.database.lock_table(work, table):
                    break
                self._world.sleep(0.02)
                if work.aborted:
                    return False
            else:
                self.database.roll_back(work)
                return False
            self.database.truncate(work, table)
            for _ in range(own.randint(0, 4)):
                self.change(work, table, own)
            self._world.wait(self.database.commit(work), None)
            return True
        except Aborted:
            return False


def spawn(world: World, workload: Workload, process: Process, scenario: Scenario) -> None:
    """Begin the scenario's sessions."""
    seed, count = scenario.seed, scenario.sessions
    if not scenario.faulty:
        own = random.Random(f"{seed} plain")
        world.spawn(process, "the user", workload.plain(own))
        return
    own = random.Random(f"{seed} owner")
    world.spawn(process, "owner", workload.owner(own))
    if scenario.kind is DatabaseKind.MYSQL:
        world.spawn(process, "maker", workload.maker(random.Random(f"{seed} maker")))
    for at in range(count):
        own = random.Random(f"{seed} session {at}")
        world.spawn(process, f"session {at}", workload.session(own))
