"""The script of the gallery, and the commands of its page, which solve the same tasks."""

import json
import re
import shlex
from pathlib import Path

import numpy as np
import pytest
import skimage.io
from PIL import Image

from pe_lightning.__main__ import main

PAGE = Path(__file__).parents[2] / "docs/gallery.md"
QUIET = ["--wandb.enabled=false", "--trainer.enable_progress_bar=false"]


@pytest.mark.slow  # a command of each task
@pytest.mark.filterwarnings("default::UserWarning")  # of settings that so small signals leave to a rule
def test_the_commands_of_the_page_solve_the_tasks(tmp_path, monkeypatch):
    import gallery

    scores = gallery.write_gallery(tmp_path / "new", 48)
    assert all(score > 5 for task in scores.values() for score in task.values())
    monkeypatch.chdir(tmp_path / "new")
    for make in gallery.TASKS:
        with Image.open(f"{make.__name__}.jpg") as picture:
            assert picture.width > 256
    for words in map(shlex.split, re.findall("pe-lightning (.*)", PAGE.read_text().replace("192,192", "48,48"))):
        if any(word in words for word in ("damaged.png", "stations.csv", "recording.csv")):
            assert main([*words, *(["--folds", "none"] if words[0] == "fill" else QUIET)]) == 0
    damaged, restored = (skimage.io.imread(name) for name in ("damaged.png", "restored.png"))
    known = damaged[..., 3] > 0
    assert 0 < known.mean() < 1
    assert (restored[known] == damaged[known]).all()
    assert np.load("map.npy").shape == (48, 48)
    (metrics,) = Path("runs").glob("recording-*/1/metrics.json")
    assert json.loads(metrics.read_text())["test/psnr"] == pytest.approx(scores["row"]["gau (exact fit)"], abs=6e-3)


def test_the_page_has_the_pictures():
    import gallery

    for make in gallery.TASKS:
        assert f"(gallery/{make.__name__}.jpg)" in PAGE.read_text()


def test_a_folder_that_is_not_empty_is_refused(tmp_path, monkeypatch, capsys):
    import gallery

    (tmp_path / "file").write_text("")
    monkeypatch.setattr("sys.argv", ["gallery.py", str(tmp_path)])
    with pytest.raises(SystemExit):
        gallery.main()
    assert "is not empty" in capsys.readouterr().err
