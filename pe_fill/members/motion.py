r"""Lost frames of a clip along the motion between the frames before and after them.

With :math:`a` and :math:`b` the known frames around a lost one, and :math:`s` its share of the time between them, the flow
:math:`v` at the lost frame has :math:`a(x - s v) = b(x + (1 - s) v)`. It is refined from coarse to fine levels. At every
pixel one flow is taken, with the least mean absolute difference in a window: the present one, a step by least squares from
it, the flow at pixels nearby, no motion, or the motion of the whole frame by phase correlation. Where one of the two places
is outside, the lost pixel is taken from the other frame.

Reference: Lucas and Kanade, *An iterative image registration technique*, IJCAI 1981. Barnes et al., *PatchMatch*, ACM
Transactions on Graphics 28, 2009. Kuglin and Hines, *The phase correlation image alignment method*, 1975.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from scipy.ndimage import distance_transform_edt
from torch import Tensor
from torch.nn import functional as F

MAX_PIXELS = 1 << 18
"""Pixels beyond which the flow is computed at half or a quarter of the resolution."""
LEAST_SIDE = 12
"""Least side of the coarsest level, in pixels."""
NEARBY = (8, 4, 2)
"""Distance of the pixels whose flow is tried, in pixels, for each round of a level."""
WINDOW, WIDE = 3, 7
"""Reach of the windows of differences and of least squares, and of the window that weights the pixels of the latter."""
LEAST_SEEN, UNSEEN = 0.1, 8.0
"""Share of a window inside of both frames below which a flow cannot be judged, and its difference then, in medians."""
MAX_STEP = 2.0
"""Largest step by least squares, in pixels."""


class _Frames(NamedTuple):
    """Two frames ``(1, C, H, W)``, and the share of the time between them at which the flow is wanted."""

    before: Tensor
    after: Tensor
    share: float

    def along(self, flow: Tensor, mode: str = "bilinear") -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Both frames along flows ``(B, 2, H, W)``, and whether the places are inside of each, ``(B, 1, H, W)``."""
        first, first_inside = _sampled(self.before, -self.share * flow, mode)
        second, second_inside = _sampled(self.after, (1 - self.share) * flow, mode)
        return first, second, first_inside, second_inside


def along_motion(filled: Tensor, known: Tensor, wanted: Tensor) -> Tensor:
    """Predicts the wanted frames of a clip that have no known pixel, with known frames before and after.

    Args:
        filled: The clip with first guesses of all missing samples, which the other frames keep: ``(T, H, W, C)``.
        known: Which samples are known, ``(T, H, W)``.
        wanted: Which samples are wanted, ``(T, H, W)``.
    """
    result, seen = filled.clone(), known.flatten(1).any(1)
    places = seen.nonzero()[:, 0].tolist()
    for lost in (wanted.flatten(1).any(1) & ~seen).nonzero()[:, 0].tolist():
        before = max((place for place in places if place < lost), default=None)
        after = min((place for place in places if place > lost), default=None)
        if before is not None and after is not None:
            first, second = (filled[place].movedim(-1, 0)[None] for place in (before, after))
            result[lost] = _between(_Frames(first, second, (lost - before) / (after - before)))
    return result


def _between(frames: _Frames) -> Tensor:
    """The frame at the share of the time between two others, ``(H, W, C)``."""
    flow = frame_flow(*frames)
    first, second, *inside = frames.along(flow, "bicubic")
    weights = [(1 - frames.share) * inside[0] + 1e-6, frames.share * inside[1] + 1e-6]
    return ((weights[0] * first + weights[1] * second) / (weights[0] + weights[1]))[0].movedim(0, -1)


def frame_flow(before: Tensor, after: Tensor, share: float) -> Tensor:
    """Flow in pixels from one frame to another ``(1, C, H, W)``, at the frame between them: ``(1, 2, H, W)``, y and x."""
    scale = before.std().clamp_min(torch.finfo(before.dtype).tiny ** 0.5) * 5
    levels = [_Frames(before / scale, after / scale, share)]
    while min(levels[-1].before.shape[2:]) >= 2 * LEAST_SIDE:
        first, second = (F.avg_pool2d(frame, 2, ceil_mode=True, count_include_pad=False) for frame in levels[-1][:2])
        levels.append(_Frames(first, second, share))
    finest = next((n for n, level in enumerate(levels) if level.before[0, 0].numel() <= MAX_PIXELS), len(levels) - 1)
    whole = _whole_motion(levels[finest].before, levels[finest].after).view(1, 2, 1, 1)
    flow = torch.zeros_like(levels[-1].before[:, :1]).repeat(1, 2, 1, 1)
    for number in reversed(range(len(levels))):
        level = levels[number]
        height, width = level.before.shape[2:]
        if flow.shape[2:] != (height, width):
            flow = 2 * F.interpolate(flow, scale_factor=2.0, mode="bilinear", align_corners=False)[..., :height, :width]
        if number >= finest:
            flow = _refined(level, flow, whole.expand_as(flow) * 2.0 ** (finest - number))
    return flow


def _refined(frames: _Frames, flow: Tensor, whole: Tensor) -> Tensor:
    """The flow of a level; where one of the frames is not seen, the nearest one at which both are."""
    for distance in NEARBY:
        step = _least_squares_step(frames, flow)
        flows = torch.cat([flow, flow + step, torch.zeros_like(flow), whole, *_nearby(flow, distance)])
        first, second, *inside = frames.along(flows)
        both = (inside[0] & inside[1]).to(flow)
        seen = _mean(both, WINDOW)
        difference = _mean((first - second).abs().mean(1, keepdim=True) * both, WINDOW) / seen.clamp_min(1e-3)
        least = difference.masked_fill(seen < LEAST_SEEN, torch.inf).amin(0)
        usual = least[least.isfinite()].median()
        difference = torch.where(seen < LEAST_SEEN, UNSEEN * usual, difference)[:, 0]
        flow = flows.gather(0, difference.argmin(0).expand(1, 2, -1, -1))
    *_, first_inside, second_inside = frames.along(flow)
    unseen = _mean((first_inside & second_inside).to(flow), WINDOW)[0, 0] <= 0.5
    if bool(unseen.any()) and not bool(unseen.all()):
        rows, columns = distance_transform_edt(unseen.cpu().numpy(), return_distances=False, return_indices=True)
        flow = flow[:, :, rows, columns]
    return flow


def _least_squares_step(frames: _Frames, flow: Tensor) -> Tensor:
    """The step ``(1, 2, H, W)`` after which the squared differences in windows are least."""
    first, second, *inside = frames.along(flow)
    left = second - first
    middle = F.pad(frames.share * first + (1 - frames.share) * second, (1,) * 4, mode="replicate")
    down = (middle[..., 2:, 1:-1] - middle[..., :-2, 1:-1]) / 2
    across = (middle[..., 1:-1, 2:] - middle[..., 1:-1, :-2]) / 2
    squared = left.square().mean(1, keepdim=True)
    weight = (inside[0] & inside[1]) / (squared + _mean(squared, WIDE) + 1e-5)
    products = (down * down, across * across, down * across, down * left, across * left)
    sums = _mean(torch.cat([*(weight * each.mean(1, keepdim=True) for each in products), weight], 1), WINDOW)
    yy, xx, yx, y, x, total = torch.split(sums, 1, 1)
    yy, xx = (each + 1e-4 * total + 1e-12 for each in (yy, xx))
    step = torch.cat([yx * x - xx * y, yx * y - yy * x], 1) / (yy * xx - yx * yx).clamp_min(1e-20)
    return step.clamp(-MAX_STEP, MAX_STEP)


def _whole_motion(before: Tensor, after: Tensor) -> Tensor:
    """The motion of a whole frame in whole pixels, by phase correlation: ``(2,)``."""
    planes = [frame.mean((0, 1)) for frame in (before, after)]
    height, width = planes[0].shape
    down, across = (torch.hann_window(n, False, dtype=before.dtype, device=before.device) for n in (height, width))
    window = down[:, None] * across
    first, second = (torch.fft.rfft2((plane - plane.mean()) * window) for plane in planes)
    product = second * first.conj()
    best = torch.fft.irfft2(product / product.abs().clamp_min(1e-9), (height, width)).flatten().argmax()
    size = torch.tensor([height, width], device=before.device)
    place = torch.stack([best // width, best % width])
    return torch.where(place > size // 2, place - size, place).to(before)


def _sampled(frame: Tensor, offset: Tensor, mode: str) -> tuple[Tensor, Tensor]:
    """A frame ``(1, C, H, W)`` at pixels moved by offsets ``(B, 2, H, W)``, and whether these are inside."""
    height, width = frame.shape[2:]
    y = torch.arange(height, device=frame.device)[:, None] + offset[:, 0]
    x = torch.arange(width, device=frame.device) + offset[:, 1]
    inside = (y >= -0.5) & (y <= height - 0.5) & (x >= -0.5) & (x <= width - 0.5)
    grid = torch.stack([(2 * x + 1) / width - 1, (2 * y + 1) / height - 1], -1)
    every = frame.expand(len(offset), -1, -1, -1)
    return F.grid_sample(every, grid, mode, "border", align_corners=False), inside[:, None]


def _nearby(flow: Tensor, distance: int) -> list[Tensor]:
    """The flow at pixels above, below, left and right, in a distance."""
    (height, width), far = flow.shape[2:], 2 * distance
    padded = F.pad(flow, (distance,) * 4, mode="replicate")
    starts = ((0, distance), (far, distance), (distance, 0), (distance, far))
    return [padded[..., top : top + height, left : left + width] for top, left in starts]


def _mean(planes: Tensor, reach: int) -> Tensor:
    return F.avg_pool2d(F.pad(planes, (reach,) * 4, mode="replicate"), 2 * reach + 1, 1)
