"""Models written in other formats, read back and compared."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from fits import MODULES, MakeTrainer, signals
from lightning.pytorch import LightningModule
from torch import Tensor

import pe_lightning
from pe_lightning.__main__ import main
from pe_lightning.training import Adaptive, ComplexLinear, CoordinateModule, SimpleMLP, TensorDataModule

pytest.importorskip("safetensors")

CASES: dict[str, Callable[[], CoordinateModule]] = {
    **MODULES,
    "exact": lambda: ComplexLinear("tri", solver="exact"),
    "learned": lambda: SimpleMLP({"name": "hash", "num_levels": 2}, depth=1, hidden_size=8),
    "adaptive": Adaptive,
    "sparse": lambda: ComplexLinear("keys", num_coefficients=0.3),
}


@pytest.fixture
def run(make_trainer: MakeTrainer, tmp_path: Path) -> Callable[[str], tuple[Path, CoordinateModule]]:
    """A fitted model and its run directory."""

    def make(name: str) -> tuple[Path, CoordinateModule]:
        module, steps = CASES[name](), 0 if name in ("exact", "adaptive", "sparse") else 2
        trainer = make_trainer(max_steps=steps, num_sanity_val_steps=0)
        trainer.fit(module, TensorDataModule(signals(2, 12, 14)))
        trainer.save_checkpoint(tmp_path / "run/checkpoints/last.ckpt")
        return tmp_path / "run", module.eval()

    return make


@torch.no_grad()
def values(module: LightningModule | torch.nn.Module, count: int = 11) -> Tensor:
    generator = torch.Generator().manual_seed(0)
    found: Tensor = module(0.99 * torch.rand(count, 2, generator=generator))
    return found


@pytest.mark.parametrize("name", CASES)
def test_safetensors_and_back(run, capsys, name: str) -> None:
    folder, module = run(name)
    assert main(["export", str(folder)]) == 0
    written = folder / "exported/model.safetensors"
    assert capsys.readouterr().out == f"{written}\n"
    expected = values(module)
    found = pe_lightning.load(written)
    assert type(found) is type(module)
    assert values(found).equal(expected)
    assert values(pe_lightning.load(folder)).equal(expected)
    assert main(["export", str(written), "--format", "checkpoint", "--out", str(folder / "back.ckpt")]) == 0
    assert main(["export", str(folder)]) == 2
    assert f"'{written}' exists" in capsys.readouterr().err
    last = folder / "checkpoints/last.ckpt"
    assert main(["export", str(folder), "--format", "checkpoint", "--out", str(last), "--force"]) == 2
    assert "would be written, and is read" in capsys.readouterr().err
    assert values(type(module).load_from_checkpoint(folder / "back.ckpt").eval()).equal(expected)


@pytest.mark.slow  # torch.export takes seconds
@pytest.mark.parametrize("name", ["complex-head", "simple"])
def test_a_program_of_torch_export_takes_any_number_of_points(run, name: str) -> None:
    folder, module = run(name)
    assert main(["export", str(folder), "--format", "torch_export"]) == 0
    program = torch.export.load(folder / "exported/model.pt2").module()
    for count in (1, 11, 300):
        torch.testing.assert_close(values(program, count), values(module, count))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", ["exact", "simple"])
def test_onnx_runs_elsewhere(run, name: str) -> None:
    pytest.importorskip("onnxscript")
    runtime = pytest.importorskip("onnxruntime")
    folder, module = run(name)
    assert main(["export", str(folder), "--format", "onnx"]) == 0
    session = runtime.InferenceSession(folder / "exported/model.onnx")
    for count in (1, 11, 300):
        coords = 0.99 * torch.rand(count, 2, generator=torch.Generator().manual_seed(0))
        (found,) = session.run(["values"], {"coords": coords.numpy()})
        torch.testing.assert_close(torch.from_numpy(found), values(module, count), atol=1e-5, rtol=1e-5)


def test_models_that_cannot_be_exported_are_refused(run, capsys, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def error(*arguments: str) -> str:
        assert main(["export", *arguments]) == 2
        return capsys.readouterr().err

    assert "no model at 'nowhere': give a run directory" in error("nowhere")
    folder, _ = run("adaptive")
    assert "Adaptive predicts from its trained samples, without a network" in error(str(folder), "--format", "torch_export")
    other = tmp_path / "other.safetensors"
    other.write_bytes(b"\x00" * 40)
    assert "cannot read" in error(str(other), "--format", "checkpoint")
    from safetensors.torch import save_file

    save_file({"a": torch.zeros(2)}, other)
    assert "does not say what its model is" in error(str(other), "--format", "checkpoint")
    monkeypatch.setitem(sys.modules, "safetensors.torch", None)
    assert "needs the package safetensors, which is not installed: pip install 'pe-lightning[export]'" in error(str(folder))
