"""A small GitHub: keeps state, answers over loopback, and checks every request and answer against GitHub's own OpenAPI
description. Undocumented limits are coded in here, independently of perfci. What it does not know is an error of the
test, not a 404."""

import copy
import functools
import gzip
import json
import threading
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qsl, unquote, urlsplit

from openapi_core import Config, OpenAPI
from openapi_core.datatypes import RequestParameters
from openapi_core.exceptions import OpenAPIError
from werkzeug.datastructures import Headers, ImmutableMultiDict

FOLDER = Path(__file__).parent
BODY_LIMIT = 65_536
ANNOTATIONS_LIMIT = 50
DESCRIPTION_LIMIT = 140
TITLE_LIMIT = 255
HOST = "https://api.github.com"


@functools.cache
def load_description(*, enterprise=False):
    """GitHub's description of github.com, or of GitHub Enterprise Server."""
    name = "openapi-cut-ghes.json.gz" if enterprise else "openapi-cut.json.gz"
    return json.loads(gzip.decompress((FOLDER / name).read_bytes()))


@functools.cache
def _contract(*, enterprise=False):
    spec = {**load_description(enterprise=enterprise), "servers": [{"url": HOST}]}
    return OpenAPI.from_dict(spec, config=Config(spec_validator_cls=None))


_SPEC = load_description()


def example(name):
    """One of GitHub's own examples, completed where it lacks what GitHub's own schema asks for."""
    return _completed(copy.deepcopy(_SPEC["components"]["examples"][name]["value"]))


def _completed(node):
    if isinstance(node, list):
        return [_completed(item) for item in node]
    if not isinstance(node, dict):
        return node
    node = {k: _completed(v) for k, v in node.items()}
    if "forks_url" in node:
        node.setdefault("language", "Python")
        for optional in ("parent", "source", "template_repository"):
            node.pop(optional, None)
    if "members_url" in node and "slug" in node:
        node.setdefault("type", "organization")
        node.setdefault("parent", None)
    if "gists_url" in node:
        node.setdefault("type", "User")
        node.setdefault("site_admin", False)
    if "two_factor_authentication" in node:
        node.setdefault("user_view_type", "private")
    return node


def _as_documented(payload):
    """GitHub answers ``head.repo: null`` when a fork was deleted, which its description does not allow: the one known
    deviation. For the check alone, a repository is put there."""
    if isinstance(payload, list):
        return [_as_documented(item) for item in payload]
    if isinstance(payload, dict) and "head" in payload and payload["head"]["repo"] is None:
        return {**payload, "head": {**payload["head"], "repo": payload["base"]["repo"]}}
    return payload


_LABEL = example("pull-request")["labels"][0]


@dataclass
class SpecRequest:
    """openapi-core's protocol."""

    host_url: str
    path: str
    method: str
    body: bytes | None
    content_type: str
    parameters: RequestParameters


@dataclass
class SpecResponse:
    status_code: int
    content_type: str
    headers: dict
    data: bytes


@dataclass
class Failure:
    """An injected failure for the next ``times`` requests whose method and path match. ``after``: do the work first and
    then answer with the failure (a lost answer)."""

    method: str
    path_part: str
    status: int
    body: dict
    headers: dict = field(default_factory=dict)
    times: int = 1
    after: bool = False
    drop: bool = False


class RefusedError(Exception):
    def __init__(self, status, message):
        super().__init__(message)
        self.status = status
        self.message = message


@dataclass
class GitHubState:
    """Everything the server remembers. Tests set it up and look at it directly."""

    repository: str = "octo/train"
    token: str = "ghs_contractservertoken0123456789abcdef"
    login: str = "github-actions[bot]"
    can_check: bool = True
    pulls: dict = field(default_factory=dict)
    comments: list = field(default_factory=list)
    checks: list = field(default_factory=list)
    statuses: list = field(default_factory=list)
    permissions: dict = field(default_factory=dict)
    commits: dict = field(default_factory=dict)
    linked: dict = field(default_factory=dict)
    failures: list = field(default_factory=list)
    requests: list = field(default_factory=list)
    violations: list = field(default_factory=list)
    hooks: dict = field(default_factory=dict)
    """(method, path part) → function called before the request is served: another actor moves in between."""
    next_id: int = 1000
    lock: threading.RLock = field(default_factory=threading.RLock)

    def new_id(self):
        self.next_id += 1
        return self.next_id

    def add_pull(self, number, *, head_sha, head_ref="topic", head_repository="octo/train", base_ref="main", labels=()):
        self.pulls[number] = {
            "number": number,
            "state": "open",
            "head_sha": head_sha,
            "head_ref": head_ref,
            "head_repository": head_repository,
            "base_ref": base_ref,
            "base_sha": "b" * 40,
            "labels": list(labels),
        }

    def add_comment(self, number, login, body):
        comment = {"id": self.new_id(), "number": number, "login": login, "body": body}
        self.comments.append(comment)
        return comment

    def fail(self, method, path_part, status, message="", **kwargs):
        headers = kwargs.pop("headers", {})
        self.failures.append(
            Failure(
                method=method, path_part=path_part, status=status, body={"message": message}, headers=headers, **kwargs
            )
        )


class ContractServer:
    """Runs a GitHubState on a loopback port. ``close`` raises when a request or an answer broke the contract."""

    def __init__(self, *, enterprise=False):
        self.state = GitHubState()
        self._contract = _contract(enterprise=enterprise)
        self._prefix = "/api/v3" if enterprise else ""
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True
            wbufsize = -1

            def handle_any(self):
                outer.handle(self)

            do_GET = do_POST = do_PATCH = do_DELETE = do_PUT = handle_any  # noqa: N815

            def log_message(self, *_):
                pass

        self._http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._http.daemon_threads = True
        self.web_url = f"http://127.0.0.1:{self._http.server_port}"
        self.url = f"{self.web_url}{self._prefix}"
        self._thread = threading.Thread(target=self._http.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
        self._thread.start()

    def close(self):
        self._http.shutdown()
        self._http.server_close()
        self._thread.join()
        if self.state.violations:
            raise AssertionError("the contract was broken:\n" + "\n".join(self.state.violations))

    def handle(self, handler):
        length = int(handler.headers.get("Content-Length") or 0)
        body = handler.rfile.read(length) if length else None
        parts = urlsplit(handler.path)
        parts = parts._replace(path=parts.path.removeprefix(self._prefix))
        for (method, part), hook in list(self.state.hooks.items()):
            if method == handler.command and part in parts.path:
                del self.state.hooks[method, part]
                hook()
        with self.state.lock:
            try:
                answer = self._answer(handler, parts, body)
            except Exception as error:
                self.state.violations.append(f"{handler.command} {parts.path} broke the server: {error!r}")
                raise
        if answer is None:
            handler.close_connection = True
            handler.connection.close()
            return
        status, headers, data = answer
        handler.send_response(status)
        for name, value in headers.items():
            handler.send_header(name, value)
        handler.send_header("Content-Length", str(len(data)))
        handler.end_headers()
        handler.wfile.write(data)

    def _answer(self, handler, parts, body):
        state = self.state
        state.requests.append((handler.command, parts.path, body))
        query = parse_qsl(parts.query)
        request = SpecRequest(
            host_url=HOST,
            path=parts.path,
            method=handler.command.lower(),
            body=body,
            content_type=(handler.headers.get("Content-Type") or "application/json").split(";")[0],
            parameters=RequestParameters(query=ImmutableMultiDict(query), header=Headers(handler.headers.items())),
        )
        try:
            self._contract.validate_request(request)
        except OpenAPIError as error:
            cause = error.__cause__ or error
            details = getattr(cause, "schema_errors", cause)
            state.violations.append(f"request {handler.command} {parts.path}: {error!r} {details!r}"[:2000])
            return 500, {}, b'{"message": "contract violated"}'
        failure = next(
            (f for f in state.failures if f.times and f.method == handler.command and f.path_part in parts.path), None
        )
        if failure is not None:
            failure.times -= 1
            if failure.after:
                self._serve(handler, parts, dict(query), body)
            if failure.drop:
                return None
            return (
                failure.status,
                {"Content-Type": "application/json", **failure.headers},
                json.dumps(failure.body).encode(),
            )
        try:
            status, headers, payload = self._serve(handler, parts, dict(query), body)
        except RefusedError as refused:
            return (
                refused.status,
                {"Content-Type": "application/json"},
                json.dumps({"message": refused.message, "documentation_url": "https://docs.github.com/rest"}).encode(),
            )
        data = b"" if payload is None else json.dumps(payload).encode()
        headers = {"Content-Type": "application/json; charset=utf-8", **headers} if data else headers
        documented = json.dumps(_as_documented(payload)).encode() if data else b""
        response = SpecResponse(status, "application/json" if data else "", headers, documented)
        try:
            self._contract.validate_response(request, response)
        except OpenAPIError as error:
            cause = error.__cause__ or error
            details = getattr(cause, "schema_errors", cause)
            state.violations.append(f"answer to {handler.command} {parts.path}: {error!r} {details!r}"[:2000])
        return status, headers, data

    def _serve(self, handler, parts, query, body):  # noqa: PLR0911, PLR0912  (one case per operation)
        state = self.state
        if handler.headers.get("Authorization") != f"token {state.token}":
            raise RefusedError(401, "Bad credentials")
        full = "full+json" in (handler.headers.get("Accept") or "")
        path = [unquote(p) for p in parts.path.strip("/").split("/")]
        data = json.loads(body) if body else {}
        method = handler.command
        if path == ["user"]:
            if state.token.startswith("ghs_"):
                raise RefusedError(403, "Resource not accessible by integration")
            return (
                200,
                {},
                {**example("private-user-response-with-public-and-private-profile-information"), "login": state.login},
            )
        owner_name, rest = "/".join(path[1:3]), path[3:]
        if path[0] != "repos" or owner_name != state.repository:
            raise RefusedError(404, "Not Found")
        match (method, *rest):
            case ("GET",):
                return 200, {}, self._repository()
            case ("GET", "pulls"):
                return self._page(parts, query, [self._pull(p, full) for p in self._select_pulls(query)])
            case ("GET", "pulls", number):
                return 200, {}, self._full_pull(self._find_pull(int(number)), full)
            case ("GET", "commits", sha, "pulls"):
                linked = [self._pull(state.pulls[n], full) for n in state.linked.get(sha, ())]
                return self._page(parts, query, linked)
            case ("GET", "commits", sha, "check-runs"):
                found = [
                    self._check(c)
                    for c in state.checks
                    if c["head_sha"] == sha and query.get("check_name", c["name"]) == c["name"]
                ]
                status, headers, page = self._page(parts, query, found)
                return status, headers, {"total_count": len(found), "check_runs": page}
            case ("GET", "git", "commits", sha):
                if sha not in state.commits:
                    raise RefusedError(404, "Not Found")
                return 200, {}, {**example("git-commit-2"), "sha": sha, "message": state.commits[sha]}
            case ("GET", "collaborators", login, "permission"):
                if login not in state.permissions:
                    raise RefusedError(404, "Not Found")
                answer = example("repository-collaborator-permission-response-if-user-has-admin-permissions")
                answer["permission"] = state.permissions[login]
                answer["role_name"] = answer["user"]["role_name"] = state.permissions[login]
                answer["user"]["login"] = login
                return 200, {}, answer
            case ("GET", "issues", number):
                self._find_pull(int(number))
                return 200, {}, self._issue(int(number), full)
            case ("GET", "issues", number, "comments"):
                self._find_pull(int(number))
                mine = [self._comment(c, full) for c in state.comments if c["number"] == int(number)]
                return self._page(parts, query, mine)
            case ("POST", "issues", number, "comments"):
                self._find_pull(int(number))
                self._check_body(data["body"])
                return 201, {}, self._comment(state.add_comment(int(number), state.login, data["body"]), full)
            case ("PATCH", "issues", "comments", comment_id):
                comment = self._own_comment(int(comment_id))
                self._check_body(data["body"])
                comment["body"] = data["body"]
                return 200, {}, self._comment(comment, full)
            case ("DELETE", "issues", "comments", comment_id):
                state.comments.remove(self._own_comment(int(comment_id)))
                return 204, {}, None
            case ("POST", "check-runs"):
                return 201, {}, self._check(self._make_check(data))
            case ("GET", "check-runs", check_id):
                return 200, {}, self._check(self._find_check(int(check_id)))
            case ("PATCH", "check-runs", check_id):
                return 200, {}, self._check(self._change_check(self._find_check(int(check_id)), data))
            case ("POST", "statuses", sha):
                return 201, {}, self._make_status(sha, data)
        raise AssertionError(f"the contract server does not know {method} {parts.path}")

    # answers, built on GitHub's own examples

    def _page(self, parts, query, items):
        size, number = int(query.get("per_page", 30)), int(query.get("page", 1))
        size = min(size, 100)
        page = items[(number - 1) * size : number * size]
        headers = {}
        if number * size < len(items):
            extra = "".join(f"&{k}={v}" for k, v in query.items() if k != "page")
            headers["Link"] = f'<{self.url}{parts.path}?page={number + 1}{extra}>; rel="next"'
        return 200, headers, page

    def _repository(self, full_name=None):
        repository = example("full-repository-default-response")
        name = full_name or self.state.repository
        text = json.dumps(repository).replace("octocat/Hello-World", name).replace(HOST, self.url)
        return json.loads(text)

    def _user(self, login):
        user = copy.deepcopy(example("issue-comment")["user"])
        user["login"] = login
        user["type"] = "Bot" if login.endswith("[bot]") else "User"
        return user

    def _comment(self, comment, full):
        answer = example("issue-comment")
        answer.update(
            id=comment["id"],
            body=comment["body"],
            url=f"{self.url}/repos/{self.state.repository}/issues/comments/{comment['id']}",
            user=None if comment["login"] is None else self._user(comment["login"]),
        )
        if full:
            answer.update(body_html="<p></p>", body_text=comment["body"])
        return answer

    def _issue(self, number, full):
        answer = example("issue")
        root = f"{self.url}/repos/{self.state.repository}"
        answer.update(number=number, url=f"{root}/issues/{number}", comments_url=f"{root}/issues/{number}/comments")
        if full:
            answer.update(body_html="", body_text="")
        return answer

    def _shape(self, answer, pull, full):
        root = f"{self.url}/repos/{self.state.repository}"
        answer.update(
            number=pull["number"],
            state=pull["state"],
            url=f"{root}/pulls/{pull['number']}",
            html_url=f"https://github.com/{self.state.repository}/pull/{pull['number']}",
            comments_url=f"{root}/issues/{pull['number']}/comments",
            labels=[{**_LABEL, "name": name} for name in pull["labels"]],
        )
        head, base = answer["head"], answer["base"]
        head.update(sha=pull["head_sha"], ref=pull["head_ref"])
        base.update(sha=pull["base_sha"], ref=pull["base_ref"])
        base["repo"].update(full_name=self.state.repository)
        if pull["head_repository"] is None:
            head["repo"] = None
        else:
            head["repo"].update(full_name=pull["head_repository"])
            owner = pull["head_repository"].split("/")[0]
            head["label"] = f"{owner}:{pull['head_ref']}"
        if full:
            answer.update(body_html="", body_text="")
        return answer

    def _pull(self, pull, full):
        return self._shape(example("pull-request-simple-items")[0], pull, full)

    def _full_pull(self, pull, full):
        return self._shape(example("pull-request"), pull, full)

    def _select_pulls(self, query):
        found = [p for p in self.state.pulls.values() if query.get("state", "open") in ("all", p["state"])]
        if "head" in query:
            owner, _, ref = query["head"].partition(":")
            found = [p for p in found if p["head_ref"] == ref and (p["head_repository"] or "/").split("/")[0] == owner]
        return found

    def _check(self, check):
        answer = example("check-run-example-of-completed-conclusion")
        answer.update({k: check[k] for k in ("id", "name", "head_sha", "external_id", "status", "conclusion")})
        answer.update(
            completed_at=check["completed_at"],
            url=f"{self.url}/repos/{self.state.repository}/check-runs/{check['id']}",
            pull_requests=[],
        )
        answer["output"].update(
            title=check["title"], summary=check["summary"], annotations_count=len(check["annotations"])
        )
        return answer

    # rules that the description does not state

    def _find_pull(self, number):
        if number not in self.state.pulls:
            raise RefusedError(404, "Not Found")
        return self.state.pulls[number]

    def _own_comment(self, comment_id):
        found = [c for c in self.state.comments if c["id"] == comment_id]
        if not found:
            raise RefusedError(404, "Not Found")
        if found[0]["login"] != self.state.login:
            raise RefusedError(403, "Resource not accessible by integration")
        return found[0]

    def _check_body(self, text):
        if len(text.encode("utf-16-le")) // 2 > BODY_LIMIT:
            raise RefusedError(422, f"Validation Failed: body is too long (maximum is {BODY_LIMIT} characters)")

    def _check_output(self, output):
        if len(output["summary"]) > BODY_LIMIT - 1 or len(output.get("annotations", ())) > ANNOTATIONS_LIMIT:
            raise RefusedError(422, "Validation Failed: output is too large")
        if len(output["title"]) > TITLE_LIMIT:
            raise RefusedError(422, "Validation Failed: title is too long")
        for annotation in output.get("annotations", ()):
            if len(annotation["title"]) > TITLE_LIMIT or len(annotation["message"].encode()) > 64 * 1024:
                raise RefusedError(422, "Validation Failed: annotation is too large")
            if annotation["start_line"] < 1 or annotation["path"].startswith("/"):
                raise RefusedError(422, "Validation Failed: annotation")

    def _find_check(self, check_id):
        self._need_app()
        found = [c for c in self.state.checks if c["id"] == check_id]
        if not found:
            raise RefusedError(404, "Not Found")
        return found[0]

    def _need_app(self):
        if not self.state.can_check:
            raise RefusedError(403, "Resource not accessible by integration")
        if not self.state.token.startswith("ghs_"):
            raise RefusedError(403, "You must authenticate via a GitHub App.")

    def _make_check(self, data):
        self._need_app()
        if ("conclusion" in data) != (data.get("status") == "completed"):
            raise RefusedError(422, "Validation Failed: conclusion and status")
        self._check_output(data["output"])
        check = {
            "id": self.state.new_id(),
            "name": data["name"],
            "head_sha": data["head_sha"],
            "external_id": data.get("external_id", ""),
            "status": data["status"],
            "conclusion": data["conclusion"],
            "completed_at": data["completed_at"],
            "title": data["output"]["title"],
            "summary": data["output"]["summary"],
            "annotations": list(data["output"].get("annotations", ())),
        }
        self.state.checks.append(check)
        return check

    def _change_check(self, check, data):
        if "output" in data:
            self._check_output(data["output"])
            check.update(title=data["output"]["title"], summary=data["output"]["summary"])
            check["annotations"] += data["output"].get("annotations", [])
        check.update({k: data[k] for k in ("conclusion", "external_id", "completed_at") if k in data})
        return check

    def _make_status(self, sha, data):
        if len(data.get("description", "")) > DESCRIPTION_LIMIT:
            raise RefusedError(
                422, f"Validation Failed: description is too long (maximum is {DESCRIPTION_LIMIT} characters)"
            )
        self.state.statuses.append({"sha": sha, **data})
        answer = example("status")
        answer.update(state=data["state"], description=data.get("description"), context=data["context"])
        answer["target_url"] = data.get("target_url")
        return answer
