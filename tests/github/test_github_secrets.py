"""The token goes to one place and is seen nowhere."""

import io
import logging
import pickle
import traceback

import pytest
from contract_server import ContractServer
from github_cases import port_to

from perfci.errors import UsageError
from perfci.github.address import Address, address_from_environment
from perfci.github.github3_port import port_from_environment
from perfci.github.port import GitHubUnavailable
from perfci.github.secret import RedactingFilter, Secret, credential_from_environment, redact

TOKEN = "ghs_contractservertoken0123456789abcdef"


@pytest.mark.parametrize(
    ("environ", "kind"),
    [
        ({"GITHUB_TOKEN": TOKEN}, "installation"),
        ({"GITHUB_TOKEN": "0123456789abcdef0123456789abcdef01234567"}, "installation"),
        ({"GH_TOKEN": "ghp_personaltoken0123456789"}, "personal"),
        ({"PERFCI_GITHUB_TOKEN": "github_pat_abc0123456789abcdef", "GITHUB_TOKEN": TOKEN}, "personal"),
    ],
)
def test_the_environment_gives_token_and_kind(environ, kind):
    credential = credential_from_environment(environ)
    assert credential.kind == kind
    assert credential.token.reveal() == next(iter(environ.values()))


@pytest.mark.parametrize("value", ["", "abc def", "abc\n", "tökén"])
def test_a_missing_or_broken_token_is_an_error_that_does_not_show_it(value):
    with pytest.raises(UsageError) as caught:
        credential_from_environment({"GITHUB_TOKEN": value})
    if value:
        assert value not in str(caught.value)


def test_a_secret_does_not_show_itself():
    secret = Secret(TOKEN)
    credential = credential_from_environment({"GITHUB_TOKEN": TOKEN})
    for text in (repr(secret), str(secret), f"{secret}", repr([secret]), repr(credential), f"{credential!r:>9}"):
        assert "contractserver" not in text
    with pytest.raises(TypeError):
        pickle.dumps(secret)


@pytest.mark.parametrize(
    "text",
    [
        f"got {TOKEN}!",
        f"{{'Authorization': 'token {TOKEN}'}}",
        "Authorization: Bearer abc.def-ghi",
        "https://user:pass-word@github.example.com/x",
        "github_pat_11ABCDEFG0123456789_abcdefghijk",
    ],
)
def test_shapes_of_secrets_are_redacted_even_when_unknown(text):
    clean = redact(text)
    for part in ("contractserver", "abc.def", "pass-word", "11ABCDEFG"):
        assert part not in clean
    assert "[redacted]" in clean


def test_debug_logs_and_tracebacks_of_all_layers_hold_no_token(server):
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.addFilter(RedactingFilter((Secret(TOKEN),)))
    root = logging.getLogger()
    root.addHandler(handler)
    before = root.level
    root.setLevel(logging.DEBUG)
    try:
        port = port_to(server)
        server.state.fail("GET", "/pulls/7", 500, f"your token {TOKEN} is odd", times=9)
        with pytest.raises(GitHubUnavailable) as caught:
            port.pull_request(7)
        try:
            raise RuntimeError(f"with {TOKEN}")
        except RuntimeError:
            logging.getLogger("anything").exception("failed with %s", TOKEN)
    finally:
        root.removeHandler(handler)
        root.setLevel(before)
    shown = "".join(traceback.format_exception(caught.value)) + stream.getvalue()
    assert "/pulls/7" in shown
    assert "contractserver" not in shown


@pytest.mark.parametrize("status", [301, 302, 307])
def test_a_redirect_to_another_host_does_not_carry_the_token(server, status):
    thief = ContractServer()
    server.state.fail("GET", "/pulls/7", status, headers={"Location": f"{thief.url}/repos/octo/train/pulls/7"})
    with pytest.raises(GitHubUnavailable):
        port_to(server).pull_request(7)
    assert thief.state.requests == []
    thief.close()


def test_a_next_page_on_another_host_is_not_fetched(server):
    thief = ContractServer()
    link = {"Link": f'<{thief.url}/repos/octo/train/issues/7/comments?page=2>; rel="next"'}
    server.state.failures.clear()
    server.state.fail("GET", "/issues/7/comments", 200, headers=link)
    server.state.failures[0].body = []
    with pytest.raises(GitHubUnavailable):
        list(port_to(server).comments(7))
    assert thief.state.requests == []
    thief.close()


@pytest.mark.parametrize(
    "url",
    [
        "http://github.example.com",
        "http://127.0.0.1.example.com",
        "http://localhost.example.com",
        "http://127.0.0.1@evil.example",
        "https://user:secret@github.example.com",
        "ftp://github.example.com",
        "//github.example.com",
        "https://github.example.com?x=1",
        "https://git hub.example.com",
        "https://[::1",
        "",
    ],
)
def test_addresses_that_would_leak_the_token_are_refused(url):
    with pytest.raises(UsageError) as caught:
        Address(api_url=url)
    assert "user:secret" not in str(caught.value)


@pytest.mark.parametrize(
    "url", ["http://127.0.0.1:8080", "http://[::1]:9", "http://localhost", "https://ghe.corp/api/v3"]
)
def test_https_and_this_machine_are_fine(url):
    assert Address(api_url=url).api_origin.startswith(url.split("/api")[0])


@pytest.mark.parametrize(
    ("environ", "api"),
    [
        ({}, "https://api.github.com"),
        ({"GITHUB_SERVER_URL": "https://ghe.corp/"}, "https://ghe.corp/api/v3"),
        ({"GITHUB_SERVER_URL": "https://corp.ghe.com"}, "https://api.corp.ghe.com"),
        (
            {"GITHUB_SERVER_URL": "https://ghe.corp", "GITHUB_API_URL": "https://ghe.corp/api/v3/"},
            "https://ghe.corp/api/v3",
        ),
    ],
)
def test_github_enterprise_addresses(environ, api):
    assert address_from_environment(environ).api_url == api


def test_a_job_needs_nothing_but_its_environment():
    server = ContractServer()
    server.state.repository = "octo/train"
    server.state.add_pull(7, head_sha="a" * 40)
    environ = {"GITHUB_TOKEN": TOKEN, "GITHUB_API_URL": server.url, "GITHUB_SERVER_URL": server.url}
    port = port_from_environment(environ, repository="octo/train")
    assert port.pull_request(7).number == 7
    assert port.login() == "github-actions[bot]"
    named = port_from_environment({**environ, "PERFCI_GITHUB_LOGIN": "my-app[bot]"}, repository="octo/train")
    assert named.login() == "my-app[bot]"
    assert TOKEN not in repr(port)
    server.close()
