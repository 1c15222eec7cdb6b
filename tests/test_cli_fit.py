"""One command from a picture to numbers, files and logs."""

import csv
import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
import yaml
from PIL import Image

from pe_lightning.__main__ import main
from pe_lightning.data import ImageDataModule, grid_axes
from pe_lightning.modules import ComplexLinear

ROOT = Path(__file__).parents[1]
QUICK = ["--trainer.max_steps", "20", "--data.steps_per_epoch", "10", "--trainer.log_every_n_steps", "5"]
QUICK += ["--data.resize", "32", "--trainer.accelerator", "cpu"]
NO_WANDB = ["--wandb.enabled", "false"]
DEMO = ["--config", str(ROOT / "configs/image/demo.yaml"), "--model.encoder.num_features", "16", *QUICK]


@pytest.fixture(autouse=True)
def empty_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for variable in ("WANDB_MODE", "WANDB_API_KEY"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("NETRC", str(tmp_path / "no-netrc"))


def only_run(folder: Path = Path()) -> Path:
    (run,) = folder.glob("runs/*/*")
    return run


def metrics(run: Path) -> dict:
    return json.loads((run / "metrics.json").read_text())


def picture(path: Path) -> np.ndarray:
    with Image.open(path) as image:
        return np.asarray(image)


@pytest.fixture(scope="module")
def demo(tmp_path_factory) -> Path:
    """The run of one fit, for tests that only look at it."""
    root = tmp_path_factory.mktemp("demo")
    assert main(["fit", *DEMO, *NO_WANDB, "--trainer.default_root_dir", str(root)]) == 0
    return only_run(root)


@pytest.fixture
def fitted(demo, empty_folder) -> Path:
    """A copy of that run, for tests that go on with it."""
    return Path(shutil.copytree(demo, Path(*demo.parts[-3:])))


def test_a_fit_leaves_everything_that_is_promised(demo):
    found = metrics(demo)
    assert demo.parts[-3:] == ("runs", "astronaut-ComplexLinear-gau", "1")
    assert found["schema"] == 1
    assert found["steps"] == 20
    assert found["num_params"] == 3 * 16 * 16
    assert found["protocol"] == "rest"
    assert found["sampling"] == {"name": "grid", "stride": 2, "offset": 0}
    assert found["encoder"] == {"name": "gau", "num_features": 16, "sigma": 0.04, "padding": 0}
    assert found["signals"] == ["astronaut"]
    assert found["seed"] == 0
    assert found["fit_seconds"] > 0
    assert {"torch", "lightning", "pe_lightning"} <= set(found["versions"])
    assert found["test/psnr_per_signal"] == [found["test/psnr"]]
    assert 15 < found["test/psnr"] < 40
    assert found["train/psnr"] > found["test/psnr"]
    for name in ("config.yaml", "checkpoints/last.ckpt", "checkpoints/best.ckpt", "logs/version_0/metrics.csv"):
        assert (demo / name).is_file(), name
    assert picture(demo / "reconstructions/astronaut.png").shape == (32, 32, 3)
    assert picture(demo / "reconstructions/astronaut_comparison.png").shape[1] > 3 * 32


def test_the_scores_are_those_of_the_written_picture(demo):
    """The checkpoint, the picture and the numbers agree, computed anew in NumPy."""
    truth = ImageDataModule("samples://astronaut", resize=32).values[0].numpy()
    model = ComplexLinear.load_from_checkpoint(demo / "checkpoints/last.ckpt")
    with torch.no_grad():
        prediction = model.predict_grid(grid_axes((32, 32)))[0].numpy()
    held_out = np.ones((32, 32), bool)
    held_out[::2, ::2] = False
    found = metrics(demo)
    for key, samples in (("test/psnr", held_out), ("train/psnr", ~held_out)):
        assert -10 * np.log10(np.square(prediction - truth)[samples].mean()) == pytest.approx(found[key], abs=1e-4)
    written = picture(demo / "reconstructions/astronaut.png").astype(int)
    assert np.abs(written - np.clip(prediction, 0, 1) * 255).max() <= 0.51


def test_loggers_get_the_curves_and_the_complete_resolved_configuration(demo):
    with (demo / "logs/version_0/metrics.csv").open() as file:
        rows = list(csv.DictReader(file))
    held_out = [float(row["val/psnr"]) for row in rows if row["val/psnr"]]
    assert len(held_out) == 2
    assert held_out[-1] == pytest.approx(metrics(demo)["test/psnr"], abs=1e-4)
    assert float(rows[-1]["final/test_psnr"]) == pytest.approx(metrics(demo)["test/psnr"])
    logged = yaml.safe_load((demo / "logs/version_0/hparams.yaml").read_text())
    assert logged["encoder.sigma"] == 0.04, "resolved"
    saved = yaml.safe_load((demo / "config.yaml").read_text())
    assert logged["config"]["model"] == saved["model"]
    assert logged["config"]["model"]["init_args"]["optimizer"]["init_args"]["lr"] == 0.1
    assert logged["config"]["trainer"]["max_steps"] == 20


def test_the_saved_configuration_gives_the_same_run_again_in_a_directory_of_its_own(fitted, tmp_path):
    config = yaml.safe_load((fitted / "config.yaml").read_text())
    assert config["seed_everything"] == 0
    arguments = ["--config", str(fitted / "config.yaml"), "--trainer.default_root_dir", str(tmp_path)]
    assert main(["fit", *arguments]) == 0
    second = fitted.parent / "2"
    assert metrics(second)["test/psnr"] == metrics(fitted)["test/psnr"]
    weights = [torch.load(run / "checkpoints/last.ckpt", weights_only=True)["state_dict"] for run in (fitted, second)]
    assert torch.equal(weights[0]["networks.network.weight"], weights[1]["networks.network.weight"])


def test_wandb_is_on_and_offline_by_default(empty_folder):
    assert main(["fit", *DEMO]) == 0
    (offline,) = (only_run() / "wandb").glob("offline-run-*")
    (record,) = offline.glob("*.wandb")
    assert record.stat().st_size > 10_000
    assert list(offline.glob("files/media/images/reconstructions_*.png"))
    assert list(offline.glob("files/media/table/test/signals_*.json"))


def test_logger_false_switches_every_logger_off_and_the_precision_of_products_is_a_setting(empty_folder):
    try:
        assert main(["fit", *DEMO, "--trainer.logger", "false", "--float32_matmul_precision", "high"]) == 0
        assert torch.get_float32_matmul_precision() == "high"
    finally:
        torch.set_float32_matmul_precision("highest")
    run = only_run()
    assert not (run / "wandb").exists()
    assert not (run / "logs").exists()
    assert (run / "metrics.json").is_file()
    assert yaml.safe_load((run / "config.yaml").read_text())["float32_matmul_precision"] == "high"


def test_an_encoder_per_axis_and_a_sampling_argument_without_naming_the_sampling(empty_folder):
    named = ["--model.encoder", "[gau, {name: tri, num_features: 12}]", "--data.sampling.stride", "4"]
    assert main(["fit", *DEMO, *NO_WANDB, *named]) == 0
    first, second = metrics(only_run())["encoder"]
    assert (first["name"], first["num_features"]) == ("gau", 16), "naming keeps num_features"
    assert (second["name"], second["num_features"]) == ("tri", 12)
    assert metrics(only_run())["sampling"] == {"name": "grid", "stride": 4, "offset": 0}


def test_a_folder_of_ones_own_pictures_in_batches_of_points(empty_folder):
    folder = Path("my pictures")
    folder.mkdir()
    generator = np.random.default_rng(0)
    for name in ("a.png", "ü.png"):
        Image.fromarray(generator.integers(0, 255, (20, 30, 3), dtype=np.uint8)).save(folder / name)
    arguments = ["--data.paths", str(folder), "--data.resize", "null", *NO_WANDB]
    arguments += ["--data.sampling", "random", "--data.sampling.fraction", "0.5", "--data.sampling.seed", "3"]
    assert main(["fit", *DEMO, *arguments, "--data.batch", "points", "--data.batch_size", "7"]) == 0
    run = only_run()
    assert run.parent.name == "2-signals-ComplexLinear-gau"
    found = metrics(run)
    assert found["signals"] == ["a", "ü"]
    assert found["grid"] == [20, 30]
    assert found["sampling"] == {"name": "random", "fraction": 0.5, "seed": 3, "shared": False, "count": None}
    assert len(found["test/psnr_per_signal"]) == 2
    assert found["test/psnr"] == pytest.approx(np.mean(found["test/psnr_per_signal"]))


def test_nothing_held_out_is_said_and_not_scored(empty_folder, capsys):
    assert main(["fit", *DEMO, *NO_WANDB, "--data.sampling.stride", "1"]) == 0
    found = metrics(only_run())
    assert found["protocol"] == "none"
    assert found["test/psnr"] is None
    assert "nothing is held out" in found["test/psnr_reason"]
    assert "nothing is held out" in capsys.readouterr().out
    assert (only_run() / "checkpoints/last.ckpt").is_file()


def test_simple_mlp(empty_folder):
    config = ["--config", str(ROOT / "configs/image/simple_mlp.yaml"), "--model.width", "8", *QUICK, *NO_WANDB]
    assert main(["fit", *config, "--model.encoder.num_features", "16"]) == 0
    found = metrics(only_run())
    assert found["model"] == "SimpleMLP"
    assert found["encoder"]["num_features"] == 4, "16 features among four directions"


def test_test_validate_and_predict_of_a_checkpoint_write_beside_it(fitted):
    checkpoint = str(fitted / "checkpoints/last.ckpt")
    assert main(["test", "--ckpt_path", checkpoint]) == 0
    assert metrics(fitted / "test")["test/psnr"] == metrics(fitted)["test/psnr"]
    assert main(["validate", "--ckpt_path", checkpoint]) == 0
    assert metrics(fitted / "validate")["val/psnr"] == pytest.approx(metrics(fitted)["test/psnr"], abs=1e-4)
    assert main(["predict", "--ckpt_path", checkpoint]) == 0
    same = picture(fitted / "predict/32x32/astronaut.png")
    assert np.array_equal(same, picture(fitted / "reconstructions/astronaut.png"))
    assert main(["predict", "--ckpt_path", checkpoint, "--output_shape", "64", "48", "--output_format", "npy"]) == 0
    assert np.load(fitted / "predict/64x48/astronaut.npy").shape == (64, 48, 3)
    assert len(list(Path("runs").glob("*/*"))) == 1, "no second run directory"


def test_predict_needs_neither_data_nor_configuration(fitted, tmp_path):
    """Every other row of twice the size is the fitted grid."""
    alone = tmp_path / "alone"
    alone.mkdir()
    (fitted / "checkpoints/last.ckpt").rename(alone / "model.ckpt")
    assert main(["predict", "--ckpt_path", str(alone / "model.ckpt"), "--output_shape", "64", "64"]) == 0
    large = picture(alone / "predict/64x64/astronaut.png").astype(int)
    small = picture(fitted / "reconstructions/astronaut.png").astype(int)
    assert np.abs(large[::2, ::2] - small).max() <= 1


def test_a_resumed_fit_keeps_its_directory(empty_folder):
    assert main(["fit", *DEMO, *NO_WANDB]) == 0
    run = only_run()
    before = metrics(run)
    config = ["--config", str(run / "config.yaml"), "--trainer.max_steps", "40"]
    assert main(["fit", *config, "--ckpt_path", str(run / "checkpoints/last.ckpt")]) == 0
    after = metrics(only_run())
    assert (before["steps"], after["steps"]) == (20, 40)
    assert after["train/psnr"] > before["train/psnr"]
