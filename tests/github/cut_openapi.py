"""Cut GitHub's OpenAPI description down to the operations that the contract server knows.

Source: npm package @octokit/openapi (MIT licence, Octokit contributors). To make the file again:

    npm pack @octokit/openapi && tar xzf octokit-openapi-*.tgz
    python tests/github/cut_openapi.py package/generated/api.github.com.json package/LICENSE openapi-cut.json.gz
    python tests/github/cut_openapi.py package/generated/ghes-3.17.json package/LICENSE openapi-cut-ghes.json.gz

It keeps the named operations and everything they refer to, and drops prose inside schemas; nothing else is changed.
"""

import gzip
import json
import sys
from pathlib import Path

OPERATIONS = {
    "/repos/{owner}/{repo}": ["get"],
    "/repos/{owner}/{repo}/check-runs": ["post"],
    "/repos/{owner}/{repo}/check-runs/{check_run_id}": ["get", "patch"],
    "/repos/{owner}/{repo}/commits/{ref}/check-runs": ["get"],
    "/repos/{owner}/{repo}/commits/{commit_sha}/pulls": ["get"],
    "/repos/{owner}/{repo}/collaborators/{username}/permission": ["get"],
    "/repos/{owner}/{repo}/git/commits/{commit_sha}": ["get"],
    "/repos/{owner}/{repo}/issues/{issue_number}": ["get"],
    "/repos/{owner}/{repo}/issues/{issue_number}/comments": ["get", "post"],
    "/repos/{owner}/{repo}/issues/comments/{comment_id}": ["patch", "delete"],
    "/repos/{owner}/{repo}/pulls": ["get"],
    "/repos/{owner}/{repo}/pulls/{pull_number}": ["get"],
    "/repos/{owner}/{repo}/statuses/{sha}": ["post"],
    "/user": ["get"],
}
PROSE = {"externalDocs", "x-github", "x-octokit", "tags", "x-github-breaking-changes"}


def references(node):
    if isinstance(node, dict):
        if isinstance(node.get("$ref"), str):
            yield node["$ref"]
        for value in node.values():
            yield from references(value)
    elif isinstance(node, list):
        for value in node:
            yield from references(value)


def without_prose(node, *, inside_properties=False):
    if isinstance(node, dict):
        return {
            key: without_prose(value, inside_properties=key in ("properties", "examples"))
            for key, value in node.items()
            if inside_properties or key not in PROSE
        }
    if isinstance(node, list):
        return [without_prose(value) for value in node]
    return node


def cut(full, licence):
    paths = {path: {m: full["paths"][path][m] for m in methods} for path, methods in OPERATIONS.items()}
    components = {}
    queue = list(references(paths))
    seen = set()
    while queue:
        ref = queue.pop()
        if ref in seen:
            continue
        seen.add(ref)
        _, _, group, name = ref.split("/", 3)
        target = full["components"][group][name]
        components.setdefault(group, {})[name] = target
        queue.extend(references(target))
    info = {**full["info"], "x-cut-from": f"@octokit/openapi {full['info']['version']}", "x-licence": licence}
    return without_prose(
        {"openapi": full["openapi"], "info": info, "servers": full["servers"], "paths": paths, "components": components}
    )


def main():
    full = json.loads(Path(sys.argv[1]).read_text())
    data = json.dumps(cut(full, Path(sys.argv[2]).read_text().strip()), sort_keys=True, separators=(",", ":"))
    target = Path(__file__).with_name(sys.argv[3])
    target.write_bytes(gzip.compress(data.encode(), 9, mtime=0))
    print(f"{target.name}: {len(data)} characters, {target.stat().st_size} bytes")


if __name__ == "__main__":
    main()
