"""The source: the database's address, and the tables to capture.

`SourceSettings` has the keys of every source. Those of one kind are in the section that its entry
in the registry names (`tideline.settings.sources`); `source_model` puts them all side by side, so
that they are keys of ``[source]`` like any other.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar
from urllib.parse import unquote, urlsplit

from pydantic import SecretStr, ValidationInfo, create_model, field_validator

from tideline.contract.errors import InvariantBroken
from tideline.settings.addresses import split_url
from tideline.settings.base import Effect, Seconds, Section
from tideline.settings.secrets import hidden, known, secret_of, with_password
from tideline.settings.source_kinds import SOURCE_KINDS, kind_of_scheme, kinds_with, url_forms

_Own = TypeVar("_Own", bound=Section)


class SourceSettings(Section):
    """The database that is captured: PostgreSQL, MySQL or MariaDB, by the url's scheme."""

    effect = Effect.LIVE

    url: Annotated[SecretStr, Effect.RESTART]
    """``postgresql://user@host:port/database``, with ``?sslmode=…&sslrootcert=…`` and other
    parameters of libpq; or ``mysql://user@host:port/`` and ``mariadb://…`` with
    ``?ssl-mode=…&ssl-ca=…``, where a database is ignored: ``tables`` names them, and the log covers
    all. TLS is verified unless the url says otherwise ([DEPLOYMENT](DEPLOYMENT.md#tls))."""
    password: SecretStr | None = None
    """The password, if it is not in the url; better in TIDELINE_SOURCE__PASSWORD."""
    password_file: Path | None = None
    """A file that holds the password and nothing else. Only the worker, `tideline doctor` and the
    demo read it: to Airflow, `plan`, `merge` and the like the source is only a name."""
    tables: tuple[str, ...] = ("*.*",)
    """The tables to capture: shell patterns over `schema.table` (`public.*`)."""
    exclude: tuple[str, ...] = ()
    """The tables among those that are not captured."""
    initial: Literal["dump", "log-only"] = "dump"
    """A table that is new to the pipeline is dumped; or only its changes are captured, from a
    sequence and a time on that the worker's log and `tideline status` show. One whose creation is
    in the log (MySQL, MariaDB) is captured from its first row on, and needs no dump."""
    schema_policy: Literal["auto", "ask"] = "auto"
    """A table that needs a resnapshot is dumped at once, or only marked."""
    connect_timeout_s: Seconds = 10.0
    """The time limit for each connection to the source."""

    @field_validator("url")
    @classmethod
    def _known_scheme(cls, url: SecretStr) -> SecretStr:
        text = url.get_secret_value()
        kind = kind_of_scheme(split_url(text).scheme)
        if kind is None:
            *others, last = url_forms()
            raise ValueError(f"must be {', '.join(others)} or {last}")
        kind.check_url(text)
        return url

    @field_validator("*")
    @classmethod
    def _of_its_kind(cls, value: object, info: ValidationInfo) -> object:
        url = info.data.get("url")  # missing when it is a mistake itself
        kinds = kinds_with(info.field_name or "")
        if kinds and url is not None and _kind_of(url) not in {kind.name for kind in kinds}:
            raise ValueError(f"belongs to {' and '.join(kind.title for kind in kinds)} only")
        return value

    @property
    def kind(self) -> str:
        """The name of the kind of server that the url is of, in `SOURCE_KINDS`."""
        return _kind_of(self.url)

    @property
    def user(self) -> str:
        """The user that the url names; "" for none."""
        return unquote(urlsplit(self.url.get_secret_value()).username or "")

    def section(self, kind: type[_Own]) -> _Own:
        """Return these settings, as what has the source's own keys: ``section(MysqlSection).xa``.

        Raises InvariantBroken for the section of another kind of source.
        """
        if not isinstance(self, kind) or not issubclass(SOURCE_KINDS[self.kind].section, kind):
            raise InvariantBroken(f"a {self.kind} source has no {kind.__name__}")
        return self

    def secret(self) -> str | None:
        """Return the password, from the setting or the file; None without either.

        Raises Misconfigured for an unreadable file.
        """
        return secret_of(self.password, self.password_file, key="source.password")

    def dsn(self) -> str:
        """Return the url with the password from the url, the setting or the file put in.

        Raises Misconfigured for an unreadable file.
        """
        return with_password(self.url.get_secret_value(), self.secret())

    def secrets(self) -> list[str]:
        """Return the texts that must not be shown, as far as they are known here: the file may be
        another container's, where no password is needed. Raises nothing."""
        return hidden(self.url.get_secret_value(), *known(self.dsn))


def source_model(own: tuple[type[Section], ...]) -> type[SourceSettings]:
    """Return `SourceSettings` with the keys of the sections ``own``, after its own and in order."""
    # A model's fields begin with those of its last base.
    bases: Any = (*reversed(own), SourceSettings)
    text = SourceSettings.__doc__
    made: type[SourceSettings] = create_model("SourceSettings", __base__=bases, __doc__=text)
    return made


def _kind_of(url: SecretStr) -> str:
    scheme = urlsplit(url.get_secret_value()).scheme
    kind = kind_of_scheme(scheme)
    if kind is None:
        raise InvariantBroken(f"the settings have a source of an unknown scheme, {scheme}")
    return kind.name
