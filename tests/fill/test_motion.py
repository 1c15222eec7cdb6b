"""Lost frames along motion: moving cameras and objects, noise, ends, large frames, and the members by default."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pytest
import torch
from scipy.ndimage import gaussian_filter
from torch import Tensor

from pe_fill.filling import fill
from pe_fill.members import motion
from pe_fill.members.member import Gaps
from pe_fill.members.motion import frame_flow
from pe_fill.members.table import MEMBERS, default_members
from pe_fill.mixture import copies as gap_copies


def texture(channels: int = 1, side: int = 120, seed: int = 0) -> Tensor:
    noise = np.random.default_rng(seed).standard_normal((side, side, channels))
    return torch.from_numpy(gaussian_filter(noise, (1.5, 1.5, 0)) * 4).float()


def pan(down: int, across: int, *, frames: int = 7, channels: int = 1) -> Tensor:
    """A camera that moves over a picture: ``(T, 56, 56, C)``."""
    whole = texture(channels)
    starts = [(20 + down * t, 20 + across * t) for t in range(frames)]
    return torch.stack([whole[y : y + 56, x : x + 56] for y, x in starts])


def error_of(member: str, clip: Tensor, lost: list[int]) -> float:
    """Root mean squared error of a member in lost frames."""
    known = torch.ones(clip.shape[:3], dtype=torch.bool)
    known[lost] = False
    found = MEMBERS[member](Gaps(clip * known[..., None], known, ~known))
    assert torch.equal(found[known], clip[known])
    return float((found - clip)[lost].square().mean().sqrt())


@pytest.mark.parametrize("lost", [[3], [3, 4], [2, 3, 4]])
@pytest.mark.parametrize("channels", [1, 3])
def test_a_moving_camera_is_followed(lost: list[int], channels: int) -> None:
    clip = pan(0, -3, channels=channels)  # pixels that only one of the frames shows are taken from it
    assert error_of("motion", clip, lost) < 1e-3


def test_motion_of_parts_of_pixels_and_of_an_object() -> None:
    y, x = torch.meshgrid(torch.arange(48.0), torch.arange(56.0), indexing="ij")
    frames = list[Tensor]()
    for t in range(7):
        a = 0.03 * t
        u, v = x * math.cos(a) + y * math.sin(a) + 0.7 * t, y * math.cos(a) - x * math.sin(a)
        frames.append(torch.sin(0.5 * u) + torch.cos(0.6 * v) + torch.sin(0.35 * (u - v)))
    turned = torch.stack(frames)[..., None]
    assert error_of("motion", turned, [3]) < 0.1 * error_of("neighbours", turned, [3])
    clip, moving = pan(0, 0), texture(seed=1)[:24, :24]
    for t, frame in enumerate(clip):
        frame[10 + t : 34 + t, 8 + 3 * t : 32 + 3 * t] = moving
    assert error_of("motion", clip, [3]) < 0.5 * error_of("neighbours", clip, [3])


def test_the_flow_of_frames_of_any_range_and_size(monkeypatch: pytest.MonkeyPatch) -> None:
    clip = pan(4, 2, frames=2)
    for before, after in (clip, 1e-4 * clip, 1e6 + 1e5 * clip.double()):
        flow = frame_flow(before.movedim(-1, 0)[None], after.movedim(-1, 0)[None], 0.5)
        assert flow[0, 0].median() == -4
        assert flow[0, 1].median() == -2
    monkeypatch.setattr(motion, "MAX_PIXELS", 28 * 28)  # as of large frames: at half the resolution
    flow = frame_flow(*(frame.movedim(-1, 0)[None] for frame in clip), 0.5)
    torch.testing.assert_close(flow[0].flatten(1).median(1).values, torch.tensor([-4.0, -2.0]), rtol=0, atol=0.2)
    flat = torch.ones(1, 1, 3, 30)
    assert torch.equal(frame_flow(flat, flat, 0.3), torch.zeros(1, 2, 3, 30))


def test_lost_frames_at_an_end_are_the_nearest_and_damaged_frames_their_neighbours() -> None:
    clip = pan(3, 0)
    assert error_of("motion", clip, [0]) == error_of("neighbours", clip, [0])
    known = torch.ones(clip.shape[:3], dtype=torch.bool)
    assert "motion" not in default_members(known)
    known[3, 10:20] = False
    assert "motion" not in default_members(known)
    known[3] = False
    assert "motion" in default_members(known)


@pytest.mark.parametrize("lost", [range(1, 12, 2), [4, 8, 11], [0]], ids=["every second", "three", "first"])
def test_what_is_stated_of_lost_end_frames_holds(lost: Sequence[int], monkeypatch: pytest.MonkeyPatch) -> None:
    if lost == [0]:  # as of a large clip
        monkeypatch.setattr(gap_copies, "MAX_WINDOW", 12 * 40 * 40)
    clip = pan(1, 0, frames=12).numpy()  # exact between frames, and not at an end
    given = clip.copy()
    given[lost] = np.nan
    found = fill(given, axes=3, std=True, members=["motion", "neighbours"])
    assert found.std is not None
    error, end = np.abs(found.values - clip), lost[-1] if lost[-1] == 11 else 0
    true = -10 * math.log10(np.square(error[lost] / found.signals[0].unit).mean())
    assert abs(found.score - true) < 1.5
    assert 0.8 < (error[end] <= 1.645 * found.std[end]).mean() < 0.99


@pytest.mark.slow
def test_fill_is_ahead_of_the_mean_of_neighbours_in_motion_and_not_behind_it_in_noise() -> None:
    noise = 0.3 * torch.randn(7, 56, 56, 1, generator=torch.Generator().manual_seed(0))
    for clip, least in ((pan(2, 1), 6.0), (pan(0, 0) + noise, -0.2)):
        given = clip.numpy().copy()
        given[3] = np.nan
        error = np.square(fill(given, axes=3, folds="none").values - clip.numpy())[3].mean()
        mean = np.square((given[2] + given[4]) / 2 - clip[3].numpy()).mean()
        assert 10 * math.log10(mean / error) > least
