"""The module Local: fits, checkpoints, and what it refuses."""

from __future__ import annotations

import pytest
import torch
from fits import fit, signals

from pe_fill import Local
from pe_fill.estimators.priors import PRIOR_KEY, read_prior
from pe_fill.networks.local import LocalGrid, LocalPrior
from pe_lightning.errors import InputError
from pe_lightning.signals.sampling import GridSampling, RandomSampling
from pe_lightning.training import TensorDataModule


@pytest.fixture(scope="module")
def prior_file(tmp_path_factory):
    """A prior of random weights, in the format of a checkpoint."""
    torch.manual_seed(0)
    prior = LocalPrior(width=6)
    torch.nn.init.normal_(prior.trunk.layers[-1].weight)
    path = tmp_path_factory.mktemp("prior") / "random.ckpt"
    state = {f"prior.{name}": value for name, value in prior.state_dict().items()}
    torch.save({PRIOR_KEY: prior.spec(), "state_dict": state}, path)
    return str(path)


def test_a_checkpoint_alone_predicts_the_same(prior_file, make_trainer, tmp_path):
    values = signals(2, 20, 16, channels=3)
    data, module = TensorDataModule(values, sampling=GridSampling([3, 2], [1, 0])), Local(prior_file)
    trainer = fit(module, data, make_trainer, 0)
    trainer.save_checkpoint(tmp_path / "last.ckpt")
    axes = [torch.arange(n) / n for n in (40, 32)]
    expected = torch.stack(
        [LocalGrid(read_prior(prior_file), v[1::3, ::2], (20, 16), (1, 0), (3, 2)).predict(axes) for v in values]
    )
    torch.testing.assert_close(module.predict_grid(axes), expected)
    moved = tmp_path / "elsewhere.ckpt"
    (tmp_path / "last.ckpt").rename(moved)
    loaded = Local.load_from_checkpoint(moved, pretrained="gone.ckpt")
    torch.testing.assert_close(loaded.predict_grid(axes), expected)
    points = torch.rand(7, 2)
    torch.testing.assert_close(loaded(points), module(points))
    assert loaded.num_params == data.train_batch().values[0].numel()
    assert loaded.describe()["encoder"]["name"] == "gau"
    assert read_prior(str(moved)).num_params == loaded.describe()["prior"]["num_params"]


def test_what_it_cannot_do_is_refused(prior_file, make_trainer, tmp_path):
    flat = signals(1, 16, 16)
    for values, sampling, message in (
        (signals(1, 60), "grid", "1 axes: use Adaptive"),
        (signals(1, 8, 8, 8), "grid", "exactly one must be sampled completely"),
        (flat, RandomSampling(0.5), "use Adaptive for scattered or missing samples"),
    ):
        with pytest.raises(InputError, match=message):
            fit(Local(prior_file), TensorDataModule(values, sampling=sampling), make_trainer, 0)
    with pytest.raises(InputError, match="max_steps 0"):
        fit(Local(prior_file), TensorDataModule(flat), make_trainer, 5)
    with pytest.raises(InputError, match="unknown prior 'picture'"):
        fit(Local("picture"), TensorDataModule(flat), make_trainer, 0)
    torch.save({"state_dict": {}}, tmp_path / "other.ckpt")
    with pytest.raises(InputError, match="holds no prior"):
        fit(Local(str(tmp_path / "other.ckpt")), TensorDataModule(flat), make_trainer, 0)
