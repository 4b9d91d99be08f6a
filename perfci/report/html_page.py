"""The comparison as one self-contained HTML page: no script, no request, styles bound by a content security policy."""

import base64
import hashlib
from functools import cache
from importlib.resources import files

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from perfci.model.comparison import Comparison
from perfci.report.context import ReportContext
from perfci.report.names import clean, safe_url
from perfci.report.view import view_of

MAX_PASSED = 40
"""PASS rows beyond this many wait behind a fold."""


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("perfci.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters["clean"] = clean
    environment.filters["safe_url"] = safe_url
    return environment


@cache
def style() -> str:
    """The style sheet of all pages."""
    return files("perfci.report").joinpath("templates/report.css").read_text(encoding="utf-8")


def content_security_policy() -> str:
    """Allows the page's own style sheet by its hash and nothing else: no script, no request, no form."""
    digest = base64.b64encode(hashlib.sha256(style().encode("utf-8")).digest()).decode("ascii")
    return f"default-src 'none'; style-src 'sha256-{digest}'; img-src data:; base-uri 'none'; form-action 'none'"


def render(comparison: Comparison, context: ReportContext) -> str:
    """One HTML document. Text from outside is cleaned by the view and escaped by the template engine."""
    template = _environment().get_template("comparison.html.j2")
    return template.render(
        view=view_of(comparison, context),
        context=context,
        policy=content_security_policy(),
        style=Markup(style()),  # noqa: S704  (a file of this package; escaping would change its hash)
        max_passed=MAX_PASSED,
    )
