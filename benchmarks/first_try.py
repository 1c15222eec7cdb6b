"""What the first command gives: ``pe-lightning fit FILE`` beside the best interpolation.

    python benchmarks/first_try.py                            # docs/samples.md: 5 CPU minutes

Plucked strings (Karplus and Strong, 1983), the phantom as NIfTI, synthesised sounds, and clips from photographs of
scikit-image, each also with every second frame seen. Of the others every second sample of each axis is seen.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import nibabel
import numpy as np
import skimage
import soundfile
import tifffile
from harness import machine, make_parser, print_row, print_titles, run
from scipy.ndimage import shift
from scipy.signal import chirp, lfilter

from pe_lightning.errors import show_interpolation
from pe_lightning.results.signal_files import write_signal
from pe_lightning.signals.batches import SignalInfo
from pe_lightning.signals.sources.paths import sample_path

KINDS = ("sound", "volume", "tones", "clips")


def strings(seconds: float, rate: int) -> np.ndarray:
    """A melody of plucked strings, ``(N,)`` in [-1, 1]."""
    random, sound = np.random.default_rng(0), np.zeros(round((seconds + 2) * rate))
    for start in range(0, round(seconds * rate), rate // 4):
        period = round(rate / (220 * 2 ** (random.choice([0, 2, 4, 5, 7, 9, 11, 12]) / 12)))
        pluck = np.zeros(rate)
        pluck[:period] = random.uniform(-1, 1, period)
        feedback = np.zeros(period + 2)
        feedback[[0, period, period + 1]] = 1, -0.498, -0.498
        sound[start : start + rate] += lfilter([1], feedback, pluck) * np.linspace(1, 0, rate)
    return sound[: round(seconds * rate)] / (1.1 * np.abs(sound).max())


def tones(count: int = 11025, rate: int = 22050) -> dict[str, np.ndarray]:
    """Kinds of sound, ``(N,)`` each."""
    seconds, voice = np.arange(count) / rate, lfilter([1], [1, -0.95], (np.arange(count) % 150 == 0).astype(float))
    for formant, width in ((500, 60), (1500, 90), (2500, 120), (3500, 180)):
        pole = np.exp(-np.pi * width / rate)
        voice = lfilter([1], [1, -2 * pole * np.cos(2 * np.pi * formant / rate), pole**2], voice)
    tone = np.sin(2 * np.pi * 2900 * seconds)
    return {"chirp with a tone of 2.9 kHz": chirp(seconds, 100, 0.5, 2000) + tone, "voiced speech": voice}


def clips() -> dict[str, np.ndarray]:
    """Four clips of 32 frames of 96 x 96 pixels from photographs, ``(T, H, W)`` in [0, 1]."""
    coffee, astronaut = (getattr(skimage.data, name)().mean(-1) / 255 for name in ("coffee", "astronaut"))
    random = np.random.default_rng(0)

    def pan(picture: np.ndarray, pixels: float) -> np.ndarray:
        area = picture[100:300, 100:300]
        return np.stack([shift(area, (-0.4 * pixels * t, -pixels * t), order=5)[20:116, 20:116] for t in range(32)])

    still = np.repeat(coffee[None, 100:196, 100:196], 32, 0)
    light = 0.8 + 0.2 * np.sin(1.2 * np.arange(32))[:, None, None]
    made = {"still camera": still, "changing light": still * light}
    made |= {"0.2 pixels a frame": pan(astronaut, 0.2), "2 pixels a frame": pan(coffee, 2)}
    return {name: (clip + random.normal(0, 0.002, clip.shape)).clip(0, 1) for name, clip in made.items()}


def cases(folder: Path) -> Iterator[tuple[str, str, list[str]]]:
    """Kind, name and arguments of ``pe-lightning fit``."""
    sound = strings(5, 44100)
    soundfile.write(folder / "strings.wav", np.stack([sound, 0.7 * np.roll(sound, 300)], 1), 44100, subtype="PCM_16")
    yield "sound", "strings, 5 s at 44.1 kHz", [str(folder / "strings.wav")]
    phantom = np.moveaxis(tifffile.imread(sample_path("samples://phantom3d", "video")), 0, -1)
    nibabel.save(nibabel.Nifti1Image(phantom, np.eye(4)), folder / "phantom.nii.gz")
    yield "volume", "phantom.nii.gz", [str(folder / "phantom.nii.gz")]
    for number, (label, sound) in enumerate(tones().items()):
        soundfile.write(folder / f"tone{number}.wav", sound / np.abs(sound).max(), 22050, subtype="FLOAT")
        yield "tones", label, [str(folder / f"tone{number}.wav")]
    for number, (label, frames) in enumerate(clips().items()):
        info = SignalInfo(("clip",), frames.shape, 1, media="video")
        clip = write_signal(folder / f"clip{number}", frames[..., None].astype(np.float32), info)
        for stride, note in ((2, ""), ([2, 1, 1], ", every second frame")):
            yield "clips", label + note, [str(clip), "--data.resize=null", f"--data.sampling.stride={stride}"]


def fit(arguments: list[str], folder: Path) -> dict[str, Any]:
    """The content of ``metrics.json``."""
    before = set(folder.glob("runs/*/*/metrics.json"))
    run("fit", *arguments, "--wandb.enabled=false", folder=folder, PE_LIGHTNING_CACHE=str(folder / "cache"))
    (path,) = set(folder.glob("runs/*/*/metrics.json")) - before
    metrics: dict[str, Any] = json.loads(path.read_text())
    return metrics


if __name__ == "__main__":
    parser = make_parser(__doc__)
    parser.add_argument("--only", nargs="+", choices=KINDS, default=KINDS)
    options = parser.parse_args()
    print(machine(), flush=True)
    print_titles("signal", "fit, dB", "linear, dB", "best interpolation", "dB")
    with tempfile.TemporaryDirectory() as name:
        for kind, label, arguments in cases(Path(name)):
            if kind in options.only:
                found = fit(arguments, Path(name))
                scores = {method: row["test/psnr"] for method, row in found["baselines"].items()}
                rows = {method: score for method, score in scores.items() if score is not None}
                best = max(rows, key=rows.__getitem__)
                shown = show_interpolation(best, len(found["grid"]))
                print_row(label, found["test/psnr"], rows["linear"], shown, rows[best])
