"""Number 1: how soon a run has its first batch, when its video was decoded before."""

from __future__ import annotations

import statistics
import tempfile
import time

from pe_lightning.signals import Storage
from pe_lightning.training import VideoDataModule

CLIP = "samples://bigbuckbunny"


def cache(repeats: int) -> None:
    """Prints the table; each turn starts with an empty cache."""
    seconds(None)  # imports, and the clip's own pages
    firsts, seconds_ = [], []
    for _ in range(repeats):
        with tempfile.TemporaryDirectory() as folder:
            firsts.append(seconds(folder))
            seconds_.append(seconds(folder))
    first, second = statistics.median(firsts), statistics.median(seconds_)
    ratio = statistics.median(a / b for a, b in zip(firsts, seconds_, strict=True))
    print(f"\n{CLIP}, preset papers: from VideoDataModule(...) to the first training batch, medians of {repeats}")
    print(f"first run {first:.2f} s, second run {second:.3f} s: {ratio:.0f} times faster", flush=True)


def seconds(folder: str | None) -> float:
    """Seconds to the first batch; without a cache if there is no folder."""
    began = time.perf_counter()
    data = VideoDataModule(CLIP, preset="papers", storage=Storage(cache="auto" if folder else "off", cache_dir=folder))
    data.prepare_data()
    data.setup("fit")
    next(iter(data.train_dataloader()))
    return time.perf_counter() - began
