"""Training under a Trainer: milliseconds per step against bare PyTorch loops, one thread, processor time.

    python benchmarks/training.py --steps 600

256 x 256 trained samples of 3 channels, K = 256, with everything that ``pe-lightning fit`` switches on; the loop is autograd
through the same mode products, both with the same fused Adam. A fit and its loop take turns, a block of steps each, in one
process. Validation and its checkpoints are left out: the loops have none.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from typing import Any

import torch
from harness import Turns, machine, make_parser, print_row, print_titles
from lightning.pytorch import Trainer, seed_everything
from lightning.pytorch.callbacks import ModelCheckpoint

from pe_lightning.training import ComplexLinear, ImageDataModule
from pe_lightning.training.callbacks import PSNRProgressBar, RunRecorder


def adam(parameters: Any) -> torch.optim.Adam:
    """The optimiser of both sides."""
    return torch.optim.Adam(parameters, lr=0.1, weight_decay=1e-8, fused=True)


def loop(data: ImageDataModule, encoder: str) -> Callable[[], None]:
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


def main() -> None:
    """Prints a row for each encoder."""
    parser = make_parser(__doc__)
    parser.add_argument("--steps", type=int, default=2000)
    parser.add_argument("--encoders", nargs="+", default=["rff", "tri", "gau"])
    options = parser.parse_args()
    torch.set_num_threads(1)
    data = ImageDataModule("samples://astronaut", resize=512, color="rgb")
    data.prepare_data()
    seed_everything(0, verbose=False)
    print(machine())
    print_titles("encoder", "fit, ms a step", "loop, ms a step", "loop / fit")
    for name in options.encoders:
        turns = Turns(loop(data, name), max(1, options.steps // 12))
        checkpoint = ModelCheckpoint(filename="best", monitor="val/psnr", mode="max", save_last=True)
        with tempfile.TemporaryDirectory() as folder:
            callbacks = [turns, RunRecorder(root=folder, table=False), PSNRProgressBar(), checkpoint]
            quiet: dict[str, Any] = {"logger": False, "enable_model_summary": False, "num_sanity_val_steps": 0}
            trainer = Trainer(max_steps=options.steps, callbacks=callbacks, accelerator="cpu", **quiet)
            trainer.fit(ComplexLinear(name, optimizer=adam), data)
        print_row(name, *turns.medians())


if __name__ == "__main__":
    main()
