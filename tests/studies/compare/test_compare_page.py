"""The page as text: complete in itself, and nothing of a run is read as HTML or script."""

import base64
import hashlib
import json
import re
from html.parser import HTMLParser

import pytest

from pe_lightning.__main__ import main

EVIL = "</script><script>alert('x')</script><!--<script>&quot;\"{{ 7 * 7 }}"


class Page(HTMLParser):
    """Collects the elements, and the text of the scripts."""

    def __init__(self, text):
        super().__init__()
        self.elements, self.scripts, self.text = [], [], []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))

    def handle_data(self, data):
        if self.elements and self.elements[-1][0] == "script" and self.cdata_elem == "script":
            self.scripts.append((self.elements[-1][1], data))
        elif data.strip():
            self.text.append(data.strip())

    def of(self, tag):
        return [attributes for name, attributes in self.elements if name == tag]

    @property
    def signals(self):
        (found,) = [json.loads(data) for attributes, data in self.scripts if attributes.get("id") == "signals"]
        return found


@pytest.fixture
def write(tmp_path):
    def make(*options):
        assert main(["compare", str(tmp_path), "--out", str(tmp_path / "report"), *options]) == 0
        return (tmp_path / "report" / "index.html").read_text()

    return make


def test_the_page_fetches_nothing_and_runs_only_its_own_script(make_run, write):
    make_run("a/1", noise=0.1)
    text = write()
    page = Page(text)
    links = [value for _, found in page.elements for name, value in found.items() if name in ("src", "href", "srcset")]
    assert links
    assert all(link.startswith("data:") for link in links)
    assert not re.search(r"https?:|@import", text)
    policy = next(a["content"] for a in page.of("meta") if a.get("http-equiv") == "Content-Security-Policy")
    assert policy.startswith("default-src 'none'; img-src data:;")
    assert "unsafe" not in policy
    for tag in ("style", "script"):
        (content,) = re.findall(f"<{tag}>(.*?)</{tag}>", text, re.DOTALL)
        assert f"'sha256-{base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()}'" in policy


def test_names_with_html_are_text(make_run, write):
    make_run(
        f"{EVIL.replace('/', '')}/1",  # a folder's name has no slash
        (20.0, None, 24.0),
        config={"model": {EVIL: EVIL}, EVIL: 1},
        noise=0.1,
        signals=[EVIL, "b", "c"],
        encoder={"name": EVIL},
        sampling={"name": EVIL, EVIL: EVIL},
        protocol=EVIL,
        data_fingerprint=EVIL,
        baselines={EVIL: {"test/psnr": None, "test/psnr_reason": EVIL}},
        **{"test/psnr_reason": EVIL},
    )
    make_run("b/1", config={"model": {EVIL: "other"}}, protocol=EVIL)
    for options in ([], ["--by", "encoder.name"]):
        text = write(*options)
        page = Page(text)
        assert {a.get("type") for a in page.of("script")} == {None, "application/json", "text/plain"}
        assert len([a for a in page.of("script") if not a]) == 1
        assert page.signals[0][0][0] == EVIL
        assert EVIL not in text
        assert EVIL in "".join(page.text)
