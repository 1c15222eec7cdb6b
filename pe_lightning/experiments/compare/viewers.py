"""What the page's script needs to show reconstructions, and what the page says about them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pe_lightning.experiments.compare.album import Album, Shown
from pe_lightning.experiments.compare.keys import MISSING
from pe_lightning.experiments.compare.pictures import Pair
from pe_lightning.experiments.compare.reading import Signal, printable
from pe_lightning.experiments.compare.rows import Curve
from pe_lightning.experiments.compare.scores import Scores

__all__ = ["about", "viewers_of", "why_none"]


def viewers_of(scores: Scores, album: Album) -> list[dict[str, object]]:
    """The viewers of a table: one for its pictures, one for its rows, where there are any."""
    kinds: dict[str, list[dict[str, Any]]] = {}
    for signal in _signals(scores, album):
        first = next((shown for shown in _of(signal, scores, album) if not isinstance(shown, str)), None)
        if first is not None:
            kind = "pictures" if isinstance(first, Pair) else "rows"
            kinds.setdefault(kind, []).append(_describe(signal, first, scores, album))
    return [{"kind": kind, "signals": signals} for kind, signals in kinds.items()]


def about(scores: Scores, album: Album) -> str:
    """How many signals, frames and samples of a table are shown, and what was done to them."""
    total = len(scores.baseline.runs[0].signals) if scores.baseline.runs else 0
    count = max(len(album.shown[run]) for run in scores.runs)
    text = [f"{count} of {total} signals."] if count < total else []
    shown = [item for signal in _signals(scores, album) for item in _of(signal, scores, album)]
    pairs = [item for item in shown if isinstance(item, Pair)]
    text += dict.fromkeys(_about_frames(pair) for pair in pairs if len(pair.frames) < pair.count)
    if pairs:
        if album.scale < 1:
            text.append(f"Shown at {album.scale:.0%} of their size; --megapixels raises that.")
        text.append("Error maps are of the pictures as shown: clamped to [0, 1], 8 bits.")
    curves = [item for item in shown if isinstance(item, Curve)]
    if curves:
        text.append("Values are those that the model is fitted to, not clamped; error is reconstruction − ground truth.")
    steps = sorted({curve.step for curve in curves if curve.step > 1})
    if steps:
        every = ", ".join(map(str, steps))
        text.append(f"Long rows are drawn as the range of every {every} samples, without the trained ones.")
    text += {f"Channels 1 to {curve.channels} of {curve.total}." for curve in curves if curve.channels < curve.total}
    return " ".join(text)


def why_none(scores: Scores, album: Album) -> str:
    """Why no reconstruction is shown; empty if none was asked for."""
    shown = [item for signal in _signals(scores, album) for item in _of(signal, scores, album)]
    return printable(", ".join(dict.fromkeys(item for item in shown if isinstance(item, str))))


def _about_frames(pair: Pair) -> str:
    what = "frames" if pair.media == "video" else "slices along the first axis"
    numbers = ", ".join(str(frame + 1) for frame in pair.frames)
    return f"{len(pair.frames)} of {pair.count} {what}: {numbers}."


def _signals(scores: Scores, album: Album) -> list[Signal]:
    return list(dict.fromkeys(signal for run in scores.runs for signal in album.shown[run]))


def _of(signal: Signal, scores: Scores, album: Album) -> list[Shown | str]:
    return [album.shown[run][signal] for run in scores.runs if signal in album.shown[run]]


def _describe(signal: Signal, first: Shown, scores: Scores, album: Album) -> dict[str, Any]:
    """A signal, and a tile per run, in the order of the table."""
    names = {run: row.name for row in scores.rows if not row.interpolation for run in row.runs}
    tiles = []
    for run in scores.runs:
        shown, psnr = album.shown[run].get(signal), run.scores("test/psnr").get(signal)
        if shown is None:
            continue
        if not isinstance(shown, str) and _layout(shown) != _layout(first):
            shown = "not of the size of the others"
        tile: dict[str, Any] = {"run": run.label, "group": names[run], "psnr": MISSING if psnr is None else f"{psnr:.2f} dB"}
        if isinstance(shown, str):
            tiles.append({**tile, "reason": printable(shown)})
        elif isinstance(shown, Pair):
            tiles.append({**tile, "truth": shown.truth, "pictures": shown.reconstruction, "note": printable(shown.note)})
        else:
            tiles.append({**tile, "values": shown.values, "error": shown.error, "note": printable(shown.note)})
    described: dict[str, Any] = {"name": str(signal), "rate": first.rate, "count": first.count, "tiles": tiles}
    if isinstance(first, Pair):
        what = "frame" if first.media == "video" else "slice"
        return described | {"size": first.size, "frames": first.frames, "what": what}
    curves = [shown for shown in _of(signal, scores, album) if isinstance(shown, Curve)]
    return described | {
        "step": first.step,
        "channels": first.channels,
        "truth": _first([curve.truth for curve in curves]),
        "trained": _first([curve.trained for curve in curves]),
    }


def _layout(shown: Shown) -> tuple[object, ...]:
    if isinstance(shown, Pair):
        return "pictures", shown.frames, shown.count, shown.size
    return "rows", shown.count, shown.step, shown.channels


def _first(keys: Sequence[str]) -> str:
    return next((key for key in keys if key), "")
