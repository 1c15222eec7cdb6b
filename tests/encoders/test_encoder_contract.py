"""What every registered encoder promises; a new one is tested by being registered."""

from __future__ import annotations

import copy
import inspect
import math
import pickle
import re
from typing import Annotated, Any, Literal, get_type_hints

import numpy as np
import pytest
import torch
from device_cases import on_gpu
from docstring_parser.google import parse
from learned_encoders import takes
from torch import Tensor

from pe_lightning import ComplexLinear, SimpleMLP, fit
from pe_lightning.encoders import Encoder, Width, automatic, create, names, registry, resolve
from pe_lightning.encoders.cells import with_cells
from pe_lightning.errors import InputError

K = 8
PIECEWISE_CONSTANT = {"rect", "impulse", "square", "noise"}
SMOOTH = {"linf", "logf", "rff", "basic", "identity", "gau", "sine", "bspline"}
SMOOTH |= {"lff", "pos_mlp", "sine1d", "sine_nd", "md_sine", "hash", "grid", "embed", "lines", "planes"}


def small(name: str, **arguments: Any) -> Encoder:
    few = {"num_features": K, "num_levels": 2}
    return create(name, **{key: value for key, value in few.items() if takes(name, key)}, **arguments)


every = pytest.mark.parametrize("name", names())


# -- features ---------------------------------------------------------------------------------------------------------


@every
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_shape_and_dtype(name: str, dtype: torch.dtype) -> None:
    encoder = small(name)
    for shape in [(), (1,), (0,), (2, 3), (2, 0, 4)]:
        features = encoder(torch.rand(shape, dtype=dtype))
        assert features.shape == (*shape, encoder.num_features)
        assert features.dtype == dtype
        assert features.isfinite().all()
    x = torch.rand(3, 4, dtype=dtype)
    before, half = x.clone(), x.to(torch.bfloat16)
    features = encoder(x)
    torch.testing.assert_close(features[1, 2], encoder(x[1, 2]))
    features.zero_()
    assert torch.equal(x, before)
    assert torch.equal(encoder(half), encoder(half.float()).to(torch.bfloat16))
    assert torch.equal(encoder.cell(half, 0.1), encoder.cell(half.float(), 0.1).to(torch.bfloat16))
    with pytest.raises(InputError, match="floating-point"):
        encoder(torch.arange(3))


@every
@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_features_of_coordinates_that_are_not_finite_are_nan(name: str, bad: float) -> None:
    for num_axes in (1, 2) if takes(name, "num_axes") else (1,):
        encoder = small(name, **({"num_axes": 2} if num_axes == 2 else {}))
        x = torch.rand(4, num_axes, generator=torch.Generator().manual_seed(0))
        x[2, -1] = bad
        for same in (encoder, with_cells(encoder, 0.1)):
            features = same(x if num_axes == 2 else x[:, 0])
            assert features[[0, 1, 3]].isfinite().all()
            assert features[2].sum().isnan()  # which a layer of them adds
            assert num_axes == 2 or features[2].isnan().all()


@every
def test_the_device_is_kept(name: str) -> None:
    # the meta device stands for an accelerator: a tensor left on the CPU meets it with an error
    encoder = small(name).to("meta")
    assert encoder(torch.rand(4, device="meta")).device.type == "meta"


@on_gpu
@every
def test_features_on_a_gpu_are_those_of_the_cpu(name: str) -> None:
    encoder, x = small(name), torch.rand(1000)
    torch.testing.assert_close(encoder.to("cuda")(x.to("cuda")).cpu(), encoder.to("cpu")(x), rtol=1e-5, atol=1e-5)


@every
def test_precision_settings_do_not_change_the_features(name: str) -> None:
    encoder, x = small(name), torch.rand(20)
    expected, exact = encoder(x), encoder(x.double())
    with torch.autocast("cpu", dtype=torch.bfloat16):
        torch.testing.assert_close(encoder(x), expected, rtol=0, atol=0)
    torch.set_default_dtype(torch.float64)
    try:
        assert torch.equal(small(name)(x), expected)
    finally:
        torch.set_default_dtype(torch.float32)
    assert torch.equal(encoder.double().float()(x.double()), exact)


@every
def test_gradients(name: str) -> None:
    encoder = small(name)
    everywhere = torch.cat([torch.arange(K + 1) / K, torch.tensor([-0.5, 1.5])]).requires_grad_()
    features = encoder(everywhere)
    if name in PIECEWISE_CONSTANT:
        assert not features.requires_grad
        return
    (first,) = torch.autograd.grad(features.square().sum(), everywhere)
    assert first.isfinite().all()  # also at the shifts
    x = torch.tensor([0.03, 0.21, 0.4621, 0.77], dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(encoder, x)
    if name in SMOOTH:
        assert torch.autograd.gradgradcheck(encoder, x)


@pytest.mark.parametrize("name", sorted(SMOOTH))
def test_the_derivative_at_the_ends_of_the_domain_is_that_beside_them(name: str) -> None:
    """The first sample is at 0; clamped coordinates have no derivative there with PyTorch 2.14."""
    encoder = small(name, **({"padding": "edge"} if takes(name, "padding") else {})).double()
    last = (K - 1) / K if takes(name, "padding") else 1.0
    at, beside = (torch.tensor([shift, last - shift], dtype=torch.float64, requires_grad=True) for shift in (0.0, 1e-9))
    direction = torch.linspace(1, 2, encoder(at).shape[-1], dtype=torch.float64)
    found, expected = (torch.autograd.grad((encoder(x) * direction).sum(), x)[0] for x in (at, beside))
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-6)


# -- state and descriptions -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [name for name in names() if takes(name, "seed")])
def test_the_seed_decides(name: str) -> None:
    x, mlp = torch.rand(20), {"mlp": True} if takes(name, "mlp") else {}
    torch.manual_seed(5)
    first = small(name, seed=1, **mlp)(x)
    state = torch.random.get_rng_state()
    assert torch.equal(small(name, seed=1, **mlp)(x), first)
    assert torch.equal(torch.random.get_rng_state(), state)  # the global generator is left alone
    other = small(name, seed=2, **mlp)
    assert not torch.equal(other(x), first)
    other.load_state_dict(small(name, seed=1, **mlp).state_dict())
    assert torch.equal(other(x), first)


@every
def test_a_description_rebuilds_the_encoder(name: str) -> None:
    encoder, x = small(name, **({"padding": 2} if takes(name, "padding") else {})), torch.rand(20)
    assert encoder.name == name
    for twin in (
        resolve(encoder.spec()),
        resolve({"name": name, **encoder.resolved()}),
        resolve({"class_path": type(encoder).__qualname__, "init_args": encoder.changed_arguments()}),
        copy.deepcopy(encoder),
        pickle.loads(pickle.dumps(encoder)),
    ):
        assert type(twin) is type(encoder)
        assert twin.resolved() == encoder.resolved()
        assert twin.num_features == encoder.num_features
        assert torch.equal(twin(x), encoder(x))
    assert resolve(encoder) is encoder
    numbers = create(name, **{key: np.int64(6) for key in ("num_features", "padding", "seed", "finest") if takes(name, key)})
    given = [*numbers.spec().values(), *numbers.resolved().values()]
    values = [v for value in given if value is not None for v in np.atleast_1d(value).tolist()]
    assert all(type(v) in (int, float, str, bool) for v in values)


# -- arguments --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [name for name in names() if takes(name, "num_features")])
def test_num_features_and_padding_are_honoured(name: str) -> None:
    for num_features in (2, 16, 258):
        encoder = create(name, num_features=num_features)
        assert encoder.num_features == encoder.resolved()["num_features"] == num_features
        assert encoder(torch.rand(3)).shape == (3, num_features)
    if takes(name, "padding"):
        padded = create(name, num_features=K, padding=3)
        assert (padded.num_features, padded.resolved()["num_features"]) == (K + 6, K)
        assert padded.copy(padding=1).num_features == K + 2


@every
def test_every_argument_is_typed_and_documented(name: str) -> None:
    cls = registry.get(name)
    parameters = registry.parameters(cls)
    hints = get_type_hints(cls.__init__)
    doc = inspect.getdoc(cls) or ""
    own = [parameter.arg_name for parameter in parse(doc).params]
    shared = {parameter.arg_name for base in cls.__mro__ for parameter in parse(inspect.getdoc(base) or "").params}
    assert own == [key for key in parameters if key in own]
    assert set(parameters) <= shared
    assert set(parameters) <= set(hints)
    for key, parameter in parameters.items():
        assert parameter.kind is parameter.POSITIONAL_OR_KEYWORD
        assert parameter.default is not parameter.empty, "a name alone is an encoder"
        assert (parameter.default is None) == (key in ("spacing", "seed", cls.width and cls.width.argument))
    assert cls.formula
    assert "\n" not in cls.formula
    if cls.__module__.startswith("pe_lightning."):
        assert "Reference: " in doc
    if cls.width is not None:
        assert f"Default ``{cls.width.text}``" in " ".join(doc.split())


BAD = {
    "num_features": [0, -2, True, 2.5, "8", None, float("nan")],
    "sigma": [0, -0.1, float("nan"), float("inf"), True, "0.1"],
    "half_width": [0, float("nan"), True],
    "scale": [0, float("inf"), True],
    "frequency": [0, -1.0, float("nan"), None, 10**400],
    "seed": [-1, 0.5, True, 2**64],
    "offset": [-1.0, math.inf, True, None, "much"],
    "padding": [-1, 0.5, True, None, "mirror"],
    "spacing": [0, 1.5, True, "1"],
    "num_axes": [0, True, 1.5],
    "num_positions": [0, True, 1.5],
    "trainable": [0, "yes", None],
    "per_feature": [1, "no", None],
    "whole": [1, "yes", None],
    "gamma": [0, -1.0, True, None],
    "init": ["gaussian", None, 1],
    "mlp": [1, "yes", None],
    "layer_norm": [1, None],
    "flat": [1, None],
    "interpolation": ["cubic", None],
    "dropout": [-0.1, 1.0, True, None],
    "kl": [-1.0, float("nan"), True, None],
    **{key: [0, True, 1.5, None] for key in ("num_inputs", "hidden", "groups", "rank", "num_levels", "level_features")},
    **{key: [0, True, 1.5, None, "many", [8, 0], [0]] for key in ("finest", "cells", "plane_cells")},
    "span": [0.5, True, None, float("inf")],
    "table_size": [0, True, 1.5, None],
}


@every
def test_invalid_values_are_named(name: str) -> None:
    cls = registry.get(name)
    is_own = cls.__module__.startswith(("pe_lightning.", "pe_papers."))
    for key in registry.parameters(cls):
        for value in BAD[key] if is_own else BAD.get(key, []):
            with pytest.raises(InputError, match=rf"{cls.__name__}: {key} must be .*[;,] got {re.escape(repr(value))}"):
                create(name, **{key: value})


class Own(Encoder):
    """An encoder of a user, with a range of its own."""

    def __init__(
        self, num_features: int = 4, share: Annotated[float, "(0, 1]"] = 0.5, kind: Literal["a", "b"] = "a"
    ) -> None:
        super().__init__(num_features)
        self.share, self.kind = share, kind

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.share * x[..., None].expand(*x.shape, self.num_features)


def test_arguments_of_a_users_encoder_are_checked_by_their_types_and_recorded() -> None:
    assert Own(np.int64(3), share=1).arguments == {"num_features": 3, "share": 1.0, "kind": "a"}
    for given, message in (({"share": 0}, "Own: share must be a number in"), ({"kind": "c"}, "Own: kind must be a or b")):
        with pytest.raises(InputError, match=message):
            Own(**given)
    with pytest.raises(InputError, match="Own: num_features must be an integer >= 1; got 0"):
        Own(0)
    with pytest.raises(TypeError, match="shares"):
        Own(**{"shares": 1})


# -- declarations -----------------------------------------------------------------------------------------------------


WITH_WIDTH = [name for name in names() if registry.get(name).width is not None]


@pytest.mark.parametrize("name", WITH_WIDTH)
def test_the_default_width_follows_num_features_and_a_given_one_stays(name: str) -> None:
    width = registry.get(name).width
    assert width is not None
    for num_features in (64, 512):
        expected = eval(re.sub(r"log2 K", "log2(K)", width.text), {"K": num_features, "log2": math.log2})
        for encoder in (create(name, num_features=num_features), small(name).copy(num_features=num_features)):
            assert encoder.resolved()[width.argument] == pytest.approx(expected, rel=1e-12)
    given = small(name, **{width.argument: 1.25})
    assert given.changed_arguments() == {"num_features": K, width.argument: 1.25}
    assert given.copy(num_features=64).resolved()[width.argument] == 1.25
    assert given.copy(**{width.argument: None}).resolved() == small(name).resolved()
    unset = small(name, **{width.argument: "auto"})
    assert automatic(unset) == width.argument
    assert unset.resolved() == small(name).resolved()
    if width.kind == "octaves":
        with pytest.raises(InputError, match="from 1e-12 to 64, or auto; got 2000"):
            small(name, **{width.argument: 2000})


@pytest.mark.parametrize("name", WITH_WIDTH)
def test_a_scaled_width_makes_the_features_wider(name: str) -> None:
    width = registry.get(name).width
    assert isinstance(width, Width)
    seed = {"seed": 1} if takes(name, "seed") else {}
    narrow = create(name, num_features=64, **{width.argument: width.rule(64)}, **seed)
    wide = narrow.copy(**{width.argument: width.scaled(width.rule(64), 4.0)})
    delta = torch.linspace(0, 0.5, 1000, dtype=torch.float64)

    def reach(encoder: Encoder) -> float:
        similarity = encoder.distance(delta)
        return float(delta[(similarity < similarity[0] / 2).nonzero()[0]])

    assert 2.5 < reach(wide) / reach(narrow) < 5  # linf: the lowest frequency stays


@every
def test_features_are_negligible_beyond_the_support(name: str) -> None:
    encoder = create(name, **({"num_features": 200} if takes(name, "num_features") else {}))
    far = torch.linspace(0, 0.999, 4000, dtype=torch.float64)
    if encoder.support is None:
        assert not encoder.directional or name in {"sine", "square"}, "bumps have a support"
        return
    offsets = (far[:, None] - torch.arange(200, dtype=torch.float64) / 200).abs()
    features = encoder(far).abs()
    assert features[offsets > encoder.support * (1 + 1e-9)].max() <= features.max() * 2.0**-30
    assert features[offsets > encoder.support * 0.9 - 0.5 / 200].max() > 0  # and it is not far too large


@pytest.mark.parametrize("name", [name for name in names() if takes(name, "seed")])
def test_a_seed_that_is_not_given_is_the_seed_of_the_run_and_is_recorded(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    more = {"mlp": True} if takes(name, "mlp") else {}  # without it, some draw nothing
    default, given = small(name, **more), small(name, seed=5, **more)
    monkeypatch.setenv("PL_GLOBAL_SEED", "5")
    encoder = small(name, **more)
    assert "seed" not in encoder.changed_arguments()
    monkeypatch.setenv("PL_GLOBAL_SEED", "6")
    x = torch.rand(4)
    for same in (encoder, resolve(encoder.spec()), encoder.copy(), encoder.copy(seed=5)):
        assert same.spec()["seed"] == 5
        assert torch.equal(same(x), given(x))
    assert default.spec()["seed"] == 0
    assert not torch.equal(default(x), given(x))


class Three(Encoder):
    """Three powers, whatever number is declared; in a dtype of its own on request."""

    def __init__(self, num_features: int = 64, double: bool = False) -> None:
        super().__init__(num_features)
        self.double_precision = double

    def forward(self, x: Tensor) -> Tensor:
        powers = torch.stack([x, x**2, x**3], -1)
        return powers.double() if self.double_precision else powers


def test_features_of_another_shape_or_dtype_than_declared_are_refused() -> None:
    with pytest.raises(InputError, match=r"Three' .* returns \(7, 3\), torch.float64 for coordinates \(7,\), torch.float32"):
        Three(3, double=True)(torch.rand(7))
    with torch.autocast("cpu", torch.bfloat16):  # which layers follow
        Three(3, double=True)(torch.rand(7))
    values, wrong = torch.rand(1, 12, 12, 3), r"Three' has num_features=\d+, and returns \(.*3\), .* forward returns"
    with pytest.raises(InputError, match=wrong):
        fit(values, Three())
    for model in (ComplexLinear(Three()), SimpleMLP(Three())):
        with pytest.raises(InputError, match=wrong):
            fit(values, model=model, max_steps=1)


def test_an_encoder_of_several_axes_in_an_exact_fit_is_refused() -> None:
    with pytest.raises(InputError, match=r"'rff' with num_axes=2 .* leave num_axes out, .*--model SimpleMLP"):
        fit(torch.rand(1, 12, 12, 3), {"name": "rff", "num_axes": 2})
