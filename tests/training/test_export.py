"""Models written in other formats, read back and compared."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from fits import MODULES, MakeTrainer, fit, signals
from lightning.pytorch import LightningModule
from torch import Tensor

import pe_lightning
from pe_lightning.__main__ import main
from pe_lightning.training import ComplexLinear, CoordinateModule, FunctionModule, SimpleMLP, TensorDataModule

pytest.importorskip("safetensors")

CASES: dict[str, Callable[[], CoordinateModule]] = {
    **MODULES,
    "exact": lambda: ComplexLinear("tri", solver="exact"),
    "learned": lambda: SimpleMLP({"name": "hash", "num_levels": 2}, depth=1, hidden_size=8),
}


def save_run(module: FunctionModule, steps: int, make_trainer: MakeTrainer, folder: Path) -> None:
    """The run directory of a fit, after which the module is in evaluation mode."""
    fit(module, TensorDataModule(signals(2, 12, 14)), make_trainer, steps).save_checkpoint(folder / "checkpoints/last.ckpt")
    module.eval()


@torch.no_grad()
def values(module: LightningModule | torch.nn.Module, count: int = 11) -> Tensor:
    generator = torch.Generator().manual_seed(0)
    found: Tensor = module(0.99 * torch.rand(count, 2, generator=generator))
    return found


def check_export(module: FunctionModule, steps: int, make_trainer: MakeTrainer, folder: Path, capsys) -> None:
    """Safetensors of a run have its values, and so has the checkpoint that is made of them."""
    save_run(module, steps, make_trainer, folder)
    assert main(["export", str(folder)]) == 0
    written = folder / "exported/model.safetensors"
    assert capsys.readouterr().out == f"{written}\n"
    expected = values(module)
    state = torch.get_rng_state()
    found = pe_lightning.load(written)
    assert torch.equal(torch.get_rng_state(), state)
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


@pytest.mark.parametrize("name", CASES)
def test_safetensors_and_back(name: str, make_trainer: MakeTrainer, tmp_path: Path, capsys) -> None:
    check_export(CASES[name](), 0 if name == "exact" else 2, make_trainer, tmp_path / "run", capsys)


@pytest.mark.slow  # torch.export takes seconds
@pytest.mark.parametrize("name", ["complex-head", "simple"])
def test_a_network_is_a_program_of_torch_export(name: str, make_trainer: MakeTrainer, tmp_path: Path) -> None:
    """As docs/export.md says; for any number of points."""
    save_run(module := CASES[name](), 2, make_trainer, tmp_path)
    points = {0: torch.export.Dim("points")}
    program = torch.export.export(module.networks.network_of(1), (torch.rand(7, 2),), dynamic_shapes=(points,)).module()
    for count in (1, 300):
        torch.testing.assert_close(values(program, count), values(module, count)[1])


def test_models_that_cannot_be_exported_are_refused(
    make_trainer: MakeTrainer, capsys, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def error(*arguments: str) -> str:
        assert main(["export", *arguments]) == 2
        return capsys.readouterr().err

    assert "no model at 'nowhere': give a run directory" in error("nowhere")
    save_run(CASES["exact"](), 0, make_trainer, folder := tmp_path / "run")
    other = tmp_path / "other.safetensors"
    other.write_bytes(b"\x00" * 40)
    assert "cannot read" in error(str(other), "--format", "checkpoint")
    from safetensors.torch import save_file

    save_file({"a": torch.zeros(2)}, other)
    assert "does not say what its model is" in error(str(other), "--format", "checkpoint")
    monkeypatch.setitem(sys.modules, "safetensors.torch", None)
    assert "needs the package safetensors, which is not installed: pip install 'pe-lightning[export]'" in error(str(folder))


def test_descriptions_of_an_optimiser_are_refused_where_nothing_makes_it(make_trainer: MakeTrainer, tmp_path: Path) -> None:
    save_run(CASES["exact"](), 0, make_trainer, tmp_path)
    path = tmp_path / "checkpoints/last.ckpt"
    checkpoint = torch.load(path, weights_only=True)
    checkpoint["hyper_parameters"]["optimizer"] = {"class_path": "torch.optim.Adam"}
    torch.save(checkpoint, path)
    with pytest.raises(ValueError, match="describes optimizer in hyper_parameters, and lacks _instantiator there"):
        pe_lightning.load(path)
