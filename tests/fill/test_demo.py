"""``pe-lightning demo``: a page of examples, whose commands solve them again."""

import json
import re
import shlex
from pathlib import Path

import numpy as np
import pytest
import skimage.io
from PIL import Image

from pe_fill.verbs.demo import tasks
from pe_lightning.__main__ import main

SOME = (tasks.inpaint, tasks.stations, tasks.row)
"""A page of all of them is made with the documents."""
QUIET = ["--wandb.enabled=false", "--trainer.enable_progress_bar=false"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A finished demo of small pictures."""
    folder = tmp_path_factory.mktemp("demo") / "new" / "folder"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tasks, "TASKS", SOME)
        assert main(["demo", str(folder), "--size", "32"]) == 0
    return folder


def commands(folder):
    page = (folder / "index.html").read_text()
    blocks = re.findall(r'<pre class="commands"><code>(.*?)</code></pre>', page, re.DOTALL)
    assert len(blocks) == len(SOME)
    return [shlex.split(line) for block in blocks for line in block.splitlines()]


def test_the_page_shows_the_examples_and_fetches_nothing(folder):
    page = (folder / "index.html").read_text()
    assert not re.search(r"""(?:src|href)=["']?(?:https?:)?//""", page)
    assert page.count('<table class="scores">') == len(SOME)
    for make in SOME:
        with Image.open(folder / f"{make.__name__}.jpg") as picture:
            assert picture.width > 256
        assert f'<img src="{make.__name__}.jpg"' in page
    scores = re.findall(r"</td><td>([\d.]+)</td><td>", page)
    assert len(scores) == 9
    assert all(float(score) > 5 for score in scores)


@pytest.mark.filterwarnings("default::UserWarning")  # of settings that so small signals leave to a rule
@pytest.mark.slow
def test_its_commands_solve_the_examples(folder, monkeypatch):
    monkeypatch.chdir(folder)
    for program, verb, *words in commands(folder):
        assert program == "pe-lightning"
        assert main([verb, *words, *(["--folds", "none"] if verb == "fill" else QUIET)]) == 0
    damaged, restored = (skimage.io.imread(name) for name in ("damaged.png", "restored.png"))
    known = damaged[..., 3] > 0
    assert 0 < known.mean() < 1
    assert (restored[known] == damaged[known]).all()
    assert np.load("map.npy").shape == (32, 32)
    (metrics,) = Path("runs").glob("recording-*/1/metrics.json")
    (score,) = re.findall(r"gau \(exact fit\)</td><td>([\d.]+)", Path("index.html").read_text(), re.DOTALL)
    assert json.loads(metrics.read_text())["test/psnr"] == pytest.approx(float(score), abs=6e-3)  # what the command fits


def test_the_gallery_has_its_commands_and_pictures(folder):
    gallery = (Path(__file__).parents[2] / "docs/gallery.md").read_text()
    for words in commands(folder):
        assert shlex.join(words).replace("32,32", "192,192") in gallery.splitlines()
    for make in tasks.TASKS:
        assert f"(gallery/{make.__name__}.jpg)" in gallery


def test_what_is_refused(folder, tmp_path, capsys):
    before = {path: path.stat().st_mtime_ns for path in folder.iterdir()}
    assert main(["demo", str(folder), "--size", "32"]) == 2
    assert "not an empty folder; give the name of a new one" in capsys.readouterr().err
    assert {path: path.stat().st_mtime_ns for path in folder.iterdir()}.items() >= before.items()
    (tmp_path / "file").write_text("")
    assert main(["demo", str(tmp_path / "file")]) == 2
    assert main(["demo", str(tmp_path / "file" / "below")]) == 2
    assert "Not a directory" in capsys.readouterr().err
    assert main(["demo", str(tmp_path / "new"), "--size", "4000"]) == 2
    assert not (tmp_path / "new").exists()
