"""The HTTP side of the port: one adapter that waits out rate limits, repeats what is safe to repeat, and talks to no
other host than the API's."""

import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import requests
from github3.session import GitHubSession
from requests.adapters import HTTPAdapter
from urllib3.util.retry import Retry

from perfci.github.address import Address
from perfci.github.secret import Credential

SECONDARY_LIMIT_WAIT_S = 60.0
"""What GitHub's documentation asks for when a secondary limit comes without any header ("Best practices")."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryPolicy:
    """How long to try. ``attempts`` counts all tries of one request; ``max_wait_s`` is the longest pause that a rate
    limit may ask for before we give up and say so; ``backoff_s`` the first pause after a server error (doubled each
    time)."""

    attempts: int = 4
    max_wait_s: float = 120.0
    backoff_s: float = 1.0
    sleep: Callable[[float], None] = time.sleep

    def pause(self, attempt: int) -> None:
        """Wait before try number ``attempt + 1`` (from 0), with up to a quarter of jitter."""
        self.sleep(self.backoff_s * 2**attempt * (1 + random.random() / 4))  # noqa: S311  (jitter, not a key)


def limit_wait_s(response: requests.Response, *, now_s: float) -> float | None:
    """Seconds that a refused request must wait before it is repeated, or None when it was not refused for a limit.

    A 403 without one of GitHub's three signs (Retry-After, a spent primary limit, the words "secondary rate limit" in
    the message) is a permission error: repeating it would only delay the bad news.
    """
    if response.status_code not in (403, 429):
        return None
    retry_after = response.headers.get("Retry-After", "")
    if retry_after.isdigit():
        return float(retry_after)
    if response.headers.get("X-RateLimit-Remaining") == "0":
        reset = response.headers.get("X-RateLimit-Reset", "")
        return max(float(reset) - now_s, 0.0) + 1 if reset.isdigit() else SECONDARY_LIMIT_WAIT_S
    if response.status_code == 429 or b"secondary rate limit" in response.content.lower():
        return SECONDARY_LIMIT_WAIT_S
    return None


class LimitAwareAdapter(HTTPAdapter):
    """Repeats a request of any method that GitHub refused *before acting* because of a limit; GET, HEAD and DELETE also
    after a server error or a broken connection (urllib3's Retry). A POST or PATCH whose answer was lost is the port's
    business: only it knows how to see whether it took effect."""

    def __init__(self, policy: RetryPolicy) -> None:
        self._policy = policy
        super().__init__(
            max_retries=Retry(
                total=policy.attempts - 1,
                backoff_factor=policy.backoff_s,
                status_forcelist=(500, 502, 503, 504),
                allowed_methods=("GET", "HEAD", "DELETE"),
                respect_retry_after_header=False,
                raise_on_status=False,
            )
        )

    def send(self, request: requests.PreparedRequest, *args: Any, **kwargs: Any) -> requests.Response:
        """Send, waiting out limits within the policy. The last answer is returned as it is."""
        for attempt in range(self._policy.attempts):
            response = super().send(request, *args, **kwargs)
            wait_s = limit_wait_s(response, now_s=time.time())
            if wait_s is None or wait_s > self._policy.max_wait_s or attempt + 1 == self._policy.attempts:
                break
            response.close()
            self._policy.sleep(wait_s)
        return response


def open_session(*, address: Address, credential: Credential, policy: RetryPolicy, timeout_s: float) -> GitHubSession:
    """A github3 session for one API root.

    Only the API's origin has an adapter: a redirect, a pagination link or a URL inside an answer that points elsewhere
    ends in an error instead of carrying the token there. An installation token is registered as such, because
    github3.py makes check runs only then; Actions' token lives as long as its job, so the expiry is far away.
    """
    session = GitHubSession(default_connect_timeout=timeout_s, default_read_timeout=timeout_s)
    session.base_url = address.api_url
    session.adapters.clear()
    session.mount(address.api_origin, LimitAwareAdapter(policy))
    if credential.kind == "installation":
        session.app_installation_token_auth({"token": credential.token.reveal(), "expires_at": "9999-01-01T00:00:00Z"})
    else:
        session.token_auth(credential.token.reveal())
    return session
