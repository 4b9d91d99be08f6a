"""The HTML page as text: its policy, what it may load, what is escaped."""

import base64
import hashlib
import re
from html.parser import HTMLParser

import pytest
import situations

from perfci.report.html_page import render

VOID = {"meta", "link", "br", "img", "input", "hr"}


class Page(HTMLParser):
    """Collects tags and attributes, and checks that every element is closed in order."""

    def __init__(self):
        super().__init__(convert_charrefs=True)
        self.open, self.tags, self.attributes, self.style = [], [], [], ""

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += [(tag, name, value) for name, value in attrs]
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += [(tag, name, value) for name, value in attrs]

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open and self.open[-1] == "style":
            self.style += data


def parse(text):
    page = Page()
    page.feed(text)
    page.close()
    assert not page.open
    return page


@pytest.mark.parametrize("name", situations.SITUATIONS)
def test_page_is_self_contained_and_has_no_script(name):
    text = render(situations.SITUATIONS[name](), situations.CONTEXT)
    page = parse(text)
    assert not {"script", "iframe", "object", "embed", "form", "base", "img"} & set(page.tags)
    assert not [a for a in page.attributes if a[1].startswith("on") or a[1] in ("style", "src", "srcset")]
    links = {value for tag, attribute, value in page.attributes if attribute == "href"}
    assert all(
        re.fullmatch(r"data:,|#w\d+|https://ci\.example/runs/17/artifacts|https://perfci\.example/rules/.*", link)
        for link in links
    )
    assert "url(" not in page.style
    assert "@import" not in page.style
    ids = [value for _, attribute, value in page.attributes if attribute == "id"]
    assert len(ids) == len(set(ids))
    labelled = {value for _, attribute, value in page.attributes if attribute == "aria-labelledby"}
    assert labelled <= set(ids)


def test_policy_allows_exactly_the_style_sheet():
    page = parse(render(situations.passing(), situations.CONTEXT))
    policy = next(value for _, attribute, value in page.attributes if attribute == "content" and "default" in value)
    digest = base64.b64encode(hashlib.sha256(page.style.encode()).digest()).decode()
    assert policy.startswith("default-src 'none'; ")
    assert f"style-src 'sha256-{digest}'" in policy
    assert "unsafe" not in policy
    assert "script-src" not in policy


def test_every_svg_has_a_name():
    text = render(situations.mixed(), situations.CONTEXT)
    assert text.count("<svg ") == len(re.findall(r'<svg role="img"[^>]* aria-label="[^"]+"', text)) > 0
