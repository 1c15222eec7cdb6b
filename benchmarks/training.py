"""Training under a Trainer: a step of a fit against a loop of plain PyTorch, one thread, processor time.

    python benchmarks/training.py                           # the steps of small and large fits; minutes
    python benchmarks/training.py --only networks           # every kind of network

A fit and its loop take turns, an epoch each, in one process: the first warms up, the least of the others is printed, and one
more is profiled. No hook is called between the steps of an epoch, so that steps are taken as in any fit. Validation and
checkpoints are left out: the loops have none.

- ``steps``: one signal of 3 channels and 32 x 32 or 256 x 256 trained samples. ``fit`` is a Trainer without logger and
  callbacks, ``command`` has the CSV log, the progress bar and the handler of Ctrl-C, as ``pe-lightning fit`` has; both log
  every 50 steps. Operations are calls of PyTorch's operators by ``torch.profiler``, without calls inside of them. The first
  row is an empty LightningModule with automatic optimisation: one parameter, whose sum is the loss.
- ``networks``: likewise, 64 x 64 trained samples. The loops train networks written here in plain PyTorch (WIRE in complex
  numbers), with the same number of weights, samples and steps; their features are computed once where ours are. Then the
  section ``scores``: the PSNR of fits with our defaults and of loops with rates, schedules and scaled targets written here,
  from the same weights: the central 64 x 64 pixels, all trained and scored, four layers of 64 units; mean over pictures and
  seeds.
- ``own``: the PSNR of own networks that are trained on values, and on scaled targets, likewise.
- ``compile``: a step of three networks with and without ``compile``, and the processor seconds of the compilation.
"""

from __future__ import annotations

import argparse
import itertools
import math
import os
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
from harness import PHOTOGRAPHS, files_of, make_parser, make_trainer, print_row, print_titles, psnr, run_sections, seconds_of
from lightning.pytorch import Callback, LightningModule
from torch import Tensor, nn
from torch.profiler import ProfilerActivity, profile
from torch.utils.data import DataLoader

from pe_lightning.encoders import HashGrid
from pe_lightning.networks import MLP
from pe_lightning.signals import Batching
from pe_lightning.training import (
    ComplexLinear,
    CoordinateModule,
    ImageDataModule,
    NetworkModule,
    SimpleMLP,
    TensorDataModule,
)
from pe_lightning.training.callbacks import GracefulStop, PSNRProgressBar, RunRecorder, WandbSettings

EPOCHS, PROFILED = 5, 50
ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "sine": lambda z: torch.sin(30 * z),
    "gabor": lambda z: torch.exp(20j * z - (10 * z).abs().square()),
    "finer": lambda z: torch.sin(30 * (z.detach().abs() + 1) * z),
    "gauss": lambda z: torch.exp(-((10 * z) ** 2)),
    "relu": torch.relu,
}
RATES = {"relu": 5e-3, "sine": 5e-4, "gabor": 1e-3, "finer": 5e-4, "gauss": 3e-3, "staf": 1e-3}


# -- plain PyTorch ----------------------------------------------------------------------------------------------------


class Staf(nn.Module):
    """Sums of five sines with trained amplitudes, frequencies and phases."""

    def __init__(self) -> None:
        super().__init__()
        self.terms = nn.Parameter(torch.rand(3, 5))

    def forward(self, z: Tensor) -> Tensor:
        return sum(b * torch.sin(w * z + phi) for w, phi, b in self.terms.unbind(1))


class Hash(nn.Module):
    """A hash grid of two axes with the sizes of another."""

    def __init__(self, encoder: HashGrid) -> None:
        super().__init__()
        self.levels = list(zip([cells[0] for cells in encoder.cells], encoder.hashed, strict=True))
        self.tables = nn.ParameterList(torch.rand(size, encoder.level_features) / 1e4 for size in encoder.sizes)

    def forward(self, x: Tensor) -> Tensor:
        features = []
        for table, (cells, hashed) in zip(self.tables, self.levels, strict=True):
            position = x * cells + 0.5
            left = position.long()
            share = position - left
            level: Any = 0
            for corner in torch.tensor([[0, 0], [0, 1], [1, 0], [1, 1]]).unbind():
                i, j = (left + corner).unbind(1)
                row = (i ^ j * 2654435761) % len(table) if hashed else i * (cells + 2) + j
                weight = (share - 1 + corner).abs().prod(1, keepdim=True)
                level = level + weight * table.index_select(0, row)
            features.append(level)
        return torch.cat(features, 1)


class Bare(nn.Module):
    """A perceptron in a few lines."""

    def __init__(self, activation: str, inputs: int, depth: int, width: int) -> None:
        super().__init__()
        width, dtype = (round(width / math.sqrt(2)), torch.cfloat) if activation == "gabor" else (width, torch.float32)
        sizes = [inputs, *[width] * depth, 3]
        types = [torch.float32, *[dtype] * depth]
        self.layers = nn.ModuleList(nn.Linear(*sizes[i : i + 2], dtype=types[i]) for i in range(depth + 1))
        is_staf = activation == "staf"
        self.activations = nn.ModuleList(Staf() for _ in range(depth)) if is_staf else [ACTIVATIONS[activation]] * depth

    def forward(self, x: Tensor) -> Tensor:
        for layer, activation in zip(self.layers, self.activations, strict=False):
            x = activation(layer(x))
        return self.layers[-1](x).real

    @torch.no_grad()
    def start_from(self, mlp: MLP) -> None:
        """Takes the weights of a perceptron of ours, which has real and imaginary parts in place of complex numbers."""
        for layer, own in zip(self.layers, mlp.layers, strict=True):
            weight, bias = own.weight, own.bias
            if weight.ndim == 3:
                weight, bias = torch.complex(*weight), torch.complex(*bias)
            elif layer.weight.is_complex():  # the last one, whose real part is taken
                weight = torch.complex(*(sign * part for sign, part in zip((1, -1), weight.chunk(2, 1), strict=True)))
            layer.weight.copy_(weight)
            layer.bias.copy_(bias)
        for activation, own in zip(self.activations, mlp.activations, strict=True):
            if isinstance(activation, Staf):
                activation.terms.copy_(torch.stack([own.frequencies, own.phases, own.amplitudes]))


def stepper(optimizer: torch.optim.Optimizer, loss: Callable[[], Tensor]) -> Callable[[], None]:
    """A step of a loop of plain PyTorch."""

    def step() -> None:
        optimizer.zero_grad()
        loss().backward()
        optimizer.step()

    return step


def linear_loop(module: ComplexLinear, data: TensorDataModule) -> Callable[[], None]:
    """Autograd through mode products, with the optimiser of the module, or momentum as its default has it."""
    first, second = module.encoding.axis_features(data.train_batch().axes)
    values = data.train_batch().values[0].permute(2, 0, 1)
    target = (values - values.mean((1, 2), keepdim=True)).contiguous()
    weight = torch.zeros_like(module.weight[0]).requires_grad_()
    optimizer = module.optimizer or partial(torch.optim.SGD, lr=0.1, momentum=0.9, nesterov=True, fused=True)
    return stepper(optimizer([weight]), lambda: nn.functional.mse_loss(first @ (weight @ second.T), target))


def network_loop(module: SimpleMLP, data: TensorDataModule) -> Callable[[], None]:
    """A perceptron, a hash grid before it, or an encoding of ours."""
    batch, encoding = data.train_batch(), module.networks.network_of(0).encoding
    coords, target = torch.cartesian_prod(*batch.axes), batch.values[0].flatten(0, 1)
    encoder = encoding.encoders[0]
    front = Hash(encoder) if isinstance(encoder, HashGrid) else encoding
    network = Bare(module.activation, encoding.num_features, module.depth, module.hidden_size)
    trained = list(front.parameters())
    features = None if trained else encoding(coords)
    optimizer = torch.optim.Adam([*network.parameters(), *trained], lr=1e-3, fused=module.activation != "gabor")
    return stepper(optimizer, lambda: (network(front(coords) if features is None else features) - target).square().mean())


def plain_psnr(module: SimpleMLP, data: ImageDataModule, steps: int) -> float:
    """PSNR of the trained samples after a loop from the weights of a module, with its defaults as written here."""
    batch, network, activation = data.train_batch(), module.networks.network_of(0), module.activation
    values, inputs = batch.values[0].flatten(0, 1), network.encoding(torch.cartesian_prod(*batch.axes))
    plain, rate, scaled = (
        Bare(activation, inputs.shape[1], module.depth, module.hidden_size),
        RATES[activation],
        activation != "relu",
    )
    plain.start_from(network.mlp)
    center = values.mean(0) if scaled else 0.0
    scale = (values - center).abs().max() if scaled else 1.0
    target = (values - center) / scale
    optimizer = torch.optim.Adam(plain.parameters(), rate, weight_decay=0.0 if scaled else 1e-8, fused=activation != "gabor")
    step = stepper(optimizer, lambda: (plain(inputs) - target).square().mean())
    for done in range(steps):
        optimizer.param_groups[0]["lr"] = rate * min(1, (steps - done) / (0.2 * steps)) if scaled else rate
        step()
    return psnr(scale * (plain(inputs) - target).detach())


# -- fits -------------------------------------------------------------------------------------------------------------


class Empty(LightningModule):
    """One parameter, whose sum is the loss."""

    def __init__(self) -> None:
        super().__init__()
        self.parameter = nn.Parameter(torch.zeros(1))

    def training_step(self, *_: Any) -> Tensor:
        return self.parameter.sum()

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.Adam(self.parameters(), fused=True)


class Turns(Callback):
    """A fit of several epochs, and a loop that takes as many steps after each of them; the last 50 are profiled."""

    def __init__(self, step: Callable[[], None], steps: int) -> None:
        self.step, self.steps = step, steps
        self.seconds: list[tuple[float, float]] = []
        self.operations: list[int] = []

    def run(self, module: LightningModule, data: Any, *callbacks: Callback, **options: Any) -> None:
        make_trainer(EPOCHS * self.steps + PROFILED, self, *callbacks, **options).fit(module, data)

    def on_train_epoch_start(self, *_: Any) -> None:
        self.profiler = profile(activities=[ProfilerActivity.CPU])
        if len(self.seconds) == EPOCHS:
            self.profiler.start()
        self.began = time.process_time()

    def on_train_epoch_end(self, *_: Any) -> None:
        fit = time.process_time() - self.began
        if len(self.seconds) < EPOCHS:
            self.seconds.append((fit, seconds_of(lambda: [self.step() for _ in range(self.steps)])))
            return
        self.profiler.stop()
        with profile(activities=[ProfilerActivity.CPU]) as profiler:
            for _ in range(PROFILED):
                self.step()
        self.operations = [round(operations(one) / PROFILED) for one in (self.profiler, profiler)]

    @property
    def microseconds(self) -> list[float]:
        """Of a step of the fit and of the loop."""
        return [1e6 * min(times) / self.steps for times in zip(*self.seconds[1:], strict=True)]


def operations(profiler: profile) -> int:
    """Operators that were called, without the operators that these call."""
    events = [event for event in profiler.events() or () if event.name.startswith("aten::")]
    return sum(event.cpu_parent is None or not event.cpu_parent.name.startswith("aten::") for event in events)


def adam(parameters: Any) -> torch.optim.Adam:
    """The papers' optimiser of linear layers."""
    return torch.optim.Adam(parameters, lr=0.1, weight_decay=1e-8, fused=True)


GAU = {"name": "gau", "num_features": "auto"}
NARROW, WIDE = partial(SimpleMLP, depth=2, hidden_size=32), partial(SimpleMLP, depth=3, hidden_size=128)
STEPS = {
    "linear layer, Adam": partial(ComplexLinear, GAU, optimizer=adam),
    "linear layer, its default optimiser": partial(ComplexLinear, GAU),
    "MLP on `rff`": partial(NARROW, {"name": "rff", "num_features": 64}),
    "SIREN": partial(NARROW, "identity", activation="sine"),
    "MLP on `hash`": partial(NARROW, "hash"),
}
NETWORKS = {
    "relu, rff": partial(WIDE, {"name": "rff", "num_features": 256}),
    **{f"{name}, identity": partial(WIDE, "identity", activation=name) for name in (*ACTIVATIONS, "staf") if name != "relu"},
    **{f"relu, {name}": partial(WIDE, name) for name in ("lff", "hash", "planes")},
}


def step_costs(models: Mapping[str, Callable[[], Any]], sizes: Sequence[int], options: argparse.Namespace) -> None:
    """A row for each size and model."""
    columns = ("fit, µs", "command, µs", "loop, µs", "fit / loop", "operations of the fit", "of the loop")
    print_titles("a step of", "trained samples", *columns)
    for size in sizes:
        steps = max(50, options.steps * 32 // size)
        data = TensorDataModule(torch.rand(1, 2 * size, 2 * size, 3), batching=Batching(steps_per_epoch=steps))
        data.prepare_data()
        for name, make in models.items():
            (module := make()).build_from(data)
            loop = (linear_loop if isinstance(module, ComplexLinear) else network_loop)(module, data)
            fit, command = Turns(loop, steps), Turns(loop, steps)
            fit.run(make(), data)
            with tempfile.TemporaryDirectory() as folder:
                recorder = RunRecorder(root=folder, table=False, wandb=WandbSettings(enabled=False))
                command.run(make(), data, recorder, GracefulStop(), PSNRProgressBar(), enable_progress_bar=True)
            plain = min(fit.microseconds[1], command.microseconds[1])
            times = fit.microseconds[0], command.microseconds[0], plain
            print_row(name, f"{size} x {size}", *map(round, times), times[0] / plain, *fit.operations)


def all_samples(path: str) -> ImageDataModule:
    """The central 64 x 64 pixels of a picture, all trained and scored."""
    return ImageDataModule(path, center_crop=64, sampling={"name": "grid", "stride": 1}, eval_mask="all")


def trained_psnr(module: CoordinateModule, data: ImageDataModule) -> float:
    """PSNR of the trained samples of a grid."""
    batch = data.train_batch()
    return psnr((module.predict_grid(batch.axes) - batch.values).detach())


def network_psnr(options: argparse.Namespace) -> None:
    """A row for each activation."""
    runs = [(path, seed) for path in files_of(options.pictures) for seed in range(options.seeds)]
    print(f"\nPSNR after {options.fit_steps} steps, mean of {len(runs)} fits")
    print_titles("activation", "rate", "fit, dB", "loop, dB", "fit - loop, dB", "standard error")
    for activation in options.activations:
        scores, rate = [], RATES[activation]
        for path, seed in runs:
            torch.manual_seed(seed)
            data = all_samples(path)
            encoder = {"name": "rff", "num_features": 128} if activation == "relu" else "identity"
            module = SimpleMLP(encoder, hidden_size=64, activation=activation)
            module.build_from(data)
            loop = plain_psnr(module, data, options.fit_steps)
            make_trainer(options.fit_steps).fit(module, data)
            scores.append((trained_psnr(module, data), loop))
        fits, loops = np.array(scores).T
        error = (fits - loops).std(ddof=1) / len(runs) ** 0.5 if len(runs) > 1 else math.nan
        print_row(activation, f"{rate:g}", fits.mean(), loops.mean(), (fits - loops).mean(), error)


class Waves(nn.Module):
    """Sines and cosines of five octaves of each coordinate."""

    def forward(self, x: Tensor) -> Tensor:
        phases = (2 * math.pi * 2 ** torch.arange(5) * x[..., None]).flatten(-2)
        return torch.cat([phases.sin(), phases.cos()], -1)


def own_psnr(options: argparse.Namespace) -> None:
    """A row for each own network."""
    shape = 3, 4, 64  # channels, layers, units
    made = {
        f"{kind} on sines": partial(lambda kind: nn.Sequential(Waves(), MLP(20, *shape, kind)), kind)
        for kind in ("relu", "tanh")
    }
    made |= {kind: partial(MLP, 2, *shape, kind) for kind in ("relu", "sine")}
    runs = [(path, seed) for path in files_of(options.pictures) for seed in range(options.seeds)]
    print(f"\nPSNR after {options.fit_steps} steps, mean of {len(runs)} fits")
    print_titles("own network", "values, dB", "scaled, dB")
    for name, make in made.items():
        scores: dict[bool, list[float]] = {False: [], True: []}
        for (path, seed), scaled in itertools.product(runs, scores):
            torch.manual_seed(seed)
            data = all_samples(path)
            module = NetworkModule(make(), scale_targets=scaled)
            make_trainer(options.fit_steps).fit(module, data)
            scores[scaled].append(trained_psnr(module, data))
        print_row(name, *(float(np.mean(some)) for some in scores.values()))


def networks(options: argparse.Namespace) -> None:
    """The costs and the scores."""
    step_costs(NETWORKS, (64,), options)
    network_psnr(options)


def small_and_large(options: argparse.Namespace) -> None:
    """The table after an empty module."""
    empty = Turns(lambda: None, options.steps)
    empty.run(Empty(), DataLoader(range(options.steps), batch_size=None))
    print(f"an empty LightningModule: {empty.microseconds[0]:,.0f} µs a step")
    step_costs(STEPS, options.sizes, options)


class Epochs(Callback):
    """Processor seconds at the end of each epoch, also of the compiler that is started."""

    def __init__(self) -> None:
        self.ends = [sum(os.times()[:4])]

    def on_train_epoch_end(self, *_: Any) -> None:
        self.ends.append(sum(os.times()[:4]))


def compiled(_: argparse.Namespace) -> None:
    """A row for each network and size."""
    columns = ("as it is, ms", "compiled, ms", "as it is / compiled", "compilation, s")
    print_titles("a step of", "trained samples", *columns)
    for name in ("relu, rff", "sine, identity", "relu, hash"):
        for size, steps in ((64, 20), (256, 4)):
            data = TensorDataModule(torch.rand(1, 2 * size, 2 * size, 3), batching=Batching(steps_per_epoch=steps))
            least: dict[bool, float] = {False: math.inf, True: math.inf}
            first = math.nan
            for turn in range(2):
                for option in least:
                    epochs = Epochs()
                    make_trainer(4 * steps, epochs).fit(NETWORKS[name](compile=option), data)
                    seconds = [end - began for began, end in itertools.pairwise(epochs.ends)]
                    least[option] = min(least[option], *seconds[1:])
                    first = seconds[0] if option and not turn else first
            plain, fast = (1000 * least[option] / steps for option in (False, True))
            print_row(name, f"{size} x {size}", plain, fast, plain / fast, first - least[True])


if __name__ == "__main__":
    parser = make_parser(__doc__)
    parser.add_argument("--sizes", type=int, nargs="+", default=[32, 256], help="trained samples per axis in steps")
    parser.add_argument("--steps", type=int, default=200, help="of an epoch at 32 x 32 samples; fewer of more samples")
    parser.add_argument("--pictures", nargs="+", default=[f"samples://{name}" for name in PHOTOGRAPHS], help="of networks")
    parser.add_argument("--seeds", type=int, default=3, help="of networks, for each picture")
    parser.add_argument("--activations", nargs="+", choices=RATES, default=list(RATES), help="whose PSNR is printed")
    parser.add_argument("--fit_steps", type=int, default=300, help="of networks, whose PSNR is printed")
    torch.set_num_threads(1)
    os.environ["KINETO_LOG_LEVEL"] = "99"  # each profile would print four lines
    others: dict[str, Any] = {"networks": networks, "scores": network_psnr, "own": own_psnr, "compile": compiled}
    run_sections(parser, {"steps": small_and_large, **others}, ["steps"])
