r"""Missing samples by several methods, mixed with weights that follow their errors at imitated gaps near by.

Copies of the missing samples are moved over known ones, these are hidden too, and every member predicts them. The second
moments of the members' errors are smoothed in space and shrunk towards their mean; the weights of a missing sample are those
of least variance that sum to one, without negative ones. With few imitated gaps such weights may be worse than the best
member alone: the mixture passes into it as far as that pays at the hidden samples. The errors of the mixture, with weights
from the other copies, are its score and calibrate its standard deviations by the distance from known samples. Errors in
copies of a regular pattern at a larger spacing are carried over to its own, and errors in lost frames and slices follow the
change between the known ones around each. Lost slabs at an end, with known ones on one side, have weights of their own.

Far from all known samples members have nothing to continue: they pass into a smooth continuation.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.ndimage import distance_transform_edt
from torch import Tensor

from pe_fill.members.continuation import continuation
from pe_fill.members.member import FAILURES, Gaps, Member
from pe_fill.members.table import MEMBERS, is_dense
from pe_fill.mixture.carried_errors import carried_over, slab_changes
from pe_fill.mixture.copies import Hidden
from pe_fill.mixture.gaps import one_sided, part_around, parts_of_wanted, slab_axis
from pe_fill.mixture.weights import LEAST_BIN, BinnedDeviations, Moments, best_share, least_variance, local_moments
from pe_lightning.linalg.threads import side_by_side, sized_threads

Array = NDArray[np.float64]

PRIOR_GAPS = 25.0
"""Gaps of mean width that the mean of the moments over all imitated gaps counts as."""
AT_ONCE = 1 << 17
"""Samples whose weights are computed at a time."""
LEAST_SHARE = 0.06
"""Mean weight at hidden samples below which a member is left out."""
FAR = {1: (96.0, 192.0), 2: (10.0, 16.0), 3: (10.0, 16.0)}
"""Distances from known samples between which members pass into a smooth continuation, by number of axes."""


class HeldOut(NamedTuple):
    """Predictions of hidden samples at row-major ``places`` ``(H,)``, from the known samples ``(N_1, ..., N_D)``.

    ``mixed`` are predictions of the mixture with the weights of the other copies, ``(H, C)``; ``members`` are ``(M, H, C)``.
    Their errors are multiplied by ``carried`` ``(H, 1)``.
    """

    known: Tensor
    places: Tensor
    mixed: Tensor
    members: Tensor
    carried: Tensor


@dataclass(frozen=True)
class GapMixture:
    """A filled signal.

    Args:
        values: ``(N_1, ..., N_D, C)``; known samples are unchanged.
        std: Standard deviations at missing samples, zero elsewhere, ``(N_1, ..., N_D, C)``.
        weights: Mean weight of each member over the missing samples; zero of members that are left out.
        errors: Root mean squared error of each member and of the ``mixture`` at the hidden samples.
        held_out: Of each held-out fit.
        failed: Members that cannot be computed from the known samples, with the reasons; they have no weight.
    """

    values: Tensor
    std: Tensor
    weights: dict[str, float]
    errors: dict[str, float]
    held_out: list[HeldOut]
    failed: dict[str, str] = field(default_factory=dict)


@sized_threads(0)
def fill_gaps(
    values: Tensor,
    known: Tensor,
    members: Sequence[str],
    hidden: Sequence[Hidden],
    periodic: Sequence[bool] = (),
    others: Mapping[str, Member] | None = None,
    wanted: Tensor | None = None,
) -> GapMixture:
    """Predicts missing samples of ``(N_1, ..., N_D, C)`` by a mixture of members, computed side by side.

    ``others`` are members by name besides :data:`~pe_fill.members.table.MEMBERS`. ``hidden`` are known samples that
    each held-out fit hides (:func:`~pe_fill.mixture.copies.imitated_gaps`). ``wanted`` are the missing samples that are
    predicted, by default all.
    """
    wanted = ~known if wanted is None else wanted
    kinds = _by_sides(known, wanted, hidden)
    return _together(kinds, [_mixture(values, known, members, kind, periodic, others or {}) for kind in kinds])


class _Kind(NamedTuple):
    """Wanted samples with known ones on so many sides, and hidden ones that imitate them, by the number of the copy.

    ``axis`` is the axis along which slabs are lost.
    """

    axis: int | None
    sides: int
    wanted: Tensor
    hidden: dict[int, Hidden]


def _by_sides(known: Tensor, wanted: Tensor, hidden: Sequence[Hidden]) -> list[_Kind]:
    """Lost slabs with known ones on one side apart from others, where each are imitated."""
    axis = slab_axis(known.cpu().numpy())
    every = [_Kind(axis, 2, wanted, dict(enumerate(hidden)))]
    if axis is None:
        return every

    def is_single(seen: Tensor) -> Tensor:
        return torch.from_numpy(one_sided(seen.cpu().numpy(), axis)).to(seen.device)

    kinds, single = list[_Kind](), is_single(known)
    singles = [torch.zeros_like(known) for _ in hidden]
    for some, place in zip(hidden, singles, strict=True):
        part = _hidden_part(some, axis)
        place[part] = is_single((known & ~some.mask)[part])
    for sides in (1, 2):
        scored = [some.scored & (place if sides == 1 else ~place) for some, place in zip(hidden, singles, strict=True)]
        imitating = {n: hidden[n]._replace(scored=some) for n, some in enumerate(scored) if bool(some.any())}
        kinds.append(_Kind(axis, sides, wanted & (single if sides == 1 else ~single), imitating))
    kinds = [kind for kind in kinds if bool(kind.wanted.any())]
    enough = all(sum(int(some.scored.sum()) for some in kind.hidden.values()) >= LEAST_BIN for kind in kinds)
    return kinds if kinds and enough else every


def _hidden_part(some: Hidden, axis: int) -> tuple[slice, ...]:
    """The part of a grid, whole along an axis, in which a copy hides samples; the lattice of a pattern."""
    if some.step > 1:
        return some.part
    places = some.mask.nonzero()
    part = [slice(first, last + 1) for first, last in zip(places.amin(0).tolist(), places.amax(0).tolist(), strict=True)]
    part[axis] = slice(None)
    return tuple(part)


def _together(kinds: Sequence[_Kind], mixtures: Sequence[GapMixture]) -> GapMixture:
    """One mixture, of lost slabs of both kinds."""
    result, counts = mixtures[0], [int(kind.wanted.sum()) for kind in kinds]
    if len(kinds) == 1:
        return result
    values, std, held_out = result.values.clone(), result.std.clone(), dict[int, HeldOut]()
    for kind, mixture in zip(kinds, mixtures, strict=True):
        values[kind.wanted], std[kind.wanted] = mixture.values[kind.wanted], mixture.std[kind.wanted]
        for number, some in zip(kind.hidden, mixture.held_out, strict=True):
            if (other := held_out.get(number)) is not None:
                places, mixed, carried = (torch.cat([other[n], some[n]]) for n in (1, 2, 4))
                some = HeldOut(some.known, places, mixed, torch.cat([other.members, some.members], 1), carried)
            held_out[number] = some

    def mean(numbers: Sequence[dict[str, float]], power: float) -> dict[str, float]:
        rows = [[each[name] ** power for each in numbers] for name in numbers[0]]
        return dict(zip(numbers[0], (np.average(rows, 1, counts) ** (1 / power)).tolist(), strict=True))

    weights, errors = mean([each.weights for each in mixtures], 1), mean([each.errors for each in mixtures], 2)
    failed = {name: why for mixture in mixtures for name, why in mixture.failed.items()}
    return GapMixture(values, std, weights, errors, list(held_out.values()), failed)


def _mixture(
    values: Tensor,
    known: Tensor,
    members: Sequence[str],
    kind: _Kind,
    periodic: Sequence[bool],
    others: Mapping[str, Member],
) -> GapMixture:
    hidden, wanted, dense = list(kind.hidden.values()), kind.wanted, is_dense(known)
    values = torch.where(known[..., None], values, values[known].mean(0))
    flat = values.flatten(0, -2)
    where = [some.scored.flatten().nonzero()[:, 0] for some in hidden]
    truths = [flat[index] for index in where]

    def gaps(seen: Tensor, part: tuple[slice, ...], wanted: Tensor, names: Sequence[str]) -> Gaps:
        inside = torch.where(seen[part][..., None], values[part], 0)
        step = max(along.step or 1 for along in part)
        return Gaps(inside, seen[part], wanted[part], periodic if step == 1 else (), dense, names, step)

    parts = [part_around(some.scored, periodic, some.part) for some in hidden]
    tasks = [gaps(known & ~some.mask, part, some.scored, members) for some, part in zip(hidden, parts, strict=True)]
    methods, failed = MEMBERS | dict(others), dict[str, str]()
    predictions, distances = _predict(tasks, methods, failed)
    if not tasks:  # nothing can be hidden: what fails is known by the gaps themselves
        _predict([gaps(known, part_around(wanted, periodic), wanted, members)], methods, failed)
    if len(failed) == len(members):
        flat[wanted.flatten()] = continuation(values, known, 1)[wanted].to(flat)
        weights, std = dict.fromkeys(members, 0.0), torch.zeros_like(values)
        return GapMixture(flat.reshape(values.shape), std, weights, {}, [], failed)
    carried = [torch.ones_like(truth[:, :1]) for truth in truths]
    sizes, axis = torch.ones(1).to(flat), kind.axis
    if hidden and hidden[0].step > 1:
        squares = torch.cat([a - b for a, b in zip(predictions, truths, strict=True)], 1).square().mean((1, 2))
        place = tuple(slice(along.start, along.stop) for along in hidden[0].part)
        factor = carried_over(values[place], known[place], hidden[0].step, float(squares.min()), kind.sides)
        carried = [factor * ones for ones in carried]
    elif axis is not None and known.ndim > 2:
        shown = [(_hidden_part(some, axis), known & ~some.mask) for some in hidden]
        if all(slab_axis(seen[part].cpu().numpy()) == axis for part, seen in shown):
            sizes = slab_changes(values, known, axis).sqrt()
            usual = sizes.expand(known.shape)[wanted].square().mean().sqrt()
            sizes = sizes / usual
            changes = [slab_changes(values[part], seen[part], axis).expand(known.shape) for part, seen in shown]
            carried = [usual / change[some.scored].sqrt()[:, None] for change, some in zip(changes, hidden, strict=True)]
    if any(bool((some != 1).any()) for some in carried):
        pairs = zip(truths, carried, predictions, strict=True)
        predictions = [truth + some * (found - truth) for truth, some, found in pairs]
    width = 4 * float(np.concatenate(distances).mean()) - 2 if distances else 1.0  # of gaps as long as the grid
    prior_count = PRIOR_GAPS * max(width, 1.0) ** known.ndim
    kept = [number for number, name in enumerate(members) if name not in failed]
    single = kept[0]
    if predictions:
        every = torch.cat(predictions, 1)
        single = kept[int((every[kept] - torch.cat(truths)).square().mean((1, 2)).argmin())]
    while True:
        errors = [(some[kept] - truth, index) for some, truth, index in zip(predictions, truths, where, strict=True)]
        moments = [Moments(*each, known.shape) for each in errors]
        mixed, variances, shares = [], [], np.zeros(len(kept))
        for number, (predicted, index) in enumerate(zip(predictions, where, strict=True)):
            values_there, variance, share = _mixed(
                predicted[kept], moments[:number] + moments[number + 1 :] or moments, index, prior_count
            )
            mixed.append(values_there)
            variances.append(variance)
            shares += share / len(predictions)
        worth = [member for member, share in zip(kept, shares, strict=True) if share >= LEAST_SHARE or member == single]
        if worth == kept or not predictions:
            break
        kept = worth

    flat, std, shares, trust = flat.clone(), torch.zeros_like(flat), np.zeros(len(kept)), 1.0
    if mixed:
        trust = best_share(torch.cat(mixed), every[single], torch.cat(truths))
        mixed = [found[single].lerp(some, trust) for found, some in zip(predictions, mixed, strict=True)]
        left = torch.cat([a - b for a, b in zip(mixed, truths, strict=True)]).abs().cpu().numpy()
        scale = BinnedDeviations(left, np.concatenate(variances), np.concatenate(distances))
    num_missing = max(1, int(wanted.sum()))
    for some in parts_of_wanted(wanted):
        task = gaps(known, part_around(some, periodic), some, [members[number] for number in kept])
        (found,), (distance,) = _predict([task], methods, failed)
        missing = some.flatten().nonzero()[:, 0]
        made, variance, share = _mixed(found, moments, missing, prior_count)
        flat[missing] = found[kept.index(single)].lerp(made, trust)
        shares += share * len(missing) / num_missing
        if mixed:
            std[missing] = torch.from_numpy(scale(variance, distance)).to(std) * sizes.expand(known.shape)[some][:, None]
    shares = trust * shares + (1 - trust) * (np.array(kept) == single)
    errors_of = dict[str, float]()
    if mixed:
        every = torch.cat([every, torch.cat(mixed)[None]])
        squares = (every - torch.cat(truths)).square().mean((1, 2))
        errors_of = dict(zip([*members, "mixture"], squares.sqrt().tolist(), strict=True))
    return GapMixture(
        flat.reshape(values.shape),
        std.reshape(values.shape),
        dict.fromkeys(members, 0.0) | {members[number]: float(share) for number, share in zip(kept, shares, strict=True)},
        errors_of,
        [
            HeldOut(known & ~h.mask, at, mix, each, factor)
            for h, at, mix, each, factor in zip(hidden, where, mixed, predictions, carried, strict=True)
        ],
        failed,
    )


def _mixed(predicted: Tensor, moments: Sequence[Moments], index: Tensor, prior_count: float) -> tuple[Tensor, Array, Array]:
    """The mixture of members ``(M, H, C)``: values ``(H, C)``, their variance ``(H,)``, and mean weights ``(M,)``."""
    values, variances, total = torch.empty_like(predicted[0]), np.empty(len(index)), np.zeros(len(predicted))
    for some in torch.split(torch.arange(len(index)), AT_ONCE):
        weights, variances[some.numpy()] = least_variance(local_moments(moments, index[some], len(predicted), prior_count))
        values[some] = torch.einsum("hm,mhc->hc", torch.from_numpy(weights).to(predicted), predicted[:, some])
        total += weights.sum(0)
    return values, variances, total / max(len(index), 1)


def _predict(
    gaps: Sequence[Gaps], methods: Mapping[str, Member], failed: dict[str, str]
) -> tuple[list[Tensor], list[Array]]:
    """Predictions of members at the wanted samples of each, ``(M, H, C)``, and distances of these from known ones, ``(H,)``.

    A number that is not finite, and a member that fails, which is added to ``failed``, is replaced by the median of the
    members.
    """

    def predict(item: tuple[str, Gaps]) -> Tensor:
        name, some = item
        try:
            return methods[name](some)[some.wanted]
        except FAILURES as error:
            failed[name] = str(error).partition("\n")[0]
            return some.values.new_full((int(some.wanted.sum()), some.values.shape[-1]), torch.nan)

    members = gaps[0].members if gaps else ()
    items = [(name, some) for name in members for some in gaps]
    # members of one signal wait for each other: each divides its own blocks among the threads
    every = [predict(item) for item in items] if len(gaps) < 2 else side_by_side(predict, items, gaps[0].values.device)
    predictions, distances = [], []
    for number, some in enumerate(gaps):
        found = torch.stack(every[number :: len(gaps)])
        finite = found.where(found.isfinite(), torch.nan)
        found = torch.where(found.isfinite(), found, finite.nanmedian(0).values.nan_to_num(0.0))
        distance: Array = distance_transform_edt((~some.known).cpu().numpy())[some.wanted.cpu().numpy()]
        near, far = FAR[some.known.ndim]
        if len(distance) and distance.max() > near:
            share = torch.from_numpy((distance - near) / (far - near)).to(found).clamp(0, 1)[:, None]
            orders = torch.tensor([methods[name].order for name in members])
            for order in sorted({1, 2} & set(orders.tolist())):
                smooth = continuation(some.values, some.known, order)[some.wanted]
                found[orders == order] = found[orders == order].lerp(smooth, share)
        predictions.append(found)
        distances.append(distance)
    return predictions, distances
