"""A network trained on other pictures, alone and mixed with the adaptive fit: docs/prior.md.

    python benchmarks/prior.py                          # pictures that scikit-image ships, words, rasters, noise
    python benchmarks/prior.py --paths natural16        # your own folder of pictures
    python benchmarks/prior.py --only strides,time
    python benchmarks/prior.py --ship runs/patches-PatchRegression-gau/1/checkpoints/last.ckpt --name pictures
    python benchmarks/prior.py --ship runs/patches-CellRegression-cells/1/checkpoints/last.ckpt --name cells

Known are every second sample of each axis (or every third, every fourth); PSNR in dB of the others, ``rest``, and of those
between four known ones, ``odd``. Predictions are not clamped. No picture of the tables was trained on.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import json
import math
import os
import platform
import resource
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import enlarging
import matplotlib
import numpy as np
import skimage.data
import torch
from lightning.pytorch import Trainer
from matplotlib import pyplot as plt
from PIL import Image
from scipy.ndimage import gaussian_filter
from sparse import plucked_strings, sound
from torch import Tensor

from pe_lightning.encodings.bank import AnisotropicKernels
from pe_lightning.estimators.priors import PRIOR_KEY, card, read_prior, shipped_file
from pe_lightning.evaluation.baselines import interpolate
from pe_lightning.networks.local import LocalFrames, LocalGrid, LocalPrior
from pe_lightning.networks.mlp import MLP
from pe_lightning.results.checkpoint_files import locate, read_checkpoint
from pe_lightning.signals.batches import GridBatch
from pe_lightning.signals.blocks import grid_axes
from pe_lightning.signals.sampling import RandomSampling
from pe_lightning.solvers.adaptive import AdaptiveGrid
from pe_lightning.solvers.adaptive_line import AdaptiveLine
from pe_lightning.solvers.prior_weight import MixedGrid, held_out_weight
from pe_lightning.training import Adaptive, ImageDataModule, TensorDataModule, VideoDataModule
from pe_papers.tasks.drawing import HELD_OUT_FONTS, draw_words
from pe_papers.tasks.patches import PHOTOGRAPHS, PatchDataModule, PatchRegression

SECTIONS = ("pictures", "others", "strides", "clip", "rows", "missing", "time", "encoders", "weights", "figure")
ENCODERS: dict[str, dict[str, Any]] = {
    "gau, 3": {"encoder": {"name": "gau", "num_features": 3, "sigma": 0.27}},
    "gau, 5": {},
    "gau, 7": {"encoder": {"name": "gau", "num_features": 7, "sigma": 0.115}},
    "tri, 5": {"encoder": {"name": "tri", "num_features": 5}},
    "bspline, 5": {"encoder": {"name": "bspline", "num_features": 5}},
    "linf, 6": {"encoder": {"name": "linf", "num_features": 6, "sigma": 1.0}},
    "rff, 6": {"encoder": {"name": "rff", "num_features": 6, "sigma": 1.0}},
    "gau, 5, 64 wide": {"width": 64},
    "gau, 5, 128 wide": {"width": 128},
    "gau, 5, 256 wide": {"width": 256},
}
"""Arguments of PatchRegression that are compared, by name."""
RIDGE = 2.0**-10
Pictures = dict[str, list[Tensor]]


class Methods:
    """The methods that are compared: known samples and their distance -> a field."""

    def __init__(self, prior: str | LocalPrior) -> None:
        self.prior, self.bank = (
            read_prior(prior) if isinstance(prior, str) else prior,
            AnisotropicKernels("laplace", 2, 12, (2, 6)),
        )

    def adaptive(self, values: Tensor, step: Sequence[float], grid: Sequence[int]) -> AdaptiveGrid:
        """``Adaptive`` without a prior."""
        return AdaptiveGrid(self.bank, values, grid, (0, 0), step, 0.8, RIDGE)

    def local(self, values: Tensor, step: Sequence[float], grid: Sequence[int]) -> LocalGrid:
        """``Local``."""
        return LocalGrid(self.prior, values, grid, (0, 0), step)

    def both(self, values: Tensor, step: Sequence[float], grid: Sequence[int]) -> MixedGrid:
        """``Adaptive`` with the prior."""

        def alone(known: Tensor, wide: Sequence[float]) -> AdaptiveGrid:
            return self.adaptive(known, wide, grid)

        def local(known: Tensor, wide: Sequence[float]) -> LocalGrid:
            return self.local(known, wide, grid)

        fields = self.adaptive(values, step, grid), self.local(values, step, grid)
        return MixedGrid(*fields, held_out_weight(alone, local, fields, values, grid, (0, 0), step), values)


def psnr(error: Tensor) -> float:
    """PSNR of errors in dB."""
    return -10 * math.log10(max(float(error.double().square().mean()), 1e-30))


def scores(methods: Methods, truth: Tensor, stride: int) -> dict[str, tuple[float, float]]:
    """``rest`` and ``odd`` of every method, and the weight of the prior."""
    known = truth[::stride, ::stride].contiguous()
    grid, step = truth.shape[:2], (stride, stride)
    axes = grid_axes(grid)
    rest, odd = torch.ones(grid, dtype=torch.bool), torch.zeros(grid, dtype=torch.bool)
    rest[::stride, ::stride] = False
    odd[1::2, 1::2] = True
    batch = GridBatch(tuple(x[::stride] for x in axes), known[None])
    mixed = methods.both(known, step, grid)
    found = {
        "bicubic": interpolate("bicubic", batch, axes)[0],
        "Adaptive": mixed.fit.predict(axes),
        "Local *": mixed.prediction.predict(axes),
    }
    weight = mixed.weight
    found["Adaptive, prior *"] = torch.lerp(found["Adaptive"], found["Local *"], weight)
    result = {name: (psnr((values - truth)[rest]), psnr((values - truth)[odd])) for name, values in found.items()}
    return {**result, "weight": (weight, weight)}


def table(methods: Methods, pictures: Pictures, stride: int = 2) -> dict[str, dict[str, float]]:
    """Prints a row per kind of picture: the mean of every method and the worst picture; returns the means of ``rest``."""
    names = ["bicubic", "Adaptive", "Local *", "Adaptive, prior *"]
    print(f"every sample of {stride}; * has seen other pictures")
    print(f"{'':26}" + "".join(f"{name:>20}" for name in names) + "   weight   prior against none: mean, worst")
    summary = {}
    for kind, some in pictures.items():
        found = [scores(methods, picture, stride) for picture in some]
        cells = [f"{np.mean([f[n][0] for f in found]):9.2f} /{np.mean([f[n][1] for f in found]):6.2f}" for n in names]
        gains = [f[names[3]][0] - f[names[1]][0] for f in found]
        weight = float(np.mean([f["weight"][0] for f in found]))
        print(
            f"{kind + f' ({len(some)})':26}" + "".join(f"{cell:>20}" for cell in cells)
            + f"   {weight:6.2f}   {np.mean(gains):+.2f} {min(gains):+.2f}",
            flush=True,
        )  # fmt: skip
        summary[kind] = {name: round(float(np.mean([f[name][0] for f in found])), 2) for name in names}
    return summary


def unit(values: object) -> Tensor:
    """An array ``(H, W)`` or ``(H, W, C)`` in [0, 1]: bytes divided by 255, else from its minimum to its maximum."""
    array = np.asarray(values)
    scaled = array / 255 if array.dtype == np.uint8 else (array - array.min()) / np.ptp(array)
    tensor = torch.from_numpy(np.ascontiguousarray(scaled, dtype=np.float32))
    return tensor if tensor.ndim == 3 else tensor[..., None]


def held_out_pictures(count: int) -> Pictures:
    """Photographs and text of scikit-image that were left out of training, and words in fonts that were."""
    found = {name: [unit(getattr(skimage.data, name)())] for name in ("astronaut", "camera", "page", "text")}
    words = [unit(draw_words(np.random.default_rng(1000 + k))) for k in range(count)]
    return {**found, "words, other fonts": words}


def other_pictures() -> Pictures:
    """What the prior was not made for: rasters, a medical slice, noise, textures, single frequencies."""
    folder = Path(matplotlib.get_data_path()) / "sample_data"
    random = np.random.default_rng(0)
    y, x = np.mgrid[:256, :256]
    with gzip.open(folder / "s1045.ima.gz") as file:
        slice_of_mri = np.frombuffer(file.read(), np.uint16).reshape(256, 256).astype(float)
    astronaut = unit(skimage.data.astronaut())[:256, :256]
    noise = torch.randn(astronaut.shape, generator=torch.Generator().manual_seed(0))
    return {
        "elevation": [unit(np.load(folder / "jacksboro_fault_dem.npz")["elevation"])],
        "sea floor": [unit(np.load(folder / "topobathy.npz")["topo"])],
        "slice of a head (MRI)": [unit(slice_of_mri)],
        "white noise": [unit(random.random((192, 192)))],
        "rough textures": [unit(gaussian_filter(random.standard_normal((200, 200)), s)) for s in (0.7, 1, 1.3, 1.6, 2)],
        "single frequencies": [unit(np.sin(2 * np.pi * f * (0.8 * x + 0.6 * y))) for f in (0.05, 0.1, 0.14, 0.18, 0.24)],
        "photograph, noise 10, 25": [astronaut + sigma / 255 * noise for sigma in (10, 25)],
    }


def trained(arguments: dict[str, Any], steps: int, data: PatchDataModule) -> LocalPrior:
    """A prior after a short training."""
    torch.manual_seed(0)
    module = PatchRegression(**arguments)
    quiet = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False, "enable_model_summary": False}
    trainer = Trainer(accelerator="cpu", max_steps=steps, num_sanity_val_steps=0, limit_val_batches=0, **quiet)
    trainer.fit(module, data)
    return module.prior.requires_grad_(False)


def encoders(steps: int, figure: Path | None) -> None:
    """Gain over bicubic interpolation by encoder and width after ``steps`` steps, and by the number of steps."""
    data = PatchDataModule()
    truths = [picture for some in held_out_pictures(2).values() for picture in some]

    def gain(prior: LocalPrior) -> float:
        each = []
        for truth in truths:
            known, grid = truth[::2, ::2].contiguous(), truth.shape[:2]
            rest, axes = torch.ones(grid, dtype=torch.bool), grid_axes(grid)
            rest[::2, ::2] = False
            bicubic = interpolate("bicubic", GridBatch(tuple(x[::2] for x in axes), known[None]), axes)[0]
            local = LocalGrid(prior, known, grid, (0, 0), (2, 2)).predict(axes)
            each.append(psnr((local - truth)[rest]) - psnr((bicubic - truth)[rest]))
        return float(np.mean(each))

    found = {}
    for name, arguments in ENCODERS.items():
        prior = trained(arguments, steps, data)
        found[name] = gain(prior)
        print(f"{name:20} {prior.num_params:6} numbers, {steps} steps: {found[name]:+.2f} dB over bicubic", flush=True)
    by_steps = {count: gain(trained({}, count, data)) for count in (steps // 8, steps // 2, 2 * steps)}
    by_steps |= {steps: found["gau, 5"], card("pictures")["steps"]: gain(read_prior("pictures"))}
    print("gau, 5, by steps: " + ", ".join(f"{count}: {by_steps[count]:+.2f}" for count in sorted(by_steps)))
    if figure is not None:
        fig, (left, right) = plt.subplots(1, 2, figsize=(9, 3), layout="constrained")
        left.barh(list(found), list(found.values()))
        left.invert_yaxis()
        left.set_xlabel(f"dB over bicubic, {steps} steps")
        right.semilogx(sorted(by_steps), [by_steps[count] for count in sorted(by_steps)], "o-")
        right.set_xlabel("steps (gau, 5)")
        right.set_ylabel("dB over bicubic")
        fig.savefig(figure, dpi=110)


def weights(steps: int) -> None:
    """The rule of the weight beside the best weights, of pictures that the prior was not trained on.

    Two priors are trained, each on half of the photographs, and scored on the other half.
    """
    photographs, found = PatchDataModule().pictures["photographs"], dict[str, list[tuple[float, float, float, float]]]()
    count = len(photographs) // 2  # they are followed by the same at half size
    for half in (0, 1):
        data = PatchDataModule()
        data.pictures["photographs"] = [p for k, p in enumerate(photographs) if k % count % 2 != half]
        methods = Methods(trained({}, steps, data))
        kinds = {"photographs": [unit(p) for k, p in enumerate(photographs) if k % count % 2 == half]}
        if half == 0:
            kinds |= held_out_pictures(4) | other_pictures()
        for kind, pictures in kinds.items():
            for picture in pictures:
                truth = picture[tuple(slice(max(0, n - 448) // 2, max(0, n - 448) // 2 + 448) for n in picture.shape[:2])]
                known, grid, axes = truth[::2, ::2].contiguous(), truth.shape[:2], grid_axes(truth.shape[:2])
                mixed = methods.both(known, (2, 2), grid)
                rest = torch.ones(grid, dtype=torch.bool)
                rest[::2, ::2] = False
                own, other = ((field.predict(axes) - truth)[rest].double() for field in (mixed.fit, mixed.prediction))
                best = float((own * (own - other)).sum() / ((own - other).square().sum() + 1e-12))
                best = min(1.0, max(0.0, best))
                gains = [psnr(torch.lerp(own, other, w)) - psnr(own) for w in (mixed.weight, best)]
                found.setdefault(kind, []).append((mixed.weight, best, *gains))
    for kind, each in found.items():
        weight, best, gain, gain_of_best = np.mean(each, 0)
        print(f"{kind} ({len(each)}): weight {weight:.2f}, best {best:.2f}; gain over Adaptive {gain:+.3f}, worst ", end="")
        print(f"{min(row[2] for row in each):+.3f}, with the best weights {gain_of_best:+.3f}", flush=True)


class _FramesBetween:
    """A field of every second frame, as one of all: frames are interpolated by Keys' cubic convolution."""

    def __init__(self, frames: LocalFrames, ratio: float) -> None:
        self.frames, self.ratio = frames, ratio

    def predict(self, axes: Sequence[Tensor]) -> Tensor:
        return self.frames.predict([axes[0] * self.ratio, *axes[1:]])

    def at(self, points: Tensor) -> Tensor:
        raise NotImplementedError


def clip() -> None:
    """Clips of which every frame, or every second one, is known at every second pixel: the prior frame by frame."""
    for last, step in ((56, (1, 2, 2)), (72, (2, 2, 2))):
        movie = VideoDataModule("samples://bigbuckbunny", frames=(40, last), resize=(192, 192))
        clip_at(movie.dataset.in_memory()[0].float(), step)


def clip_at(truth: Tensor, step: tuple[int, int, int]) -> None:
    """One clip ``(T, H, W, C)`` of :func:`clip`."""
    methods, bank = Methods("pictures"), AnisotropicKernels("laplace", 3, 12, (2, 6))
    grid, first = truth.shape[:3], (0, 0, 0)
    known = truth[:: step[0], ::2, ::2].contiguous()
    rest, axes = torch.ones(grid, dtype=torch.bool), grid_axes(grid)
    rest[:: step[0], ::2, ::2] = False

    def alone(values: Tensor, wide: Sequence[float]) -> AdaptiveGrid:
        return AdaptiveGrid(bank, values, grid, first, wide, 0.8, RIDGE)

    def local(values: Tensor, wide: Sequence[float]) -> _FramesBetween:
        count = len(values)
        frames = LocalFrames(methods.prior, values, (count, *grid[1:]), first, (1, *wide[1:]), (1, 2))
        return _FramesBetween(frames, grid[0] / (count * wide[0]))

    fields = alone(known, step), local(known, step)
    cube, prior = (field.predict(axes) for field in fields)
    weight = held_out_weight(alone, local, fields, known, grid, first, step, (1, 2))
    found = {"Adaptive": cube, "Local *": prior, "Adaptive, prior *": torch.lerp(cube, prior, weight)}
    if step[0] == 1:
        frames = [methods.adaptive(frame, (2, 2), grid[1:]).predict(axes[1:]) for frame in known]
        found["Adaptive, frames"] = torch.stack(frames)
    print(f"clip of {tuple(grid)}, every {step}: ", end="")
    print(", ".join(f"{name} {psnr((v - truth)[rest]):.2f}" for name, v in found.items()), end="")
    print(f"; weight of the prior {weight:.2f}", flush=True)


def train_perceptron(inputs: Tensor, targets: Tensor, steps: int, width: int) -> torch.nn.Module:
    """A perceptron ``inputs -> width -> width -> 1`` of normalised patches ``(P, n)`` and targets ``(P,)``."""
    torch.manual_seed(0)
    network = MLP(inputs.shape[1], 1, 2, width)
    optimizer = torch.optim.Adam(network.parameters(), 2e-3)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    for _ in range(steps):
        some = torch.randint(len(inputs), (1024,))
        loss = (network(inputs[some])[:, 0] - targets[some]).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
    return network


def rows() -> None:
    """Sound, every second sample known: Adaptive, and a perceptron of 8 samples that was trained on the first half."""
    for name, signal in (("sound of the clip", sound()), ("plucked strings", plucked_strings(6))):
        whole = signal[:262144, 0]
        half = len(whole) // 4 * 2
        predictions = {}

        def patches(part: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
            """Normalised samples around every middle, its value and cubic convolution likewise, and the scale."""
            near = part[::2].unfold(0, 8, 1)[:-1]
            truth, keys = part[7::2][: len(near)], near[:, 2:6] @ torch.tensor([-1.0, 9, 9, -1]) / 16
            deviation = near.std(1) + 1e-4
            return (near - keys[:, None]) / deviation[:, None], (truth - keys) / deviation, keys, deviation

        inputs, targets, _, scale_of_training = patches(whole[:half])
        chosen = torch.multinomial((scale_of_training**2).double(), 200_000, replacement=True)
        network = train_perceptron(inputs[chosen], targets[chosen], 3000, 64)
        part = whole[half:]
        inputs, _, keys, deviation = patches(part)
        with torch.no_grad():
            predictions["perceptron *"] = keys + deviation * network(inputs)[:, 0]
        middle, count = part[7::2][: len(keys)], len(part)
        line = AdaptiveLine(part[::2, None].contiguous(), count, 0, 2, RIDGE).predict([torch.arange(count) / count])[:, 0]
        predictions["Adaptive"] = line[7::2][: len(keys)]
        predictions["bicubic"] = keys
        predictions["mean of both *"] = (predictions["Adaptive"] + predictions["perceptron *"]) / 2
        found = {key: psnr(value - middle) for key, value in predictions.items()}
        print(f"{name}: " + ", ".join(f"{key} {value:.2f}" for key, value in found.items()), flush=True)


def missing() -> None:
    """Pictures of which some pixels are known at random places: Adaptive, and a perceptron with the mask as a channel."""
    side, reach = 9, 4
    generator = torch.Generator().manual_seed(0)
    for share in (0.25, 0.5):
        pictures = [
            torch.from_numpy(p[..., -1].copy()).float() / 255 for some in PatchDataModule().pictures.values() for p in some
        ]

        def normalised(patches: Tensor, mask: Tensor) -> tuple[Tensor, Tensor, Tensor]:
            """Known values and mask ``(P, 162)``, their weighted mean near the middle, and their deviation."""
            at = torch.arange(-reach, reach + 1)
            near = torch.exp(-(at[:, None] ** 2 + at**2) / 2.0) * mask
            mean = (near * patches).sum((1, 2)) / near.sum((1, 2)).clamp_min(1e-9)
            inner = mask * (patches - mean[:, None, None])
            deviation = (inner.square().sum((1, 2)) / mask.sum((1, 2)).clamp_min(1)).sqrt() + 0.02
            return torch.cat([(inner / deviation[:, None, None]).flatten(1), mask.flatten(1)], 1), mean, deviation

        drawn = []
        for picture in pictures:
            y, x = (torch.randint(n - side, (1500,), generator=generator) for n in picture.shape)
            at = torch.arange(side)
            drawn.append(picture[(y[:, None] + at)[:, :, None], (x[:, None] + at)[:, None]])
        patches = torch.cat(drawn)
        mask = (torch.rand(patches.shape, generator=generator) < share).float()
        mask[:, reach, reach] = 0
        inputs, mean, deviation = normalised(patches, mask)
        weight = deviation.square().double() * (deviation > 0.03)
        chosen = torch.multinomial(weight, 150_000, replacement=True, generator=generator)
        targets = (patches[:, reach, reach] - mean) / deviation
        network = train_perceptron(inputs[chosen], targets[chosen], 4000, 128)
        words = unit(draw_words(np.random.default_rng(1000)))[150:278, 150:278, 1:2]
        for name, truth in (("astronaut", unit(skimage.data.astronaut())[:128, 160:288, 1:2]), ("words", words)):
            model = Adaptive(pretrained="none")
            data = TensorDataModule(truth[None], sampling=RandomSampling(share))
            quiet = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False}
            Trainer(accelerator="cpu", max_steps=0, enable_model_summary=False, **quiet).fit(model, data)
            with torch.no_grad():
                fit = model.predict_grid(grid_axes(truth.shape[:2]))[0, ..., 0]
                known = data.split.train_mask()[0]
                padded, held = (
                    torch.nn.functional.pad(plane, [reach] * 4).unfold(0, side, 1).unfold(1, side, 1)[~known]
                    for plane in (truth[..., 0] * known, known.float())
                )
                inputs, mean, deviation = normalised(padded, held)
                prediction = mean + deviation * network(inputs)[:, 0]
            middle, fitted = truth[..., 0][~known], fit[~known]
            scores = {"perceptron *": prediction, "Adaptive": fitted, "mean of both *": (prediction + fitted) / 2}
            shown = ", ".join(f"{key} {psnr(value - middle):.2f}" for key, value in scores.items())
            print(f"{name}, {share:.0%} of the pixels known: {shown}", flush=True)


def figure(path: Path) -> None:
    """Parts of a photograph and of words: truth, bicubic, Adaptive without and with the prior."""
    methods, rows = Methods("pictures"), []
    words = held_out_pictures(1)["words, other fonts"][0]
    for truth, (top, left) in ((unit(skimage.data.astronaut()), (96, 190)), (words, (150, 200))):
        known, grid = truth[::2, ::2].contiguous(), truth.shape[:2]
        axes = grid_axes(grid)
        bicubic = interpolate("bicubic", GridBatch(tuple(x[::2] for x in axes), known[None]), axes)[0]
        alone, both = (make(known, (2, 2), grid).predict(axes) for make in (methods.adaptive, methods.both))
        part = (slice(top, top + 72), slice(left, left + 96))
        rows.append(torch.cat([values[part] for values in (truth, bicubic, alone, both)], 1))
    picture = (torch.cat(rows).clamp(0, 1) * 255).round().byte().numpy()
    image = Image.fromarray(picture)
    image.resize((image.width * 3, image.height * 3), Image.Resampling.NEAREST).save(path, quality=88)


def large() -> None:
    """Seconds of a core and peak memory of the prior at three sizes, colour; at the smallest the least of five times."""
    methods = Methods("pictures")
    tile = unit(skimage.data.astronaut())
    for height, width, repeats in ((512, 512, 5), (1356, 2040, 1), (4096, 4096, 1)):
        picture = tile.repeat(-(-height // 512), -(-width // 512), 1)[:height, :width]
        known, grid, step = picture[::2, ::2].contiguous(), (height, width), (2, 2)
        print(f"{height} x {width}:", end="")
        for name, method in (
            ("Adaptive", methods.adaptive),
            ("Local", methods.local),
            ("Adaptive with a prior", methods.both),
        ):
            before, seconds = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, math.inf
            for _ in range(repeats):
                began = time.process_time()
                method(known, step, grid).predict(grid_axes(grid))
                seconds = min(seconds, time.process_time() - began)
            after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
            print(f" {name} {seconds:.2f} s, peak of memory {(after - before) / 1024:.0f} MiB higher;", end="", flush=True)
        print(f" peak {after / 1024:.0f} MiB", flush=True)


def ship(checkpoint: str, name: str) -> None:
    """Writes the prior of a checkpoint of a run as a file of the package, with its card."""
    path = locate(checkpoint)
    content = read_checkpoint(path)
    recipe = "cells" if "factors" in content[PRIOR_KEY] else "pictures"
    state = {key: value for key, value in content["state_dict"].items() if key.startswith("prior.")}
    target = shipped_file(name)
    target.parent.mkdir(exist_ok=True)
    torch.save({PRIOR_KEY: content[PRIOR_KEY], "state_dict": state}, target)
    run = json.loads((path.parents[1] / "metrics.json").read_text())
    described = {
        "sha256": hashlib.sha256(target.read_bytes()).hexdigest(),
        "command": f"pe-lightning fit --config prior/{recipe}",
        "seed": 0,
        "steps": run["steps"],
        "num_params": run["num_params"],
        "versions": run["versions"],
        "data": {"drawn": 100, "photographs": {package: list(names) for package, names in PHOTOGRAPHS.items()}},
        "data_fingerprint": run["data_fingerprint"],
        "held_out_rows_psnr": dict(zip(run["signals"], (round(v, 2) for v in run["test/psnr_per_signal"]), strict=True)),
        "held_out": ["astronaut", "camera", "page", "text", *HELD_OUT_FONTS],
        "licences": "docs/prior.md",
    }  # fmt: skip
    target.with_suffix(".json").write_text(json.dumps(described, indent=1) + "\n")
    card.cache_clear()
    if recipe == "cells":
        described["held_out_pictures_enlarged_by_2_psnr"] = enlarging.table(enlarging.shipped(), 2, ["Adaptive", "fill *"])
    else:
        described["held_out_pictures_rest_psnr"] = table(Methods(name), held_out_pictures(4))
    target.with_suffix(".json").write_text(json.dumps(described, indent=1) + "\n")


def main(arguments: list[str] | None = None) -> None:
    """Runs the sections."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="pictures,others", help="sections, separated by commas: " + ", ".join(SECTIONS))
    parser.add_argument("--paths", nargs="*", help="pictures of one size or a folder, in place of those of scikit-image")
    parser.add_argument("--count", type=int, default=4, help="pictures of words")
    parser.add_argument("--steps", type=int, default=1500, help="training steps of the sections encoders and weights")
    parser.add_argument("--figure", type=Path, help="file for the figure of the sections encoders and figure")
    parser.add_argument("--pretrained", default="pictures", help="a shipped prior or a checkpoint")
    parser.add_argument("--ship", help="a checkpoint: make its prior one of the package, and do nothing else")
    parser.add_argument("--name", default="pictures", help="name of the prior that is shipped")
    options = parser.parse_args(arguments)
    if options.ship:
        ship(options.ship, options.name)
        return
    chosen = options.only.split(",")
    if not set(chosen) <= set(SECTIONS):
        parser.error(f"--only takes {', '.join(SECTIONS)}; got {options.only}")
    print(f"prior.py {options.only}: {platform.machine()}, {os.cpu_count()} cores, {torch.get_num_threads()} thread(s)")
    run: dict[str, Callable[[], object]] = {}
    methods = Methods(options.prior)
    own = {Path(options.paths[0]).name: list(ImageDataModule(options.paths).values)} if options.paths else None
    run["pictures"] = lambda: table(methods, own or held_out_pictures(options.count))
    run["others"] = lambda: table(methods, other_pictures())
    run["strides"] = lambda: [table(methods, own or held_out_pictures(options.count), stride) for stride in (3, 4)]
    run["time"] = large
    run["encoders"] = lambda: encoders(options.steps, options.figure)
    run["weights"] = lambda: weights(options.steps)
    run |= {"clip": clip, "rows": rows, "missing": missing}
    run["figure"] = lambda: figure(options.figure or Path("prior.jpg"))
    for section in chosen:
        run[section]()


if __name__ == "__main__":
    main()
