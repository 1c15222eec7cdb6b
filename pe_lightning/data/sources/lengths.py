"""One length for all 1-D signals of a set."""

from __future__ import annotations

from collections.abc import Sequence

from pe_lightning.errors import InputError

__all__ = ["check_length", "one_length"]


def check_length(length: int | None) -> None:
    """Raises :class:`InputError` unless ``length`` is an integer of at least 2, or ``None``."""
    if length is not None and (isinstance(length, bool) or not isinstance(length, int) or length < 2):
        raise InputError(f"length is the number of first samples to keep, an integer >= 2; got {length!r}")


def one_length(lengths: Sequence[tuple[str, int]], length: int | None, remedy: str = "") -> int:
    """How many samples of each signal are kept.

    Args:
        lengths: What messages call each signal, or file, and its number of samples.
        length: How many first samples to keep; ``None``: all of them, if all have as many.
        remedy: What else could be set, for the message: ``"or resize"``.

    Raises:
        InputError: If the signals differ in length, or one has fewer samples than ``length``, or than 2.
    """
    check_length(length)
    name, shortest = min(lengths, key=lambda entry: entry[1])
    if shortest < 2:
        raise InputError(f"{name!r} has {shortest} sample(s); a signal needs at least 2. Remove it from the paths")
    if length is not None:
        if length > shortest:
            raise InputError(f"length {length} is more than the {shortest} samples of {name!r}; set length: {shortest}")
        return length
    groups: dict[int, list[str]] = {}
    for given, count in lengths:
        groups.setdefault(count, []).append(given)
    if len(groups) > 1:
        listed = "; ".join(
            f"{count}: {', '.join(names[:3])}{f' and {len(names) - 3} more' if len(names) > 3 else ''}"
            for count, names in list(groups.items())[:8]
        )
        more = f"; and {len(groups) - 8} more lengths" if len(groups) > 8 else ""
        raise InputError(
            f"the signals have {len(groups)} different lengths (in samples), but they are fitted together and share one "
            f"grid. {listed}{more}. Set length: {shortest} to keep the first {shortest} samples of each{remedy}"
        )
    return shortest
