"""``pe-lightning compare --out`` on many runs: seconds, size of the page, and how soon a browser has it usable.

    python benchmarks/compare.py                       # 20 runs x 16 pictures of 256 x 256
    python benchmarks/compare.py --runs 4 --side 512
    python benchmarks/compare.py --runs 4 --pictures 1 --frames 128     # a video of 128 frames
    python benchmarks/compare.py --runs 4 --pictures 1 --samples 1000000

The runs are synthetic: crops of scikit-image's photographs as truth, moving ones for a video, lines of them for rows,
blurred by another width for every run. The browser is headless Chromium through selenium; without them that part is left
out. "tables": the script has made the tables sortable; "pictures": those of the first signal are decoded, or its plot is
there. The last two lines were measured while other programs ran.

Two shared cores, Chromium 150, Python 3.11, medians of three:

====================================  =====  ======  =======  ======  ========
runs x signals                        table  report  page     tables  pictures
====================================  =====  ======  =======  ======  ========
20 x 16 of 256 x 256                  0.5 s  6.9 s   25.0 MB  0.10 s  0.33 s
4 x 16 of 512 x 512                   0.4 s  4.2 s   14.8 MB  0.08 s  0.31 s
4 x 1 of 128 x 256 x 256              0.9 s  5.1 s    8.8 MB  0.09 s  0.23 s
4 x 1 of 1,000,000                    1.2 s  2.7 s    3.2 MB  0.10 s  0.40 s
====================================  =====  ======  =======  ======  ========
"""

from __future__ import annotations

import argparse
import json
import shutil
import tempfile
from pathlib import Path

import numpy as np
import numpy.typing as npt
from quiet import run
from scipy.ndimage import gaussian_filter
from skimage import data

from pe_lightning.results.reconstructions import write_reconstructions
from pe_lightning.signals.batches import SignalInfo
from pe_lightning.signals.raw import ValueRange

FLAGS = [
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
]
PHOTOGRAPHS = ("astronaut", "coffee", "chelsea", "rocket")


def crops(count: int, side: int) -> npt.NDArray[np.float32]:
    """Squares of photographs, ``(count, side, side, 3)`` in [0, 1]."""
    generator = np.random.default_rng(0)
    found = []
    for place in range(count):
        photograph = getattr(data, PHOTOGRAPHS[place % len(PHOTOGRAPHS)])()
        while min(photograph.shape[:2]) < side:
            photograph = photograph.repeat(2, 0).repeat(2, 1)
        top, left = (generator.integers(n - side + 1) for n in photograph.shape[:2])
        found.append(photograph[top : top + side, left : left + side])
    return np.stack(found).astype(np.float32) / 255


def films(count: int, frames: int, side: int) -> npt.NDArray[np.float32]:
    """Windows that move over larger crops, ``(count, frames, side, side, 3)``."""
    large = crops(count, 2 * side)
    starts = [round(place * side / max(1, frames - 1)) for place in range(frames)]
    return np.stack([large[:, start : start + side, start : start + side] for start in starts], axis=1)


def rows(count: int, samples: int) -> npt.NDArray[np.float32]:
    """The pixels of a crop in their order, ``(count, samples, 1)``."""
    side = int(np.ceil(samples**0.5))
    return crops(count, side)[..., :1].reshape(count, -1, 1)[:, :samples]


def write_run(folder: Path, truth: npt.NDArray[np.float32], width: float) -> None:
    """A run directory whose reconstructions are the truth blurred by ``width`` pixels."""
    made = gaussian_filter(truth, (0, *[width] * (truth.ndim - 2), 0))
    psnr = [-10 * float(np.log10(np.square(a - b).mean())) for a, b in zip(made, truth, strict=True)]
    metrics = {
        "schema": 1,
        "test/psnr": sum(psnr) / len(psnr),
        "test/psnr_per_signal": psnr,
        "fit_seconds": 1 + width,
        "steps": 0,
        "num_params": 10_000,
        "num_signals": len(psnr),
        "grid": list(truth.shape[1:-1]),
        "signals": [f"crop {k}" for k in range(len(psnr))],
        "encoder": {"name": "gau", "sigma": width},
        "protocol": "rest",
        "sampling": {"name": "grid", "stride": 2},
        "data_fingerprint": "0" * 16,
        "baselines": {},
        "seed": 0,
    }
    media = {1: "array", 2: "image", 3: "video"}[truth.ndim - 2]
    names, grid, scaling = tuple(metrics["signals"]), tuple(truth.shape[1:-1]), ValueRange("uint8", (0.0,), (255.0,))
    info = SignalInfo(names, grid, truth.shape[-1], scaling, 25.0 if media == "video" else None, media)
    write_reconstructions(folder / "reconstructions", metrics, made, truth, info)
    (folder / "metrics.json").write_text(json.dumps(metrics))
    (folder / "config.yaml").write_text(f"model: {{encoder: {{sigma: {width}}}}}\n")


def open_in_browser(page: Path) -> dict[str, float]:
    """Milliseconds from the start of the navigation until the page can be used; nothing if there is no browser."""
    browser, driver = shutil.which("chromium"), shutil.which("chromedriver")
    try:
        from selenium import webdriver
    except ImportError:
        return {}
    if browser is None or driver is None:
        return {}
    options = webdriver.ChromeOptions()
    options.binary_location = browser
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        for flag in [*FLAGS, f"--user-data-dir={profile}"]:
            options.add_argument(flag)
        chrome = webdriver.Chrome(options=options, service=webdriver.ChromeService(driver))
        try:
            chrome.get(page.as_uri())
            return dict(
                chrome.execute_async_script(
                    """const done = arguments[0];
                    Promise.all([...document.querySelectorAll(".view img")].map((image) => image.decode())).then(() => {
                      const marks = performance.getEntriesByType("mark").map((mark) => [mark.name, mark.startTime]);
                      done({...Object.fromEntries(marks), pictures: performance.now()});
                    });"""
                )
            )
        finally:
            chrome.quit()


def main() -> None:
    """Prints one line per repetition."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--pictures", type=int, default=16)
    parser.add_argument("--side", type=int, default=256)
    parser.add_argument("--frames", type=int, default=0)
    parser.add_argument("--samples", type=int, default=0)
    parser.add_argument("--repeat", type=int, default=3)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        root = Path(place)
        if options.samples:
            truth = rows(options.pictures, options.samples)
        elif options.frames:
            truth = films(options.pictures, options.frames, options.side)
        else:
            truth = crops(options.pictures, options.side)
        for number in range(1, options.runs + 1):
            write_run(root / "runs" / "gau" / str(number), truth, round(0.2 + 0.1 * number, 1))
        command = ["compare", str(root / "runs")]
        print(f"{options.runs} runs x {options.pictures} signals of {' x '.join(map(str, truth.shape[1:-1]))}")
        for _ in range(options.repeat):
            _, table = run(*command, folder=root)
            _, report = run(*command, "--out", str(root / "report"), folder=root)
            page = root / "report" / "index.html"
            marks = open_in_browser(page)
            shown = ", ".join(f"{name} {value / 1000:.2f} s" for name, value in marks.items()) or "no browser"
            print(f"table {table:.1f} s, report {report:.1f} s, page {page.stat().st_size / 1e6:.1f} MB, {shown}")


if __name__ == "__main__":
    main()
