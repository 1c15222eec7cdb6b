"""Training under a Trainer: milliseconds per step against bare PyTorch loops, one thread, processor time.

    python benchmarks/training.py                           # minutes
    python benchmarks/training.py --only linear --steps 600
    python benchmarks/training.py --only tasks              # two minutes

A fit and its loop take turns, a block of steps each, in one process. Validation and its checkpoints are left out: the loops
have none.

- ``linear``: 256 x 256 trained samples of 3 channels, K = 256, with everything that ``pe-lightning fit`` switches on; the
  loop is autograd through the same mode products, both with the same fused Adam.
- ``networks``: 64 x 64 trained samples. The loops train networks written here in plain PyTorch (WIRE in complex numbers),
  with the same number of weights, samples and steps; their features are computed once where ours are.
- ``tasks``: what each encoder of positions costs in a step of the attention tasks of ``pe-lightning reproduce l-tables``,
  relative to tables of vectors (Embed).
"""

from __future__ import annotations

import argparse
import math
import tempfile
from collections.abc import Callable
from typing import Any

import torch
from harness import Turns, in_turns, make_parser, make_trainer, print_row, print_titles, run_sections
from lightning.pytorch import Trainer, seed_everything
from lightning.pytorch.callbacks import ModelCheckpoint
from torch import Tensor, nn

from pe_lightning import encoders
from pe_lightning.encodings import Simple
from pe_lightning.training import ComplexLinear, ImageDataModule, SimpleMLP, TensorDataModule
from pe_lightning.training.callbacks import PSNRProgressBar, RunRecorder
from pe_papers import tasks
from pe_papers.reproduce.definition import load

SIZE, DEPTH, WIDTH, BLOCKS = 64, 3, 128, 12
ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "sine": lambda z: torch.sin(30 * z),
    "gabor": lambda z: torch.exp(20j * z - (10 * z).abs().square()),
    "finer": lambda z: torch.sin(30 * (z.detach().abs() + 1) * z),
    "gauss": lambda z: torch.exp(-((10 * z) ** 2)),
    "relu": torch.relu,
}
NETWORKS: dict[str, dict[str, Any]] = {
    "relu, rff": {"encoder": {"name": "rff", "num_features": 256}},
    **{
        f"{name}, identity": {"encoder": "identity", "activation": name}
        for name in ("sine", "gabor", "finer", "gauss", "staf")
    },
    "relu, lff": {"encoder": {"name": "lff", "num_features": 128}},
    "relu, hash": {"encoder": "hash"},
    "relu, planes": {"encoder": "planes"},
}


class Staf(nn.Module):
    """Sums of five sines with trained amplitudes, frequencies and phases."""

    def __init__(self) -> None:
        super().__init__()
        self.terms = nn.Parameter(torch.rand(3, 5))

    def forward(self, z: Tensor) -> Tensor:
        return sum(b * torch.sin(w * z + phi) for w, phi, b in self.terms.unbind(1))


class Bare(nn.Module):
    """A perceptron in a few lines."""

    def __init__(self, name: str, inputs: int) -> None:
        super().__init__()
        width, dtype = (round(WIDTH / math.sqrt(2)), torch.cfloat) if name == "gabor" else (WIDTH, torch.float32)
        sizes = [inputs, *[width] * DEPTH, 3]
        types = [torch.float32, *[dtype] * DEPTH]
        self.layers = nn.ModuleList(nn.Linear(*sizes[i : i + 2], dtype=types[i]) for i in range(DEPTH + 1))
        self.activations = nn.ModuleList(Staf() for _ in range(DEPTH)) if name == "staf" else [ACTIVATIONS[name]] * DEPTH

    def forward(self, x: Tensor) -> Tensor:
        for layer, activation in zip(self.layers, self.activations, strict=False):
            x = activation(layer(x))
        return self.layers[-1](x).real


def linear_loop(data: ImageDataModule, encoder: str) -> Callable[[], None]:
    """A step of the complex model in bare PyTorch."""
    batch, module = data.train_batch(), ComplexLinear(encoder)
    module.build_from(data)
    first, second = module.encoding.axis_features(batch.axes)
    values = batch.values[0].permute(2, 0, 1)
    target = (values - values.mean((1, 2), keepdim=True)).contiguous()
    weight = torch.zeros_like(module.weight[0]).requires_grad_()
    optimizer = adam([weight])

    def step() -> None:
        optimizer.zero_grad()
        torch.nn.functional.mse_loss(first @ (weight @ second.T), target).backward()
        optimizer.step()

    return step


def adam(parameters: Any) -> torch.optim.Adam:
    """The optimiser of both sides of ``linear``."""
    return torch.optim.Adam(parameters, lr=0.1, weight_decay=1e-8, fused=True)


def network_loop(kind: str, data: TensorDataModule) -> Callable[[], None]:
    """A step of a network in bare PyTorch."""
    activation = kind.partition(",")[0]
    batch = data.train_batch()
    coords = torch.cartesian_prod(*batch.axes)
    target = batch.values[0].flatten(0, 1)
    samples = encoders.Samples((SIZE, SIZE), use="perceptron")
    encoding = Simple(encoders.for_data(encoders.resolve(NETWORKS[kind]["encoder"]), samples), 2)
    network = Bare(activation, encoding.num_features)
    trained = list(encoding.parameters())
    features = None if trained else encoding(coords)
    optimizer = torch.optim.Adam([*network.parameters(), *trained], lr=1e-3, fused=activation != "gabor")

    def step() -> None:
        optimizer.zero_grad()
        (network(encoding(coords) if features is None else features) - target).square().mean().backward()
        optimizer.step()

    return step


def linear(options: argparse.Namespace) -> None:
    """A row for each encoder of the complex encoding with one linear layer."""
    data = ImageDataModule("samples://astronaut", resize=512, color="rgb")
    data.prepare_data()
    seed_everything(0, verbose=False)
    print_titles("encoder", "fit, ms a step", "loop, ms a step", "loop / fit")
    for name in ("rff", "tri", "gau"):
        turns = Turns(linear_loop(data, name), max(1, options.steps // BLOCKS))
        checkpoint = ModelCheckpoint(filename="best", monitor="val/psnr", mode="max", save_last=True)
        with tempfile.TemporaryDirectory() as folder:
            callbacks = [turns, RunRecorder(root=folder, table=False), PSNRProgressBar(), checkpoint]
            quiet: dict[str, Any] = {"logger": False, "enable_model_summary": False, "num_sanity_val_steps": 0}
            trainer = Trainer(max_steps=options.steps, callbacks=callbacks, accelerator="cpu", **quiet)
            trainer.fit(ComplexLinear(name, optimizer=adam), data)
        print_row(name, *turns.medians())


def networks(options: argparse.Namespace) -> None:
    """A row for each network."""
    print_titles("network", "fit, ms a step", "loop, ms a step", "loop / fit")
    for kind, arguments in NETWORKS.items():
        data = TensorDataModule(torch.rand(1, 2 * SIZE, 2 * SIZE, 3))
        turns = Turns(network_loop(kind, data), 5)
        make_trainer(5 * (BLOCKS + 2), turns).fit(SimpleMLP(depth=DEPTH, hidden_size=WIDTH, **arguments), data)
        print_row(kind, *turns.medians())


def stepper(model: tasks.AttentionTask, data: tasks.TaskDataModule) -> Callable[[], None]:
    """A step of training on the first batch."""
    model.build(data.info)
    batch = next(iter(data.train_dataloader()))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)

    def step() -> None:
        optimizer.zero_grad()
        (model.loss_sum(batch) / max(batch["total"], 1) + model.positions.penalty()).backward()
        optimizer.step()

    return step


def attention(_: argparse.Namespace) -> None:
    """A table for each task."""
    few = {"LayoutDataModule": {"num_train": 64, "num_test": 4}, "ShapesDataModule": {"num_train": 64, "num_test": 4}}
    for block in ("layout", "classification", "generation", "detection"):
        steps: dict[str, Callable[[], None]] = {}
        for entry in load("l-tables").entries():
            tree, name = entry.tree(), entry.labels.get("encoder", "")
            if entry.labels["block"] != block or name in steps:
                continue
            torch.manual_seed(0)
            kind = tree["data"]["class_path"]
            data = getattr(tasks, kind)(**{**tree["data"].get("init_args", {}), **few.get(kind, {})})
            steps[name] = stepper(getattr(tasks, tree["model"]["class_path"])(**tree["model"]["init_args"]), data)
        in_turns(steps, 2)  # warms up
        medians = in_turns(steps, 30)
        table = next(name for name in medians if name.startswith("Embed"))
        print()
        print_titles(block, "ms a step", f"/ {table}")
        for name, seconds in medians.items():
            print_row(name, 1000 * seconds, seconds / medians[table])


if __name__ == "__main__":
    parser = make_parser(__doc__)
    parser.add_argument("--steps", type=int, default=2000, help="of the section linear")
    torch.set_num_threads(1)
    run_sections(parser, {"linear": linear, "networks": networks, "tasks": attention})
