"""A few signals at a time: the same fit in less memory."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from test_fitting import GAU, MODULES, SAMPLINGS, MakeTrainer, Trainable, fit, signals
from torch import Tensor

from pe_lightning.data import TensorDataModule
from pe_lightning.errors import InputError
from pe_lightning.modules import ComplexLinear, CoordinateModule, SimpleMLP


def built(module: CoordinateModule, data: TensorDataModule) -> CoordinateModule:
    torch.manual_seed(0)
    module.build(data.info)
    module.calibrate(data.train_batch())
    return module


def held(module: CoordinateModule, data: TensorDataModule) -> tuple[Tensor, int]:
    """The squared errors, and the bytes that autograd keeps for the gradient."""
    seen: dict[int, int] = {}

    def pack(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        seen[storage.data_ptr()] = storage.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        squared = module.squared_errors(data.train_batch())
    return squared, sum(seen.values())


@pytest.mark.parametrize("kind", MODULES)
@pytest.mark.parametrize("sampling", SAMPLINGS)
@pytest.mark.parametrize("count", [1, 2, 3, 7])
def test_errors_and_gradients_are_those_of_all_at_once(kind: str, sampling: str, count: int) -> None:
    data = TensorDataModule(signals(5, 12, 10), sampling=SAMPLINGS[sampling])
    whole, chunked = (built(MODULES[kind](signals_per_batch=n), data) for n in (None, count))
    weights = torch.arange(1, 6, dtype=torch.float32)
    found = []
    for module in (whole, chunked):
        squared = module.squared_errors(data.train_batch())
        (squared * weights).sum().backward()
        found.append([squared, *(parameter.grad for parameter in module.parameters() if parameter.requires_grad)])
    for expected, got in zip(*found, strict=True):
        torch.testing.assert_close(got, expected, rtol=1e-5, atol=1e-6)


def test_an_encoder_that_all_signals_train() -> None:
    data, found = TensorDataModule(signals(4, 12, 10)), []
    for count in (None, 3):
        module = built(ComplexLinear(Trainable(), signals_per_batch=count), data)
        with torch.no_grad():
            module.get_parameter("weight").normal_(generator=torch.Generator().manual_seed(0))
        module.squared_errors(data.train_batch()).sum().backward()
        found.append([parameter.grad for parameter in module.parameters()])
    for expected, got in zip(*found, strict=True):
        assert expected is not None
        assert expected.abs().max() > 0
        torch.testing.assert_close(got, expected, rtol=1e-5, atol=1e-5)


def test_hidden_layers_are_held_for_none_between_forward_and_backward() -> None:
    data = TensorDataModule(signals(8, 32, 32))
    sizes = {}
    for count in (None, 8, 2):
        module = built(SimpleMLP(GAU, depth=3, width=32, signals_per_batch=count), data)
        sizes[count] = held(module, data)[1]
    hidden = 8 * 16 * 16 * 32 * 4
    assert sizes[8] == sizes[None] > 3 * hidden
    assert sizes[2] < hidden


@pytest.mark.parametrize("kind", MODULES)
def test_a_fit(kind: str, make_trainer: MakeTrainer) -> None:
    found: list[CoordinateModule] = []
    for count in (None, 2):
        torch.manual_seed(0)
        module = MODULES[kind](signals_per_batch=count)
        fit(module, TensorDataModule(signals(3, 12, 10), sampling="random"), make_trainer, 5, limit_val_batches=0)
        found.append(module)
    torch.testing.assert_close(found[1].last_train_psnr(), found[0].last_train_psnr(), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("count", [0, -1, 1.5, True])
@pytest.mark.parametrize("make", [ComplexLinear, SimpleMLP])
def test_signals_are_counted_from_one(make: Any, count: Any) -> None:
    with pytest.raises(InputError, match="signals_per_batch must be an integer >= 1, or null"):
        make(GAU, signals_per_batch=count)
