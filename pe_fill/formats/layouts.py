"""Arrays of files as signals, and back."""

from __future__ import annotations

from collections.abc import Sequence

from pe_lightning.errors import InputError
from pe_lightning.signals.axes import describe_layouts, plausible_layouts
from pe_lightning.signals.raw import AnyArray


def array_as_signals(values: AnyArray, label: str, axes: int | None = None) -> AnyArray:
    """A view of an array as signals ``(S, N_1, ..., N_D, C)``, if its shape has one plausible reading."""
    layouts = [each for each in plausible_layouts(values.shape) if axes in (None, len(each.grid))]
    if not layouts and axes is not None and values.ndim == axes + 2:
        return values
    if not layouts and values.ndim == axes and min(values.shape) > 1:  # such as three frames, which are no colours
        return values[None, ..., None]
    if len(layouts) != 1:
        advice = "say how many axes a signal has, such as axes: 2" if axes is None else f"got axes {axes}"
        raise InputError(f"{describe_layouts(label, values.shape)}; {advice}")
    return values.reshape(layouts[0].shape)


def signals_as_array(values: AnyArray, shape: Sequence[int], signals: Sequence[int]) -> AnyArray:
    """Signals ``(S, N_1, ..., N_D, C)``, of any number of samples, in the axes of the array that they come from."""
    axes = len(signals) - 2
    channels = [] if tuple(shape[len(shape) - axes :]) == tuple(signals[1:-1]) else [values.shape[-1]]
    return values.reshape(*shape[: len(shape) - axes - len(channels)], *values.shape[1:-1], *channels)
