"""The page as text: complete in itself, and nothing of a run is read as HTML or script."""

import base64
import hashlib
import html
import json
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

import pe_lightning.experiments.compare
from pe_lightning.__main__ import main

EVIL = "</script><script>alert('x')</script><!--<script>&quot;"


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
        else:
            self.text.append(data)

    def of(self, tag):
        return [attributes for name, attributes in self.elements if name == tag]


@pytest.fixture
def write(tmp_path):
    def make(*options):
        assert main(["compare", str(tmp_path), "--out", str(tmp_path / "report"), *options]) == 0
        return (tmp_path / "report" / "index.html").read_text()

    return make


def test_nothing_is_fetched(make_run, write):
    make_run("a/1", pictures=True)
    text = write()
    page = Page(text)
    links = [
        value for _, attributes in page.elements for name, value in attributes.items() if name in ("src", "href", "srcset")
    ]
    assert links
    assert all(link.startswith("data:") for link in links)
    assert "url(" not in text
    assert "@import" not in text
    assert not re.search(r"https?:", text)


def test_only_the_own_script_and_style_may_run(make_run, write):
    make_run("a/1", pictures=True)
    text = write()
    policy = next(a["content"] for a in Page(text).of("meta") if a.get("http-equiv") == "Content-Security-Policy")
    assert policy.startswith("default-src 'none'; img-src data:;")
    assert "unsafe" not in policy
    for tag in ("style", "script"):
        (content,) = re.findall(f"<{tag}>(.*?)</{tag}>", text, re.DOTALL)
        assert f"'sha256-{base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()}'" in policy
    assert not re.search(r"<[^>]*\s(style|on\w+)=", re.sub(r"<script.*?</script>", "", text, flags=re.DOTALL))


def test_names_with_html_are_text(make_run, write, tmp_path):
    name = EVIL.replace("/", "")  # a folder's name has no slash
    make_run(
        f"{name}/1",
        (20.0, None, 24.0),
        config={"model": {EVIL: EVIL}, EVIL: 1},
        pictures=True,
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
        assert len([a for a in page.of("script") if not a]) == 1
        assert {a.get("type") for a in page.of("script")} == {None, "application/json", "text/plain"}
        assert EVIL in "".join(page.text)
        (viewers,) = [json.loads(data) for attributes, data in page.scripts if attributes.get("id") == "viewers"]
        assert viewers[0]["signals"][0]["name"] == EVIL
        assert EVIL not in text
        assert f"{html.escape(EVIL)}" in text


def test_the_table_can_be_read_without_a_script(make_run, write):
    make_run("a/1", (30.0, 31.0, 35.0), config={"seed": 1, "same": 2})
    make_run("b/1", (29.0, 31.0, 33.0), config={"seed": 2, "same": 2, "depth": {"of": 3}})
    text = write()
    page = Page(text)
    assert [a["aria-sort"] for a in page.of("th") if "aria-sort" in a] == ["none", "descending", *["none"] * 5]
    words = [word.strip() for word in page.text if word.strip()]
    assert words[words.index("b/1") :][:2] == ["b/1", "31.00 ± 1.63"]
    settings = words[words.index("Configuration, where it differs") :]
    assert settings == ["Configuration, where it differs", "key", "a/1", "b/1", "seed", "1", "2", "depth.of", "–", "3"]


def test_every_picture_is_there_once(make_run, write):
    make_run("a/1", pictures=True, noise=0.1)
    make_run("b/1", pictures=True, noise=0.2)
    page = Page(write())
    pictures = {a["id"]: data for a, data in page.scripts if a.get("type") == "text/plain"}
    assert len(pictures) == len(set(pictures.values())) == 3 * 3
    (viewers,) = [json.loads(data) for attributes, data in page.scripts if attributes.get("id") == "viewers"]
    tiles = [tile for signal in viewers[0]["signals"] for tile in signal["tiles"]]
    assert {key for tile in tiles for key in tile["truth"] + tile["pictures"]} == set(pictures)
    assert len(tiles) == 6


def test_fewer_and_smaller_pictures_are_announced(make_run, write):
    make_run("a/1", pictures=True)
    text = write("--pictures", "2", "--megapixels", "0.00012")
    assert "2 of 3 signals." in text
    assert "Shown at 50% of their size" in text


def test_why_there_are_no_pictures(make_run, write):
    make_run("a/1")
    text = write()
    assert "No reconstructions: no signal-0_comparison.png" in text
    assert "data-viewer" not in text


def test_the_files_of_the_page_are_packaged():
    folder = Path(pe_lightning.experiments.compare.__file__).parent
    declared = (folder.parents[1] / "pyproject.toml").read_text()
    for path in folder.iterdir():
        if path.is_file() and path.suffix != ".py":
            assert f"compare/*{path.suffix}" in declared or f"compare/{path.name}" in declared
