"""Tokens: read from the environment only, never printed."""

import logging
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from perfci.errors import UsageError

TOKEN_VARIABLES = ("PERFCI_GITHUB_TOKEN", "GITHUB_TOKEN", "GH_TOKEN")
"""Environment variables that may hold the token, the first one set wins. No option and no config key holds it."""

REDACTED = "[redacted]"

_TOKEN_SHAPES = re.compile(
    r"\b(?:gh[pousr]_[A-Za-z0-9_]{16,}|github_pat_[A-Za-z0-9_]{16,})"
    r"|(?i:\b(?:authorization|proxy-authorization)['\"]?\s*[:=]\s*['\"]?(?:token|bearer|basic)\s+)[^\s'\",}]+"
    r"|(?<=://)[^/\s@]+:[^/\s@]+(?=@)"
)
"""What tokens, authorization headers and credentials in URLs look like: redacted even when we do not know them."""


class Secret:
    """A string that shows itself only through ``reveal``: not in repr, str, format, logs of containers, or pickles."""

    __slots__ = ("_value",)

    def __init__(self, value: str) -> None:
        self._value = value

    def reveal(self) -> str:
        """The secret itself. Call it only where the value enters a request."""
        return self._value

    def __repr__(self) -> str:
        return REDACTED

    def __reduce__(self) -> tuple[type["Secret"], tuple[str]]:
        raise TypeError("a secret is not to be stored")


def redact(text: str, secrets: tuple[Secret, ...] = ()) -> str:
    """The text without the given secrets and without anything that is shaped like a token or credential."""
    for secret in secrets:
        if secret.reveal():
            text = text.replace(secret.reveal(), REDACTED)
    return _TOKEN_SHAPES.sub(REDACTED, text)


@dataclass(frozen=True, slots=True, kw_only=True)
class Credential:
    """A token and its use. ``kind``: an installation token (the job's own GITHUB_TOKEN, or an app's) can make
    check runs; a personal token can not."""

    token: Secret
    kind: Literal["installation", "personal"]
    variable: str


def credential_from_environment(environ: Mapping[str, str]) -> Credential:
    """The token of the environment (TOKEN_VARIABLES, first one set).

    Tokens that start with ``ghp_``, ``gho_``, ``ghu_`` or ``github_pat_`` act for a person; all others (``ghs_`` and
    tokens of GitHub Enterprise without prefix) are taken as installation tokens, which is what Actions hands out.
    Raises UsageError when there is none, or when it holds white space or control characters (a broken copy, which
    would otherwise show up inside the error of the HTTP library).
    """
    for variable in TOKEN_VARIABLES:
        value = environ.get(variable, "")
        if not value:
            continue
        if not re.fullmatch(r"[\x21-\x7e]+", value):
            raise UsageError(
                f"{variable} holds white space or characters outside ASCII",
                wanted="a token as GitHub hands it out",
                todo="set it again, without line break",
            )
        personal = value.startswith(("ghp_", "gho_", "ghu_", "github_pat_"))
        return Credential(token=Secret(value), kind="personal" if personal else "installation", variable=variable)
    raise UsageError(
        "no GitHub token in the environment",
        wanted=f"one of {', '.join(TOKEN_VARIABLES)}",
        todo="in a workflow: `env: {GITHUB_TOKEN: ${{ github.token }}}` on the publishing step",
    )


class RedactingFilter(logging.Filter):
    """Redacts records in place, exception texts included. Attach it to handlers, so that it also sees child loggers."""

    def __init__(self, secrets: tuple[Secret, ...] = ()) -> None:
        super().__init__()
        self._secrets = secrets
        self._formatter = logging.Formatter()

    def filter(self, record: logging.LogRecord) -> bool:
        """Always lets the record through, redacted."""
        record.msg, record.args = redact(record.getMessage(), self._secrets), ()
        if record.exc_info and not record.exc_text:
            record.exc_text = self._formatter.formatException(record.exc_info)
        if record.exc_text:
            record.exc_text = redact(record.exc_text, self._secrets)
        return True
