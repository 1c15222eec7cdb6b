"""``suggest`` from end to end, and the configuration that it writes."""

import csv
import json
import re
from pathlib import Path

import h5py
import numpy as np
import pytest
import yaml
from PIL import Image
from scipy.io import wavfile

from pe_lightning.__main__ import main
from pe_lightning.signals.sources.paths import image_samples
from pe_lightning.studies.suggest import command, search

ROOT = Path(__file__).parents[3]
FEW = ["--encoders", "gau,bspline,rff"]


pytestmark = pytest.mark.usefixtures("empty_folder")


def picture(name: str, *size: int) -> str:
    with Image.open(image_samples()["astronaut"]) as image:
        image.resize((size[1], size[0])).save(name)
    return name


def best_of_table(shown: str) -> tuple[str, float]:
    """Name and PSNR of the best encoder, as the table's last line says."""
    (line,) = [line for line in shown.splitlines() if line.startswith("Best encoder: ")]
    name, _, rest = line.removeprefix("Best encoder: ").rpartition(" dB.")[0].partition(" dB.")[0].rpartition(", ")
    return name, float(rest)


def fitted(config: str = "suggested.yaml", run: str = "*") -> dict:
    quiet = ["--wandb.enabled", "false", "--trainer.accelerator", "cpu", "--trainer.log_every_n_steps", "1"]
    assert main(["fit", "--config", config, *quiet]) == 0
    (metrics,) = Path("runs").glob(f"{run}/*/metrics.json")
    return json.loads(metrics.read_text())


def test_what_interpolation_and_encoders_reproduce_exactly_is_a_tie(capsys):
    Image.new("L", (24, 24), 255).save("white.png")
    assert main(["suggest", "white.png", "--encoders", "bspline"]) == 0
    assert "inf dB. It ties with linear interpolation (inf dB)." in " ".join(capsys.readouterr().out.split())


def test_a_picture(capsys, tmp_path):
    """The first thing that a newcomer types, and the second."""
    assert main(["suggest", picture("my picture.png", 48, 64), *FEW]) == 0
    shown = capsys.readouterr()
    name, psnr = best_of_table(shown.out)
    assert "bicubic interpolation" in shown.out
    with (ROOT / "configs/studies/encodings.csv").open() as lines:
        study = {row["method"]: float(row["photographs, every second"]) for row in csv.DictReader(lines)}
    above = [score for method, score in study.items() if method.endswith(" exact") and score >= study["bspline exact"]]
    assert re.search(rf" *bspline, K = .* {len(above)} +\S*$", shown.out, re.MULTILINE), "the rank in the study"
    assert "my picture: 48x64, 3 channel(s)" in shown.out
    assert "Warning" not in shown.err
    text = Path("suggested.yaml").read_text()
    assert len(text.splitlines()) < 20
    assert yaml.safe_load(text)["data"]["init_args"] == {"paths": str(tmp_path / "my picture.png")}, "from anywhere"
    assert name in text.splitlines()[0]
    found = fitted()
    assert found["test/psnr"] == pytest.approx(psnr, abs=0.01)
    assert found["solution"]["choice"]["rule"] == "given", "the numbers are in the file"
    assert name.startswith(found["encoder"]["name"] if isinstance(found["encoder"], dict) else found["encoder"][0]["name"])


def test_random_samples(capsys):
    sampling = ["--data.sampling", "random", "--data.sampling.fraction", "0.3", "--data.sampling.seed", "5"]
    assert main(["suggest", picture("a.png", 40, 40), "--encoders", "gau,tri", "--num_features", "24", *sampling]) == 0
    shown = capsys.readouterr().out
    assert "delaunay interpolation" in shown
    found = fitted()
    assert found["test/psnr"] == pytest.approx(best_of_table(shown)[1], abs=0.01)
    assert found["sampling"]["fraction"] == 0.3


@pytest.mark.slow  # many fits
def test_sound_tables_and_volumes(capsys):
    rate = 8000
    t = np.arange(400) / rate
    wavfile.write("tone.wav", rate, (np.sin(2 * np.pi * 440 * t) * 20000).astype(np.int16))
    assert main(["suggest", "tone.wav", *FEW, "--out", "tone.yaml"]) == 0
    assert yaml.safe_load(Path("tone.yaml").read_text())["data"]["class_path"] == "pe_lightning.RowDataModule"
    shown = capsys.readouterr().out
    # so close to the truth, the rounding of float32 shows
    assert fitted("tone.yaml")["test/psnr"] == pytest.approx(best_of_table(shown)[1], abs=0.1)
    write("three.csv", "a\n1\n2\n3\n")
    assert main(["suggest", "three.csv", *FEW, "--out", "table.yaml", "--data.value_range", "[0, 4]"]) == 0
    x = np.linspace(0, 1, 16)
    np.save("cube.npy", (x[:, None, None] + x[:, None] ** 2 + np.sin(5 * x)) / 3)
    assert main(["suggest", "--data", "VideoDataModule", "--data.paths", "cube.npy", *FEW, "--out", "cube.yaml"]) == 0
    assert "16x16x16" in capsys.readouterr().out


def test_the_data_of_a_configuration(capsys):
    Path("c.yaml").write_text(
        "model: {class_path: SimpleMLP, init_args: {encoder: rff}}\n"
        "data: {class_path: ImageDataModule, init_args: {paths: 'samples://coffee', resize: 32, eval_mask: odd}}\n"
        "seed_everything: 3\n"
    )
    assert main(["suggest", "--config", "c.yaml", *FEW]) == 0
    written = yaml.safe_load(Path("suggested.yaml").read_text())
    assert written["data"]["init_args"] == {"paths": "samples://coffee", "resize": 32, "eval_mask": "odd"}
    assert written["seed_everything"] == 3
    assert written["model"]["class_path"] == "pe_lightning.ComplexLinear"


def test_an_existing_configuration_is_replaced_only_with_force(capsys):
    Path("suggested.yaml").write_text("mine")
    command = ["suggest", picture("a.png", 24, 24), "--encoders", "noise"]
    assert main(command) == 2
    assert "--force" in capsys.readouterr().err
    assert Path("suggested.yaml").read_text() == "mine"
    assert main([*command, "--force"]) == 0
    written = Path("suggested.yaml").read_text()
    assert "ComplexLinear" in written
    assert "beats every encoder by" in written, "interpolation is better than noise"


def test_nothing_that_is_read_is_replaced_and_of_several_one_succeeds(capsys, monkeypatch):
    """Pictures, a configuration and what it names, by their names and by links."""
    Path("pictures").mkdir()
    picture("pictures/a.png", 24, 24)
    Path("c.yaml").write_text("data: {class_path: ImageDataModule, init_args: {paths: pictures}}\n")
    Path("link.yaml").symlink_to("pictures/a.png")
    Path("hard.yaml").hardlink_to("c.yaml")
    before = {path: path.read_bytes() for path in Path().rglob("*") if path.is_file()}
    for out in ("pictures/a.png", "c.yaml", "link.yaml", "hard.yaml"):
        assert main(["suggest", "--config", "c.yaml", "--encoders", "noise", "--out", out, "--force"]) == 2
        assert f"{out!r} would be written, and is read" in capsys.readouterr().err
    assert main(["suggest", "pictures/a.png", "--encoders", "noise", "--out", "pictures/a.png", "--force"]) == 2
    assert {path: path.read_bytes() for path in Path().rglob("*") if path.is_file()} == before

    def slower(*arguments, search=search.search):
        Path("suggested.yaml").write_text("of another command")
        return search(*arguments)

    monkeypatch.setattr(search, "search", slower)
    assert main(["suggest", "pictures/a.png", "--encoders", "noise"]) == 2
    assert "has been written by another program meanwhile" in capsys.readouterr().err
    assert Path("suggested.yaml").read_text() == "of another command"


def write(name: str, content: str | bytes) -> str:
    Path(name).write_bytes(content.encode() if isinstance(content, str) else content)
    return name


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: [], ["suggest needs signals", "pe-lightning suggest my.jpg"]),
        (lambda: ["nowhere.png"], ["no such file or folder: 'nowhere.png'"]),
        (lambda: [write("letter.docx", "x")], ["letter.docx", "--data ImageDataModule"]),
        (lambda: [picture("a.png", 8, 8), "--encoders", "gua"], ["unknown encoder 'gua'", "'gau'"]),
        (lambda: [picture("a.png", 8, 8), "--num_features", "many"], ["--num_features takes integers >= 1", "got 'many'"]),
        (lambda: [picture("a.png", 8, 8), "--encoders", "gau", "--num_features", "1000000"], ["GB of memory"]),
        (lambda: [picture("a.png", 8, 8), "--model.encoder", "gau"], ["unknown option '--model.encoder'"]),
        (
            lambda: [picture("a.png", 8, 8), write("b.wav", "x")],
            ["images", "rows", "give files of one kind", "--data ImageDataModule"],
        ),
    ],
)
def test_bad_input(capsys, make, words):
    arguments = make()
    before = set(Path().rglob("*"))
    assert main(["suggest", *arguments]) == 2
    last = capsys.readouterr().err.splitlines()[-1]
    assert last.startswith("pe-lightning: error: ")
    for word in words:
        assert word in last
    assert set(Path().rglob("*")) == before


def test_signals_that_stay_in_their_file_are_left_to_the_fit_to_choose_for(capsys):
    x = np.linspace(0, 1, 64, dtype=np.float32)
    with h5py.File("v.h5", "w") as file:
        file["v"] = (x[:, None, None] + x[:, None] ** 2 + np.sin(5 * x)) / 3
    source = "--data VideoDataModule --data.paths v.h5 --data.storage.in_memory false"
    assert main(["suggest", *source.split(), "--encoders", "gau", "--num_features", "16"]) == 0
    text = Path("suggested.yaml").read_text()
    encoder = {"name": "gau", "num_features": 16, "sigma": "auto"}
    assert yaml.safe_load(text)["model"]["init_args"] == {"encoder": encoder, "ridge": "auto", "solver": "exact"}
    assert "scored on the central 63x63x63 samples" in text
    assert fitted()["encoder"]["num_features"] == 16


def test_without_a_package_for_them_samples_that_are_all_trained_are_refused(capsys, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(command, "load_entry_points", lambda *_: iter(()))
    assert main(["suggest", picture("a.png", 40, 30), "--data.sampling.stride", "1"]) == 2
    assert "nothing is held out" in capsys.readouterr().err
