"""``copy(**changes)`` and learned values; parameters of many signals."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from learned_encoders import LEARNED, REGISTERED, Gained, LearnedFourier, LearnedGaussian, Table, train
from torch.func import functional_call, stack_module_state, vmap

from pe_lightning.encoders import Encoder, resolve
from pe_lightning.errors import InputError


class Undeclared(Encoder):
    """What a user may write first: a parameter from the global generator."""

    def __init__(self, num_features: int = 8, power: float = 1.0) -> None:
        super().__init__(num_features)
        self.power = power
        self.gains = torch.nn.Parameter(torch.randn(num_features))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.gains * x[..., None] ** self.power


@pytest.mark.parametrize(
    ("encoder", "changes", "name", "kept"),
    [
        (LearnedGaussian(8), {"padding": 2}, "log_sigma", True),
        (LearnedGaussian(8), {"sigma": 0.3}, "log_sigma", False),
        (LearnedGaussian(8), {"num_features": 16}, "log_sigma", False),
        (LearnedGaussian(8, 0.1), {"num_features": 16}, "log_sigma", True),
        (Table(), {"sharpness": 2.0}, "table", True),
        (Table(), {"num_rows": 9}, "table", False),
        (Table(), {"seed": 6}, "table", False),
        (Gained(), {"offset": 0.5}, "gain", True),
        (LearnedFourier(), {"seed": 3}, "frequencies", False),
        (LearnedFourier(), {"num_axes": 2}, "frequencies", False),
        (Undeclared(), {"power": 2.0}, "gains", True),
        (Undeclared(), {"num_features": 4}, "gains", False),
    ],
)
def test_changes_keep_the_values_whose_initial_ones_they_do_not_set(
    encoder: Encoder, changes: dict[str, Any], name: str, kept: bool
) -> None:
    state = torch.get_rng_state()
    changed = train(encoder).copy(**changes)
    fresh = type(encoder)(**{**encoder.arguments, **changes})
    assert changed.changed_arguments() == fresh.changed_arguments()
    before, value = getattr(encoder, name), getattr(changed, name)
    assert value is not before
    if kept:
        assert torch.equal(value, before)
    else:
        assert value.shape == getattr(fresh, name).shape
        assert isinstance(encoder, Undeclared) or torch.equal(value, getattr(fresh, name))
    assert isinstance(encoder, Undeclared) or torch.equal(torch.get_rng_state(), state)


def test_a_copy_has_the_dtype_the_device_and_the_mode_of_the_encoder() -> None:
    encoder = LearnedGaussian().double().eval()
    encoder.log_sigma.requires_grad_(False)
    changed = encoder.copy(num_features=4)
    assert (changed.log_sigma.dtype, changed.log_sigma.requires_grad, changed.training) == (torch.float64, False, False)
    with pytest.raises(InputError, match="has no argument 'sigmo'; did you mean 'sigma'"):
        encoder.copy(sigmo=1.0)


# -- parameters of many signals ---------------------------------------------------------------------------------------

SEVERAL: list[tuple[Encoder, int]] = [(cls(), 1) for cls in LEARNED]
for description in REGISTERED.values():
    made = resolve(description)
    SEVERAL += [(made, 1), (made.copy(num_axes=2), 2)] if made.joint else [(made, 1)]


@pytest.mark.parametrize(("encoder", "num_axes"), SEVERAL, ids=lambda case: getattr(case, "name", str(case)))
def test_encoders_of_many_signals_run_together(encoder: Encoder, num_axes: int) -> None:
    """Values, gradients, and copies that have the learned state."""
    several = [train(encoder.copy().double(), seed) for seed in range(3)]
    x = torch.rand((20, num_axes) if num_axes > 1 else (20,), dtype=torch.float64)
    parameters, buffers = stack_module_state(several)  # type: ignore[arg-type]

    def features(parameters: dict[str, torch.Tensor], buffers: dict[str, torch.Tensor]) -> torch.Tensor:
        return functional_call(encoder, (parameters, buffers), (x,))

    together, alone = vmap(features)(parameters, buffers), torch.stack([one(x) for one in several])
    torch.testing.assert_close(together, alone)
    assert not torch.equal(alone[0], alone[1])
    assert torch.equal(several[0].copy()(x), alone[0])
    if not parameters:
        return
    found = torch.autograd.grad(together.square().sum(), list(parameters.values()), allow_unused=True)
    expected = [torch.autograd.grad(one(x).square().sum(), list(one.parameters()), allow_unused=True) for one in several]
    for ours, theirs in zip(found, zip(*expected, strict=True), strict=True):
        assert (ours is None) == (theirs[0] is None)  # the variance of the penalty
        if ours is not None:
            torch.testing.assert_close(ours, torch.stack(theirs))
