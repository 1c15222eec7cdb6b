"""SparseLinear: an exact fit whose largest coefficients are kept."""

import math
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from fits import fitted, smooth

from pe_fill import SparseLinear
from pe_fill.sparse.lifting import LIFTINGS, lifting
from pe_fill.sparse.network import axis_norms
from pe_lightning import encoders
from pe_lightning.errors import InputError
from pe_lightning.signals import RandomSampling
from pe_lightning.signals.sampling import GridSampling
from pe_lightning.solvers.features import encode
from pe_lightning.training import ComplexLinear, TensorDataModule

EXACT = {"ridge": 0.0}


def everything(values: torch.Tensor) -> TensorDataModule:
    return TensorDataModule(values, sampling=GridSampling(stride=1), eval_mask="none")


def psnr(found: torch.Tensor, truth: torch.Tensor) -> float:
    return float(-10 * torch.log10((found - truth).square().mean()))


def predicted(model: ComplexLinear, data: TensorDataModule) -> torch.Tensor:
    return model.predict_grid(data.evaluation_batch().axes).detach()


@pytest.mark.parametrize(
    ("name", "size"), [("tri", (23,)), ("keys", (16, 9)), ("bspline", (5, 8, 7)), ("gau", (23,)), ("laplace", (16, 9))]
)
def test_all_numbers_are_the_exact_fit(make_trainer, name, size):
    data = everything(smooth(2, size, 2))
    dense = fitted(make_trainer, ComplexLinear(name, solver="exact", **EXACT), data)
    sparse = fitted(make_trainer, SparseLinear(name, num_coefficients=1.0, **EXACT), data)
    torch.testing.assert_close(predicted(sparse, data), predicted(dense, data), atol=1e-4, rtol=0)
    points = torch.rand(5, len(size), requires_grad=True)
    torch.testing.assert_close(sparse(points), dense(points), atol=1e-4, rtol=0)
    sparse(points).sum().backward()
    assert points.grad.isfinite().all()


@pytest.mark.parametrize("transform", LIFTINGS)
def test_more_numbers_are_nearer(make_trainer, transform):
    data = everything(smooth())
    scores = []
    for keep in (30, 0.1, 400):
        model = fitted(make_trainer, SparseLinear("keys", num_coefficients=keep, transform=transform, **EXACT), data)
        count = keep if isinstance(keep, int) else round(keep * 24 * 20 * 3)
        assert model.solution.sparse["kept"] == [count, count]
        assert model.num_params == count + 9 + 3
        scores.append(psnr(predicted(model, data), data.evaluation_batch().values))
    assert scores == sorted(scores)


@pytest.mark.parametrize("name", ["keys", "gau"])
@pytest.mark.parametrize("sampling", [GridSampling(stride=1), GridSampling(stride=2), RandomSampling(0.5)])
def test_a_psnr_is_reached_by_the_fewest(make_trainer, name, sampling):
    data = TensorDataModule(smooth(), sampling=sampling)
    encoder = {"name": name, "num_features": 12}
    whole = fitted(make_trainer, ComplexLinear(encoder, solver="exact", ridge=1e-4), data)
    goal = 0.8 * float(train_psnr(whole, data).min())
    model = fitted(make_trainer, SparseLinear(encoder, num_coefficients={"psnr": goal}, ridge=1e-4), data)
    first, second = model.solution.sparse["kept"]
    assert model.num_params == pytest.approx((first + second) / 2 + 9 + 3, abs=0.5)
    assert (train_psnr(model, data) >= goal).all()
    fewer = fitted(make_trainer, SparseLinear(encoder, num_coefficients=first - 1, ridge=1e-4), data)
    assert train_psnr(fewer, data)[0] < goal


def train_psnr(model, data):
    batch = data.evaluation_batch()
    squared = (predicted(model, data) - batch.values).square() * batch.train_mask.reshape(-1, 24, 20, 1)
    return -10 * torch.log10(squared.flatten(1).sum(1) / (3 * batch.train_mask.reshape(-1, 24 * 20).sum(1)))


@pytest.mark.parametrize("kept_as", ["float32", "float16"])
def test_checkpoints_hold_the_kept_numbers_alone(make_trainer, tmp_path, kept_as):
    data = everything(smooth(2, (96, 80)))
    trainer = make_trainer(max_steps=0)
    model = SparseLinear("keys", num_coefficients=1500, storage_dtype=kept_as, **EXACT)
    trainer.fit(model, data)
    trainer.save_checkpoint(tmp_path / "it.ckpt")
    size = (tmp_path / "it.ckpt").stat().st_size
    assert size < 2 * 1500 * (4 if kept_as == "float32" else 2) + 12_000 < 96 * 80 * 3 * 4
    saved = torch.load(tmp_path / "it.ckpt", weights_only=True)
    assert all(tensor.numel() < 1000 for tensor in saved["state_dict"].values())
    back = SparseLinear.load_from_checkpoint(tmp_path / "it.ckpt")
    assert back.num_params == model.num_params
    torch.testing.assert_close(predicted(back, data), predicted(model, data), atol=0, rtol=0)
    make_trainer().test(
        SparseLinear("keys", num_coefficients=1500, storage_dtype=kept_as, **EXACT),
        data,
        ckpt_path=tmp_path / "it.ckpt",
        weights_only=True,
    )
    saved["pe_lightning/sparse"][0]["values"] = torch.ones(3)
    torch.save(saved, tmp_path / "damaged.ckpt")
    with pytest.raises(InputError, match="the checkpoint is damaged"):
        SparseLinear.load_from_checkpoint(tmp_path / "damaged.ckpt")


def noisy(size, deviation, signals=1):
    truth = 0.3 + 0.4 * smooth(signals, size)
    noise = torch.randn(truth.shape, generator=torch.Generator().manual_seed(3))
    return truth, (truth + deviation * noise).clamp(0, 1)


@pytest.mark.parametrize("size", [(512,), (64, 48), (16, 20, 24)])
def test_auto_takes_noise_out(make_trainer, size):
    truth, values = noisy(size, 0.1)
    data = everything(values)
    model = fitted(make_trainer, SparseLinear("keys", num_coefficients="auto", **EXACT), data)
    found = model.solution.sparse
    assert found["noise"] == [pytest.approx(0.1, rel=0.2)]
    assert found["kept"][0] < 0.5 * values.numel()
    assert psnr(predicted(model, data), truth) > psnr(values, truth) + 3


@pytest.mark.slow  # chooses on photographs
@pytest.mark.parametrize("deviation", [0.02, 0.2])
def test_auto_does_not_lose_between_held_out_samples(make_trainer, deviation):
    _, values = noisy((96, 64), deviation, signals=2)
    data = TensorDataModule(values)
    models = [
        ComplexLinear("keys", ridge="auto", solver="exact"),
        SparseLinear("keys", ridge="auto", num_coefficients="auto"),
    ]
    mask = data.evaluation_batch().mask[0]
    scores = []
    for model in models:
        found = predicted(fitted(make_trainer, model, data), data)
        scores.append(psnr(found[:, mask], values[:, mask]))
    assert scores[1] > scores[0] - 0.05
    assert len(models[1].solution.sparse["denoised"]) == 2


@pytest.mark.parametrize("name", ["gau", "bspline", "laplace"])
@pytest.mark.parametrize("count", [40, 700])
def test_norms_are_those_over_the_samples(name, count):
    encoder = encoders.create(name, num_features=count)
    x = torch.arange(count + 7, dtype=torch.float64) / (count + 7)
    inverse = lifting("9/7").inverse_all(torch.eye(count, dtype=torch.float64), (0,))
    expected = (encoder(x) @ inverse).norm(dim=0)
    (features,) = encode([encoder, encoder], [x, x], x.device)[:1]
    torch.testing.assert_close(axis_norms("9/7", encoder, features), expected, rtol=1e-5, atol=0)


MEMORY = """
from pathlib import Path
from lightning.pytorch import Trainer
from fits import smooth
from pe_fill import SparseLinear
from pe_lightning.signals.sampling import GridSampling
from pe_lightning.training import TensorDataModule

def fit(size):
    data = TensorDataModule(smooth(1, size), sampling=GridSampling(stride=1), eval_mask="none")
    data.setup("fit")
    before = Path("/proc/self/clear_refs").write_text("5") and peak()  # the peak starts from what is resident now
    quiet = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False, "enable_model_summary": False}
    Trainer(max_steps=0, accelerator="cpu", **quiet).fit(SparseLinear("keys", num_coefficients=0.1, ridge=0.0), data)
    return peak() - before

def peak():
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM:"))

fit((64, 64))
print(fit((1280, 1280)))
"""


@pytest.mark.slow  # a picture of 36 MB
@pytest.mark.skipif(not Path("/proc/self/clear_refs").is_file(), reason="only Linux resets the peak")
def test_the_fit_of_a_large_picture_takes_less_than_seven_times_its_memory(tmp_path):
    # a process of its own, whose malloc returns large arrays at once: the memory depends on no other test
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1]), "MALLOC_MMAP_THRESHOLD_": "1000000"}
    program = [sys.executable, "-W", "ignore", "-c", MEMORY]
    done = subprocess.run(program, env=environment, cwd=tmp_path, check=True, stdout=subprocess.PIPE, text=True)
    above = int(done.stdout.split()[-1]) / (4 * 3 * 1280**2)
    assert above < 6, above  # and the picture itself, once more


@pytest.mark.parametrize("keep", [0, True, 1.5, math.nan, "most", {"psnr": -1}, {"psnr": "40"}, {"ssim": 1}, {}])
def test_invalid_values_of_keep_are_refused(keep):
    with pytest.raises(InputError, match=r"num_coefficients must be a count such as 100000, .*\{psnr: 40\}, or auto"):
        SparseLinear("keys", num_coefficients=keep)


def test_other_refusals(make_trainer):
    with pytest.raises(InputError, match="unknown transform '9,7'"):
        SparseLinear("keys", num_coefficients=5, transform="9,7")
    with pytest.raises(InputError, match="storage_dtype must be float32 or float16; got 'int8'"):
        SparseLinear("keys", num_coefficients=5, storage_dtype="int8")
    data = everything(smooth())
    with pytest.raises(InputError, match=r"not trained: set --trainer.max_steps 0"):
        fitted(make_trainer, SparseLinear("keys", num_coefficients=5), data, steps=3)
    with pytest.raises(InputError, match=r"num_coefficients needs a shifted encoder .* rff is none. Name one: --encoder"):
        fitted(make_trainer, SparseLinear("rff", num_coefficients=5), data)
    with pytest.raises(InputError, match="leave out trainable: true of gau"):
        fitted(make_trainer, SparseLinear({"name": "gau", "trainable": True}, num_coefficients=5), data)
    with pytest.raises(InputError, match="num_coefficients must be from 1 to 1,440"):
        SparseLinear("keys", num_coefficients=1441).build_from(data)  # before a run directory is made
    with pytest.raises(InputError, match="auto needs samples of a grid"):
        fitted(
            make_trainer,
            SparseLinear("keys", num_coefficients="auto"),
            TensorDataModule(smooth(), sampling=RandomSampling(0.5)),
        )
