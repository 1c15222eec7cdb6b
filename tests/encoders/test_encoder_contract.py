"""What every registered encoder promises; a new one is tested by being registered."""

from __future__ import annotations

import copy
import inspect
import math
import pickle
import re
from pathlib import Path
from typing import Any, get_type_hints

import numpy as np
import pytest
import torch
from torch import Tensor

from pe_lightning.encoders import Encoder, create, encoder_table, names, registry, resolve
from pe_lightning.errors import InputError

K = 8
PIECEWISE_CONSTANT = {"rect", "impulse", "square", "noise"}
SMOOTH = {"linf", "logf", "rff", "basic", "identity", "gau", "sine", "bspline"}


def takes(name: str, key: str) -> bool:
    return key in registry.parameters(registry.get(name))


def small(name: str, **arguments: Any) -> Encoder:
    return create(name, **({"num_features": K} if takes(name, "num_features") else {}), **arguments)


def with_argument(key: str) -> list[str]:
    return [name for name in names() if takes(name, key)]


every = pytest.mark.parametrize("name", names())
sized = pytest.mark.parametrize("name", with_argument("num_features"))
padded = pytest.mark.parametrize("name", with_argument("padding"))
seeded = pytest.mark.parametrize("name", with_argument("seed"))


@pytest.fixture(autouse=True)
def _same_coordinates_in_any_order() -> None:
    torch.manual_seed(0)


# -- features ---------------------------------------------------------------------------------------------------------


@every
@pytest.mark.parametrize("shape", [(), (1,), (0,), (5,), (2, 3), (2, 0, 4)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_shape_and_dtype(name: str, shape: tuple[int, ...], dtype: torch.dtype) -> None:
    encoder = small(name)
    features = encoder(torch.rand(shape, dtype=dtype))
    assert features.shape == (*shape, encoder.num_features)
    assert features.dtype == dtype
    assert features.isfinite().all()


@every
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_coordinates_are_encoded_in_single_precision(name: str, dtype: torch.dtype) -> None:
    encoder, x = small(name), torch.rand(50).to(dtype)
    torch.testing.assert_close(encoder(x), encoder(x.float()).to(dtype), rtol=0, atol=0)


@every
def test_integers_are_not_coordinates(name: str) -> None:
    with pytest.raises(InputError, match="floating-point"):
        small(name)(torch.arange(3))


@every
def test_the_device_is_kept(name: str) -> None:
    # the meta device stands for an accelerator: a tensor left on the CPU meets it with an error
    encoder = small(name).to("meta")
    assert encoder(torch.rand(4, device="meta")).device.type == "meta"


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@every
def test_features_on_a_gpu_are_those_of_the_cpu(name: str) -> None:
    encoder, x = small(name), torch.rand(1000)
    torch.testing.assert_close(encoder.to("cuda")(x.to("cuda")).cpu(), encoder.to("cpu")(x), rtol=1e-5, atol=1e-5)


@every
def test_each_coordinate_is_encoded_on_its_own_and_left_alone(name: str) -> None:
    encoder, x = small(name), torch.rand(3, 4)
    before = x.clone()
    features = encoder(x)
    torch.testing.assert_close(features[1, 2], encoder(x[1, 2]))
    features.zero_()
    assert torch.equal(x, before)


@every
def test_autocast_does_not_round_the_features(name: str) -> None:
    encoder, x = small(name), torch.rand(20)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        features = encoder(x)
    torch.testing.assert_close(features, encoder(x), rtol=0, atol=0)


@every
def test_the_default_dtype_does_not_matter(name: str) -> None:
    x = torch.rand(20)
    expected = small(name)(x)
    torch.set_default_dtype(torch.float64)
    try:
        assert torch.equal(small(name)(x), expected)
    finally:
        torch.set_default_dtype(torch.float32)


@every
def test_moving_between_precisions_and_back_changes_nothing(name: str) -> None:
    encoder, x = small(name), torch.rand(20, dtype=torch.float64)
    expected = encoder(x)
    assert torch.equal(encoder.float()(x), expected)
    assert torch.equal(encoder.double()(x), expected)


# -- gradients --------------------------------------------------------------------------------------------------------


@every
def test_gradients_are_finite_everywhere_also_at_the_shifts(name: str) -> None:
    x = torch.cat([torch.arange(K + 1) / K, torch.rand(20), torch.tensor([-0.5, 1.5])]).requires_grad_()
    features = small(name)(x)
    if name in PIECEWISE_CONSTANT:
        assert not features.requires_grad
        return
    (first,) = torch.autograd.grad(features.square().sum(), x, create_graph=True)
    assert first.isfinite().all()
    if name in SMOOTH:
        (second,) = torch.autograd.grad(first.sum(), x)
        assert second.isfinite().all()


@pytest.mark.parametrize("name", sorted(set(names()) - PIECEWISE_CONSTANT))
def test_gradients_are_those_of_finite_differences(name: str) -> None:
    encoder = small(name)
    x = torch.tensor([0.03, 0.21, 0.4621, 0.77], dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(encoder, x)
    if name in SMOOTH:
        assert torch.autograd.gradgradcheck(encoder, x)


# -- state ------------------------------------------------------------------------------------------------------------


@every
def test_state_dict_round_trip(name: str) -> None:
    seeds = [{"seed": 0}, {"seed": 1}] if takes(name, "seed") else [{}, {}]
    source, target = (small(name, **seed) for seed in seeds)
    target.load_state_dict(source.state_dict())
    x = torch.rand(20)
    assert torch.equal(source(x), target(x))
    assert not list(source.parameters()) or any(p.requires_grad for p in source.parameters())


@seeded
def test_the_seed_decides(name: str) -> None:
    x = torch.rand(20)
    torch.manual_seed(5)
    first = small(name, seed=1)(x)
    state = torch.random.get_rng_state()
    assert torch.equal(small(name, seed=1)(x), first)
    assert torch.equal(torch.random.get_rng_state(), state)  # the global generator is left alone
    assert not torch.equal(small(name, seed=2)(x), first)


@every
def test_copies_compute_the_same(name: str) -> None:
    encoder, x = small(name), torch.rand(20)
    for twin in (copy.deepcopy(encoder), pickle.loads(pickle.dumps(encoder))):
        assert torch.equal(twin(x), encoder(x))
        assert twin.spec() == encoder.spec()
        assert twin.resolved() == encoder.resolved()


@every
def test_a_description_rebuilds_the_encoder(name: str) -> None:
    padding = {"padding": 2} if takes(name, "padding") else {}
    encoder, x = small(name, **padding), torch.rand(20)
    assert encoder.name == name
    for description in (
        encoder.spec(),
        {"name": name, **encoder.resolved()},
        {"class_path": type(encoder).__qualname__, "init_args": encoder.given()},
    ):
        twin = resolve(description)
        assert type(twin) is type(encoder)
        assert twin.resolved() == encoder.resolved()
        assert twin.num_features == encoder.num_features
        assert torch.equal(twin(x), encoder(x))
    assert resolve(encoder) is encoder


@every
def test_descriptions_are_plain_values(name: str, tmp_path: Path) -> None:
    encoder = create(name, **{key: np.int64(6) for key in ("num_features", "padding", "seed") if takes(name, key)})
    torch.save([encoder.spec(), encoder.resolved()], tmp_path / "spec.pt")
    spec, resolved = torch.load(tmp_path / "spec.pt", weights_only=True)
    assert all(type(v) in (int, float, str, bool) for v in [*spec.values(), *resolved.values()])


@pytest.mark.parametrize("wrong", [None, 3, {}, {"sigma": 0.1}, ["gau"]])
def test_what_describes_no_encoder_is_refused(wrong: Any) -> None:
    with pytest.raises(InputError, match="an encoder is a name such as 'gau'"):
        resolve(wrong)


# -- arguments --------------------------------------------------------------------------------------------------------


@sized
@pytest.mark.parametrize("num_features", [2, 4, 16, 258])
def test_num_features_is_honoured(name: str, num_features: int) -> None:
    encoder = create(name, num_features=num_features)
    assert encoder.num_features == encoder.resolved()["num_features"] == num_features
    assert encoder(torch.rand(3)).shape == (3, num_features)


@padded
def test_padding_adds_features_past_both_ends(name: str) -> None:
    encoder = create(name, num_features=K, padding=3)
    assert encoder.num_features == K + 6
    assert encoder.resolved()["num_features"] == K
    assert encoder.copy(padding=1).num_features == K + 2
    x = torch.rand(50) * (1 - 1 / K) * 0.999  # impulse clamps beyond the last shift
    x = x[(x * K - 0.5 - (x * K - 0.5).round()).abs() > 1e-3]
    torch.testing.assert_close(encoder(x)[..., 3:-3], create(name, num_features=K)(x)[..., :], rtol=1e-5, atol=1e-6)


@sized
def test_defaults_follow_num_features_and_given_values_stay(name: str) -> None:
    cls = registry.get(name)
    for key in cls.default_rules:
        default = small(name).resolved()[key]
        assert small(name).copy(num_features=64).resolved()[key] == create(name, num_features=64).resolved()[key]
        assert small(name).copy(num_features=64).resolved()[key] != default
        given = small(name, **{key: 1.25})
        assert given.copy(num_features=64).resolved()[key] == 1.25
        assert given.copy(**{key: None}).resolved()[key] == default
        assert given.given() == {"num_features": K, key: 1.25}


@every
def test_every_argument_is_typed_and_documented(name: str) -> None:
    cls = registry.get(name)
    parameters = registry.parameters(cls)
    hints = get_type_hints(cls.__init__)
    doc = inspect.getdoc(cls) or ""
    section = re.search(r"^Args:\n((?:    .*\n|\n)+)", doc, re.MULTILINE)
    documented = re.findall(r"^    (\w+): (?=\S)", section[1], re.MULTILINE) if section else []
    assert documented == list(parameters)
    assert set(parameters) <= set(hints)
    for key, parameter in parameters.items():
        assert parameter.kind is parameter.POSITIONAL_OR_KEYWORD
        assert parameter.default is not parameter.empty, "a name alone is an encoder"
        assert (parameter.default is None) == (key in cls.default_rules)
    for rule in cls.default_rules.values():
        assert f"Default ``{rule}``" in " ".join(doc.split())


@every
def test_every_class_says_what_it_is(name: str) -> None:
    cls = registry.get(name)
    doc = inspect.getdoc(cls) or ""
    assert cls.formula
    assert "\n" not in cls.formula
    if cls.__module__.startswith("pe_lightning."):
        assert cls.reference
        assert all(section in doc for section in ("Shape:", "Reference:"))


@every
def test_default_rules_are_what_the_class_computes(name: str) -> None:
    for key, rule in registry.get(name).default_rules.items():
        encoder = create(name, num_features=64)
        expected = eval(re.sub(r"log2 K", "log2(K)", rule), {"K": 64, "log2": math.log2})
        assert encoder.resolved()[key] == pytest.approx(expected, rel=1e-12)


BAD = {
    "num_features": [0, -2, True, 2.5, "8", None, float("nan")],
    "sigma": [0, 0.0, -0.1, float("nan"), float("inf"), True, "0.1"],
    "half_width": [0, -0.1, float("nan"), float("inf"), True],
    "scale": [0, -0.1, float("nan"), float("inf"), True],
    "frequency": [0, -1.0, float("nan"), float("inf"), None, 10**400],
    "seed": [-1, 0.5, True, None, 2**64],
    "padding": [-1, 0.5, True, None],
    "num_axes": [0, -1, True, 1.5],
    "num_positions": [0, -1, True, 1.5],
}


@pytest.mark.parametrize(
    ("name", "key", "value"),
    [(name, key, value) for name in names() for key in registry.parameters(registry.get(name)) for value in BAD[key]],
)
def test_invalid_values_are_named(name: str, key: str, value: Any) -> None:
    with pytest.raises(InputError, match=rf"{registry.get(name).__name__}: {key} must be .*, got {value!r}"):
        create(name, **{key: value})


@pytest.mark.parametrize("name", ["linf", "logf", "rff"])
@pytest.mark.parametrize(("odd", "advice"), [(1, "use 2"), (255, "use 254 or 256")])
def test_fourier_encoders_need_an_even_number_of_features(name: str, odd: int, advice: str) -> None:
    with pytest.raises(InputError, match=rf"num_features must be even.*got {odd}; {advice}$"):
        create(name, num_features=odd)


@pytest.mark.parametrize("name", ["linf", "logf"])
def test_an_exponent_is_bounded(name: str) -> None:
    with pytest.raises(InputError, match="from 1e-12 to 64, got 2000"):
        create(name, sigma=2000)


@every
def test_the_formula_of_a_distance_keeps_shape_or_is_refused(name: str) -> None:
    encoder, delta = small(name), torch.linspace(-0.5, 0.5, 6, dtype=torch.float64).reshape(2, 3)
    if type(encoder).distance is Encoder.distance:
        with pytest.raises(NotImplementedError, match=f"{type(encoder).__name__} has no closed form"):
            encoder.distance(delta)
        return
    similarity = encoder.distance(delta)
    assert similarity.shape == delta.shape
    assert similarity.dtype == delta.dtype
    torch.testing.assert_close(similarity, encoder.distance(-delta))


# -- the table of encoders --------------------------------------------------------------------------------------------


def test_the_table_holds_names_formulas_and_default_rules() -> None:
    rows = {row.name: row for row in encoder_table()}
    assert list(rows) == names()
    gau = rows["gau"]
    assert gau.class_path == "pe_lightning.encoders.shifted.Gaussian"
    assert gau.parameters == ("num_features=256", "sigma=0.64/K", "padding=0")
    assert "Eq. 54" in gau.reference
    assert gau.error is None
    assert rows["identity"].parameters == ()


def test_the_table_shows_broken_plugins_and_required_arguments(monkeypatch: pytest.MonkeyPatch) -> None:
    class Bare(Encoder):
        def __init__(self, num_features: int) -> None:
            super().__init__(num_features)

        def forward(self, x: Tensor) -> Tensor:
            return x[..., None].expand(*x.shape, self.num_features)

    monkeypatch.setattr(registry, "_classes", {"bare": Bare})
    monkeypatch.setattr(registry, "_broken", {"aaa": "it needs a licence"})
    bare, broken = encoder_table()
    assert bare.parameters == ("num_features",)
    assert (broken.name, broken.error) == ("aaa", "it needs a licence")


# -- the plugin of the README -----------------------------------------------------------------------------------------


def test_the_example_plugin_is_an_encoder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(Path(__file__).parents[1] / "plugin_project"))
    chirp = create("pe_chirp.Chirp", num_features=3)
    x = torch.tensor([0.0, 0.5, 1.0], dtype=torch.float64)
    expected = np.cos(np.pi * np.arange(3) * np.array([0.0, 0.5, 1.0])[:, None] ** 2)
    np.testing.assert_allclose(chirp(x).numpy(), expected, atol=1e-12)
    assert resolve(chirp.spec()).resolved() == {"num_features": 3}
