"""The documented grants: enough, each of them needed, and each shown when it is missing."""

from __future__ import annotations

import dataclasses
import uuid
from collections.abc import Iterator

import pytest

from tests.fixtures.mysql_preflight import bad, check, make_shop, only, plan_of, statements
from tests.fixtures.mysql_servers import MysqlDatabase
from tideline.contract.schema import TableId
from tideline_capture.sources.finding import Finding

PASSWORD = "canary-77aa"


@pytest.fixture
def shop(mysql_database: MysqlDatabase) -> MysqlDatabase:
    return make_shop(mysql_database)


@dataclasses.dataclass(frozen=True)
class Login:
    """A user without any grant, and the schema of marks that it is to use."""

    database: MysqlDatabase
    name: str
    watermarks: str

    @property
    def sql(self) -> str:
        return f"'{self.name}'@'127.0.0.1'"

    def grant(self, *grants: str) -> None:
        self.database.run(*(f"GRANT {grant} TO {self.sql}" for grant in grants))

    def check(self, *, watermarks: bool = True) -> list[Finding]:
        plan = plan_of(self.database)
        table = TableId(self.watermarks, "watermark") if watermarks else None
        return check(
            self.database, dataclasses.replace(plan, watermarks=table), (self.name, PASSWORD)
        )


@pytest.fixture
def login(shop: MysqlDatabase) -> Iterator[Login]:
    tag = uuid.uuid4().hex[:8]
    user = Login(shop, f"user_{tag}", f"marks_{tag}")
    shop.run(f"CREATE USER {user.sql} IDENTIFIED BY '{PASSWORD}'")
    yield user
    shop.run(f"DROP USER {user.sql}", f"DROP DATABASE IF EXISTS {user.watermarks}")


def documented(login: Login) -> dict[str, str]:
    """The grants of docs/GRANTS.md, and the finding that names one that is missing."""
    return {
        "REPLICATION SLAVE ON *.*": "replication_slave",
        "REPLICATION CLIENT ON *.*": "replication_client",
        f"SELECT ON {login.database.name}.*": "tables",
        f"CREATE ON {login.watermarks}.*": "watermarks",
        f"SELECT ON {login.watermarks}.*": "watermark_grants",
        f"INSERT ON {login.watermarks}.*": "watermark_grants",
        f"UPDATE ON {login.watermarks}.*": "watermark_grants",
    }


def optional(login: Login) -> set[tuple[str, str]]:
    """What is missing without XA_RECOVER_ADMIN, which old versions of MySQL need for XA."""
    return {("xa_recover", "warning")} if login.database.flavour == "mysql8" else set()


@pytest.mark.parametrize("flavour", ["mysql8"])
def test_the_optional_grant_is_shown(login: Login) -> None:
    login.grant(*documented(login))
    (missing,) = [one for one in login.check() if one.name == "xa_recover"]
    login.database.run(statements(missing)[0])
    assert bad(login.check()) == set()


def test_each_documented_grant_is_needed(login: Login) -> None:
    grants = documented(login)
    for missing, name in grants.items():
        login.grant(*(grant for grant in grants if grant != missing))
        # What the user may not see is not there, and capture waits for it.
        expected = "warning" if name == "tables" else "error"
        assert [level for found, level in bad(login.check()) if found == name] == [expected]
        login.database.run(
            f"REVOKE ALL PRIVILEGES, GRANT OPTION FROM {login.sql}",
        )
    login.grant(*grants)
    assert bad(login.check()) == optional(login)


def test_each_missing_grant_is_shown(login: Login) -> None:
    """From nothing to everything, by running what the findings say."""
    names = []
    while findings := [
        one
        for one in login.check()
        if one.level == "error" or (one.name, one.level) == ("tables", "warning")
    ]:
        names.append(findings[0].name)
        assert len(names) < 10, names
        grants = [one for one in statements(findings[0]) if one.startswith("GRANT")]
        if findings[0].name == "tables":
            assert findings[0].fix is not None
            grants = [findings[0].fix.partition("; or ")[2].strip(";")]
        if findings[0].name == "watermarks":
            grants = statements(findings[0])
        login.database.run(*grants)
    expected = {"replication_slave", "replication_client", "tables"}
    assert set(names) == expected | {"watermarks", "watermark_grants"}
    assert bad(login.check()) == optional(login)


def test_without_watermarks_nothing_is_written(login: Login) -> None:
    login.grant(*list(documented(login))[:3])
    assert bad(login.check(watermarks=False)) == optional(login)


def test_grants_by_a_role(login: Login) -> None:
    role = f"role_{login.name}"
    run = login.database.run
    run(f"CREATE ROLE {role}", *(f"GRANT {grant} TO {role}" for grant in documented(login)))
    try:
        login.grant(role)
        assert ("replication_slave", "error") in bad(login.check())
        if login.database.flavour == "mariadb":
            run(f"SET DEFAULT ROLE {role} FOR {login.sql}")
        else:
            run(f"SET DEFAULT ROLE {role} TO {login.sql}")
        assert bad(login.check()) == optional(login)
    finally:
        run(f"DROP ROLE {role}")


def test_a_table_made_by_hand(login: Login) -> None:
    login.grant(*(grant for grant in documented(login) if not grant.startswith("CREATE")))
    finding = only(login.check(), "watermarks", "error")
    login.database.run(*statements(finding))
    assert only(login.check(), "watermarks", "ok").message.endswith("is there")
    login.database.run(f"ALTER TABLE {login.watermarks}.watermark DROP COLUMN clock_us")
    finding = only(login.check(), "watermarks", "error")
    assert "not of the form" in finding.message
    login.database.run(*statements(finding))
    assert bad(login.check()) == optional(login)
    login.database.run(f"ALTER TABLE {login.watermarks}.watermark DROP PRIMARY KEY")
    only(login.check(), "watermarks", "error")


def test_a_part_of_a_table(login: Login) -> None:
    """With grants on some columns the others are not even to be seen."""
    name = login.database.name
    grants = [grant for grant in documented(login) if grant != f"SELECT ON {name}.*"]
    login.grant(*grants, f"SELECT ON {name}.items", f"SELECT (id) ON {name}.orders")
    finding = only(login.check(), "select", "error")
    assert f"`{name}`.`orders`" in finding.message
    login.database.run(*statements(finding))
    assert bad(login.check()) == optional(login)
