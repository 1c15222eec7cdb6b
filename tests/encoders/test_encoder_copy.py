"""``copy(**changes)``: what was learned is kept, or the copy is refused; and what may be learned gets gradients."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from learned_encoders import LEARNED, REGISTERED, Gained, LearnedFourier, LearnedGaussian, Table, train
from torch.func import functional_call, stack_module_state, vmap

from pe_lightning.encoders import Encoder, RandomFourier, registry, resolve
from pe_lightning.errors import InputError

learned = pytest.mark.parametrize("cls", LEARNED)


def takes(name: str, argument: str) -> bool:
    return argument in registry.parameters(registry.get(name))


X = torch.linspace(0, 0.99, 30, dtype=torch.float64)


@learned
def test_a_copy_has_the_learned_state_and_is_independent(cls: type[Encoder]) -> None:
    encoder = train(cls()).double().eval()
    twin = encoder.copy()
    assert torch.equal(twin(X), encoder(X))
    train(encoder, seed=1)
    assert not torch.equal(twin(X), encoder(X))


@pytest.mark.parametrize(
    ("encoder", "changes"),
    [(LearnedGaussian(8), {"padding": 2}), (Table(), {"sharpness": 2.0}), (Gained(), {"offset": 0.5})],
    ids=["width", "table", "buffer"],
)
def test_learned_state_that_a_change_does_not_touch_is_preserved(encoder: Encoder, changes: dict[str, float]) -> None:
    train(encoder)
    changed = encoder.copy(**changes)
    assert changed.changed_arguments() == {**encoder.changed_arguments(), **changes}
    assert {key: changed.resolved()[key] for key in changes} == changes
    state = dict(encoder.named_parameters()) | dict(encoder.named_buffers())
    for key, value in changed.state_dict(keep_vars=True).items() or [("gain", changed.gain)]:
        assert torch.equal(value, state[key])
        assert value is not state[key]


@pytest.mark.parametrize("sigma", [0.3, 0.08, None])  # 0.08 is the rule's value, from which the learned one started
def test_a_learned_width_starts_from_a_changed_one(sigma: float | None) -> None:
    encoder = train(LearnedGaussian(8))
    for changes in ({"sigma": sigma}, {"sigma": sigma, "padding": 1}):
        assert encoder.copy(**changes).resolved()["sigma"] == pytest.approx(0.3 if sigma == 0.3 else 0.08)
    # a default that follows num_features is no such change
    assert encoder.copy(num_features=16).resolved()["sigma"] == encoder.resolved()["sigma"] != pytest.approx(0.08)
    assert LearnedGaussian(8).copy(num_features=16).resolved()["sigma"] == pytest.approx(0.64 / 16)


def test_frequencies_start_from_a_changed_seed() -> None:
    encoder = train(LearnedFourier(8, sigma=2.0))
    assert torch.equal(encoder.copy(seed=3).frequencies, RandomFourier(8, sigma=2.0, seed=3).frequencies)


@pytest.mark.parametrize(
    ("encoder", "changes"),
    [
        (Table(), {"num_features": 4}),
        (Table(), {"num_rows": 9}),
        (LearnedFourier(), {"num_axes": 2}),
        (LearnedFourier(), {"num_features": 4}),
    ],
)
def test_learned_state_of_another_shape_is_refused(encoder: Encoder, changes: dict[str, int]) -> None:
    (key, value), *_ = changes.items()
    parameter = next(name for name, _ in encoder.named_parameters())
    assert encoder.copy(**changes).resolved().get(key, value) == value  # untrained, nothing is lost
    with pytest.raises(InputError, match=rf"the learned '{parameter}' .* cannot be carried over to {key}={value}"):
        train(encoder).copy(**changes)


def test_random_initial_values_are_not_taken_for_learned_ones() -> None:
    encoder = Table(seed=5)
    assert torch.equal(encoder.copy(sharpness=2.0).table, encoder.table)
    assert encoder.copy(num_features=4).table.shape == (5, 4)
    assert torch.equal(train(encoder).copy(seed=6).table, Table(seed=6).table)


class Undeclared(Encoder):
    """What a user may write first: a parameter from the global generator, of which nothing is declared."""

    def __init__(self, num_features: int = 8, power: float = 1.0) -> None:
        super().__init__(num_features)
        self.power = power
        self.gains = torch.nn.Parameter(torch.randn(num_features))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.gains * x[..., None] ** self.power


def test_an_encoder_that_declares_nothing_is_copied_or_refused() -> None:
    encoder, state = Undeclared(), torch.get_rng_state()
    assert torch.equal(encoder.copy().gains, encoder.gains)
    assert torch.equal(encoder.copy(num_features=8).gains, encoder.gains)
    with pytest.raises(InputError, match=r"does not declare .* learned = \{'gains': \(\)\} to Undeclared"):
        encoder.copy(power=2.0)
    with pytest.raises(InputError, match="not drawn from a seed argument count as learned"):
        encoder.copy(num_features=4)
    assert torch.equal(torch.get_rng_state(), state)


# another value of each argument that may set initial values
OTHER = {
    "seed": 5,
    "sigma": 0.4,
    "half_width": 0.4,
    "scale": 0.4,
    "gamma": 0.4,
    "init": "uniform",
    "kl": 2.0,
    "dropout": 0.5,
}
TRAINED: list[tuple[str, dict[str, Any]]] = []
for name in registry:
    given = {"trainable": True} if takes(name, "trainable") else {"mlp": True} if takes(name, "mlp") else {}
    if given or any(True for _ in registry.create(name).parameters()):
        TRAINED.append((name, given))
        TRAINED += [
            (name, {**given, key: 1.0 if key == "kl" else True}) for key in ("per_feature", "kl") if takes(name, key)
        ]


@pytest.mark.parametrize(("name", "given"), TRAINED)
def test_arguments_that_set_initial_values_are_declared(name: str, given: dict[str, Any]) -> None:
    encoder = registry.create(name, **given)
    parameters = dict(encoder.named_parameters())
    assert parameters
    assert set(parameters) <= set(encoder.learned)
    for argument, other in OTHER.items():
        if takes(name, argument):
            changed = dict(registry.create(name, **given | {argument: other}).named_parameters())
            for key, value in parameters.items():
                assert (argument in encoder.learned[key]) == (not torch.equal(changed[key], value)), (key, argument)


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
