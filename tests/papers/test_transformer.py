"""Attention, rotary positions, and encoders as positions of tokens."""

import math

import numpy as np
import pytest
import torch

from pe_lightning import encoders
from pe_lightning.errors import InputError
from pe_papers.tasks.positions import Positions
from pe_papers.tasks.transformer import Attention, MixedRotary, Rotary, Transformer


def drawn(*shape: int) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(0))


def test_attention_is_that_of_the_paper():
    """One head at a time, in NumPy."""
    attention, x, memory = Attention(8, 2), drawn(1, 3, 8), drawn(1, 5, 8) + 1
    weights = {name: tensor.detach().numpy() for name, tensor in attention.named_parameters()}
    query = x[0].numpy() @ weights["query.weight"].T + weights["query.bias"]
    both = memory[0].numpy() @ weights["key_value.weight"].T + weights["key_value.bias"]
    read = []
    for head in (slice(0, 4), slice(4, 8)):
        scores = np.exp(query[:, head] @ both[:, :8][:, head].T / math.sqrt(4))
        read.append(scores / scores.sum(1, keepdims=True) @ both[:, 8:][:, head])
    expected = np.concatenate(read, 1) @ weights["out.weight"].T + weights["out.bias"]
    np.testing.assert_allclose(attention(x, memory)[0].detach().numpy(), expected, atol=1e-5)


def test_a_causal_transformer_does_not_see_the_future():
    model, x = Transformer(8, 2, 2, causal=True), drawn(1, 6, 8)
    changed = x.clone()
    changed[:, 4:] *= -1
    torch.testing.assert_close(model(changed)[:, :4], model(x)[:, :4])
    assert not torch.allclose(model(changed)[:, 4:], model(x)[:, 4:], atol=1e-2)
    both_ways = Transformer(8, 2, 2)
    assert not torch.allclose(both_ways(changed)[:, :4], both_ways(x)[:, :4], atol=1e-2)


@pytest.mark.parametrize("axes", [1, 2, 3])
def test_rotary_positions_are_relative(axes):
    """Moving all tokens changes nothing; moving one along any axis does."""
    model, rotary = Transformer(16, 2, 2), Rotary(8, [32.0] * axes)
    x, positions = drawn(1, 5, 16), torch.rand(1, 5, axes, generator=torch.Generator().manual_seed(0))
    expected = model(x, rotary(positions))
    torch.testing.assert_close(model(x, rotary(positions + 0.25)), expected, atol=1e-4, rtol=0)
    for axis in range(axes):
        moved = positions.clone()
        moved[:, 2, axis] += 0.25
        assert not torch.allclose(model(x, rotary(moved)), expected, atol=1e-3)


def test_mixed_rotary_positions_are_relative_and_trained():
    """Frequencies are vectors over both axes, of each block and head; they start as rotated axial ones."""
    torch.manual_seed(0)
    model, rotary = Transformer(16, 2, 2), MixedRotary(2, 2, 8, [32.0] * 2)
    x, positions = drawn(1, 5, 16), torch.rand(1, 5, 2, generator=torch.Generator().manual_seed(0))
    angles = rotary(positions)
    assert angles.shape == (2, 1, 2, 5, 4)
    by_hand = [
        [(rotary.frequencies[block, head] @ (32 * place)).tolist() for place in positions[0]]
        for block, head in ((0, 0), (1, 1))
    ]
    torch.testing.assert_close(torch.tensor(by_hand), torch.stack([angles[0, 0, 0], angles[1, 0, 1]]))
    torch.testing.assert_close(model(x, rotary(positions + 0.25)), model(x, angles), atol=1e-4, rtol=0)
    turned = positions.clone()
    turned[:, 2, 0] += 0.25
    assert not torch.allclose(model(x, rotary(turned)), model(x, angles), atol=1e-3)
    lengths = rotary.frequencies.norm(dim=-1)
    torch.testing.assert_close(lengths, torch.tensor([1, 10**-0.5] * 2).expand(2, 2, 4))
    model(x, angles).square().sum().backward()
    assert rotary.frequencies.grad.abs().min() > 0
    first = MixedRotary(1, 4000, 4, [32.0] * 2).frequencies[0, :, 0]
    quadrants = (first > 0).int() @ torch.tensor([1, 2], dtype=torch.int32)
    assert quadrants.bincount(minlength=4).tolist() == pytest.approx([1000] * 4, rel=0.1), "angles over the whole circle"


@pytest.mark.parametrize("name", encoders.names())
@pytest.mark.parametrize("combine", ["add", "concat"])
def test_any_registered_encoder_gives_positions(name, combine):
    """Whatever its own width: it gives the features of the encoder, and tokens at different places differ."""
    tokens, places = torch.zeros(2, 5, 32), torch.rand(2, 5, 2, generator=torch.Generator().manual_seed(0))
    positions = Positions(encoders.create(name), [8.0, 8.0], 32, 4, 2, combine)
    found = positions(tokens, places)
    assert found.shape == (2, 5, 32)
    assert found.isfinite().all()
    assert not torch.allclose(found[0, 0], found[0, 1])
    features = positions.encoding(places)
    if "num_features" in encoders.registry.parameters(type(encoders.create(name))):
        assert features.shape[-1] == 32
    many = torch.rand(1, 3000, 2, generator=torch.Generator().manual_seed(1))
    if combine == "add":
        length = positions(torch.zeros(1, 3000, 32), many).norm(dim=-1).mean().item()
        assert length == pytest.approx(1, abs=0.05), "features are as long as a token"
        if positions.project is None:
            torch.testing.assert_close(found, features * positions.scale)
    if trained := [parameter for parameter in positions.parameters() if parameter.requires_grad]:
        found.sum().backward()
        assert all(parameter.grad is not None for parameter in trained)


def test_widths_follow_the_number_of_positions():
    """gamma is one position, and the width of a Gaussian where there are more features than positions."""
    by_axes = {axes: Positions(encoders.create("lff"), [8.0] * axes, 64, 4, 2, "add") for axes in (2, 4)}
    assert [made.encoding.encoders[0].gamma for made in by_axes.values()] == [1 / 8, 1 / 8]
    assert [made.encoding.encoders[0].num_axes for made in by_axes.values()] == [2, 4]
    (gau, *_) = Positions(encoders.create("gau"), [8.0] * 2, 64, 4, 2, "add").encoding.encoders
    assert gau.num_features == 16
    assert gau.sigma == encoders.create("gau", num_features=8).sigma
    rff = Positions(encoders.create("rff"), [38.0] * 2, 64, 4, 2, "add")
    assert rff.encoding.encoders[0].sigma == 2.0
    with pytest.raises(InputError, match="sigma: auto is chosen by exact fits"):
        Positions(encoders.create("gau", sigma="auto"), [8.0], 64, 4, 2, "add")
    with pytest.raises(InputError, match="at least 8 for 4 axes, got 4"):
        Positions("rope", [8.0] * 4, 16, 4, 2, "add")
