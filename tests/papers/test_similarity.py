"""Similarity maps, and what a checkpoint has learned: by Python and by command."""

import json

import numpy as np
import pytest
import torch
from lightning.pytorch import Trainer

import pe_lightning
from pe_fill import Adaptive
from pe_lightning import encoders
from pe_lightning.__main__ import main
from pe_lightning.encodings import Complex, Simple
from pe_lightning.signals.loaders import Batching
from pe_lightning.training import SimpleMLP, TensorDataModule
from pe_papers import analysis

AXES = [torch.arange(n, dtype=torch.float64) / n for n in (9, 7)]
HERE = (4 / 9, 3 / 7)


@pytest.mark.parametrize(
    "encoding",
    [
        Complex({"name": "gau", "num_features": 6, "sigma": 0.2}, 2),
        Simple({"name": "gau", "num_features": 8, "sigma": 0.2}, 2),
        encoders.create("lff", num_features=10, num_axes=2),
    ],
    ids=["complex", "simple", "joint"],
)
def test_a_map_holds_the_inner_products_of_the_features(encoding):
    found = analysis.similarity(encoding, HERE, AXES)
    grid = torch.stack(torch.meshgrid(*AXES, indexing="ij"), -1)
    rows = encoding(grid).detach().numpy()
    assert found.shape == (9, 7)
    assert found.numpy() == pytest.approx(rows @ rows[4, 3], rel=1e-5)


def test_fourier_features_below_the_mlp_fall_with_the_distance_as_a_gaussian():
    """The features of Eq. 2 of the paper, of squared norm 1/2 in the paper's scaling."""
    encoder = encoders.create("lff", num_features=8, mlp=True, num_inputs=8192, gamma=0.2, num_axes=2)
    found = analysis.similarity(analysis.without_mlp(encoder), HERE, AXES)
    squared = (AXES[0][:, None] - HERE[0]) ** 2 + (AXES[1] - HERE[1]) ** 2
    assert found.numpy() == pytest.approx(0.5 * np.exp(-squared.numpy() / (2 * 0.2**2)), abs=0.03)
    assert encoder.modulator is not None


@pytest.fixture(scope="module")
def fitted(tmp_path_factory):
    """A perceptron above learned Fourier features, after ten large steps."""
    folder = tmp_path_factory.mktemp("fit")
    module = SimpleMLP({"name": "lff", "num_features": 12}, depth=2, hidden_size=6, encoder_lr=0.5)
    data = TensorDataModule(
        torch.rand(2, 12, 10, 1, generator=torch.Generator().manual_seed(0)), batching=Batching(steps_per_epoch=10)
    )
    trainer = Trainer(
        max_steps=10, logger=False, enable_progress_bar=False, enable_model_summary=False, default_root_dir=folder
    )
    trainer.fit(module, data)
    trainer.save_checkpoint(folder / "model.ckpt")
    return module, folder / "model.ckpt"


def test_a_checkpoint_has_what_was_learned_and_where_it_started(fitted):
    module, path = fitted
    loaded = pe_lightning.load(path)
    for signal in (0, 1):
        learned = analysis.encoding_of(loaded, signal)
        expected = module.networks.network.encoding.encoders[0].frequencies[signal]
        assert torch.equal(learned.encoders[0].frequencies, expected)
    first = analysis.as_initialised(learned).encoders[0]
    assert torch.equal(first.frequencies, encoders.resolve(first.spec()).frequencies)
    assert not torch.allclose(first.frequencies, expected, atol=0.1)
    assert torch.equal(learned.encoders[0].frequencies, expected), "the original is left alone"


@pytest.mark.slow  # a trained fit and all figures
def test_the_command_writes_what_python_gives(fitted, tmp_path, capsys):
    options = ["--encoder", "gau", "--encoder.sigma", "0.05", "--against", "{name: square, frequency: 0.5}", "rff"]
    assert (
        main(
            ["analyze", *options, "--samples", "48", "--ckpt_path", str(fitted[1]), "--signal", "1", "--out", str(tmp_path)]
        )
        == 0
    )
    printed = capsys.readouterr().out
    found = json.loads((tmp_path / "analysis.json").read_text())
    labels = [report["label"] for report in found["encoders"]]
    assert labels[:3] == ["gau(sigma=0.05)", "square(frequency=0.5)", "rff"]
    assert all(label in printed for label in labels[:3])
    expected = [{"name": "gau", "sigma": 0.05}, {"name": "square", "frequency": 0.5}, "rff"]
    for report, encoder in zip(found["encoders"], expected, strict=False):
        again = analysis.analyze(encoder, 48)
        for key in ("stable_rank", "distance", "spectrum", "condition", "spread", "interval", "features"):
            assert report[key] == again[key]
    module = pe_lightning.load(fitted[1])
    assert found["layers"] == pytest.approx(analysis.checkpoint_ranks(module))
    assert [label.rpartition(", ")[2] for label in labels[3:]] == ["initial", "learned"]
    axes = [torch.arange(n, dtype=torch.float64) / n for n in (12, 10)]
    middle = found["similarity"]["checkpoint, learned"][2]
    assert middle["position"] == [0.5, 0.5]
    expected = analysis.similarity(analysis.encoding_of(module, 1), (0.5, 0.5), axes)
    assert middle["map"] == pytest.approx(expected.numpy())
    for name in ("analysis.png", "similarity.png"):
        assert (tmp_path / name).stat().st_size > 20_000


@pytest.mark.slow  # several analyses
def test_only_files_of_an_earlier_analysis_are_replaced(tmp_path, capsys):
    command = ["analyze", "--encoder", "gau", "--samples", "16", "--out", str(tmp_path)]
    (tmp_path / "weights.png").write_text("mine")
    assert main(command) == 0
    assert main(command) == 0
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    assert main([*command, "--encoder", "lff"]) == 2
    assert "weights.png' was not written by pe-lightning analyze" in capsys.readouterr().err
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ([], "analyze needs an encoder: pe-lightning analyze --encoder gau"),
        (["--encoder", "gau", "--encoder.sigm", "1"], "did you mean 'sigma'"),
        (["--encoder.sigma", "1"], "belongs to an encoder that is not named"),
        (["--encoder", "gau", "--against", "rf"], "did you mean 'rff'"),
        (["--encoder", "gau", "--agains", "rff"], "did you mean '--against'"),
        (["--encoder", "gau", "--signal", "1"], "--signal is for --ckpt_path"),
        (["--ckpt_path", "none.ckpt"], "no model at 'none.ckpt'"),
    ],
)
def test_errors_by_command_say_what_to_type(options, told, capsys, tmp_path):
    assert main(["analyze", *options, "--out", str(tmp_path / "new")]) == 2
    assert told in capsys.readouterr().err
    assert not (tmp_path / "new").exists()


def test_the_adaptive_fit_has_no_features_to_measure(tmp_path, capsys, make_trainer):
    module = Adaptive()
    trainer = make_trainer(max_steps=0)
    trainer.fit(module, TensorDataModule(torch.rand(1, 16, 16, 3)))
    trainer.save_checkpoint(tmp_path / "adaptive.ckpt")
    assert main(["analyze", "--ckpt_path", str(tmp_path / "adaptive.ckpt"), "--out", str(tmp_path / "out")]) == 2
    assert "analyze the encoder: pe-lightning analyze --encoder laplace" in capsys.readouterr().err
