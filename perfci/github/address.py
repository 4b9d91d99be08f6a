"""Where GitHub is: github.com, GitHub Enterprise Cloud with data residency, or a GitHub Enterprise Server."""

import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import SplitResult, urlsplit

from perfci.errors import UsageError

DEFAULT_API = "https://api.github.com"
DEFAULT_SERVER = "https://github.com"


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """``api_url`` is the root of the REST API, ``server_url`` the root of the web pages; neither ends with a slash."""

    api_url: str = DEFAULT_API
    server_url: str = DEFAULT_SERVER

    def __post_init__(self) -> None:
        for url in (self.api_url, self.server_url):
            check_url(url)

    @property
    def api_origin(self) -> str:
        """Scheme, host and port of the API with a closing slash: the only place that may ever be sent the token."""
        parts = urlsplit(self.api_url)
        return f"{parts.scheme}://{parts.netloc}/"


def _loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def check_url(url: str) -> SplitResult:
    """Refuse what must never be sent a token: plain http (but to this machine), other schemes, credentials in the
    URL, a query or fragment. Raises UsageError."""
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname or "", parts.port
    except ValueError as error:
        raise UsageError(f"not a URL of GitHub: {error}", wanted="for example https://github.example.com") from None
    if parts.username is not None or parts.password is not None:
        raise UsageError(
            "the URL of GitHub holds credentials", wanted="a URL without them", todo="set GITHUB_TOKEN instead"
        )
    if not host or parts.query or parts.fragment or any(c.isspace() or ord(c) < 32 for c in url):
        raise UsageError(f"{url!r} is not a URL of GitHub", wanted="for example https://github.example.com")
    if parts.scheme != "https" and not (parts.scheme == "http" and _loopback(host)):
        raise UsageError(
            f"{url!r} would send the token unencrypted" if parts.scheme == "http" else f"{url!r} is not an https URL",
            wanted="https:// (http:// only to this machine)",
            todo="set GITHUB_API_URL to the https address of the API",
        )
    return parts


def address_from_environment(environ: Mapping[str, str]) -> Address:
    """Read GITHUB_API_URL and GITHUB_SERVER_URL, which Actions sets on every kind of GitHub. With only the server
    given, the API of a GitHub Enterprise Server is ``/api/v3`` below it (``api.`` before it for ghe.com)."""
    server = (environ.get("GITHUB_SERVER_URL") or DEFAULT_SERVER).rstrip("/")
    api = (environ.get("GITHUB_API_URL") or "").rstrip("/")
    if not api:
        parts = check_url(server)
        if server == DEFAULT_SERVER:
            api = DEFAULT_API
        elif (parts.hostname or "").endswith(".ghe.com"):
            api = f"{parts.scheme}://api.{parts.netloc}"
        else:
            api = f"{server}/api/v3"
    return Address(api_url=api, server_url=server)
