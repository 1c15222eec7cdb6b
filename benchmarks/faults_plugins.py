"""What others add to a fit: packages that cannot be imported, and hooks of modules, DataModules and callbacks."""

from __future__ import annotations

import inspect
import itertools
import logging
import re
import subprocess
import sys
import warnings
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from attempts import SHORT_FIT, Row, Size, folder, waves
from lightning.pytorch import Callback, LightningDataModule, LightningModule, Trainer, seed_everything
from lightning.pytorch.strategies import SingleDeviceStrategy

from pe_lightning.registry import REGISTRIES
from pe_lightning.signals import Batching
from pe_lightning.training import SimpleMLP, TensorDataModule
from pe_lightning.training.uninterrupted import HOOKS

GROUPS = (*REGISTRIES, "verbs", "hints", "recipes", "suggestions", "spreads")
ASKED_FOR_ALONE = ("verbs", "suggestions", "spreads")
"""Groups whose entry points are imported by those who ask for one, and not in these commands."""
WAYS = {
    "absent": None,
    "raises": "raise RuntimeError('needs a licence')",
    "another version": "from torch import a_function_of_another_version",
    "syntax": "def (",
    "without the name": "other = 1",
    "of another kind": "lost = object()",
}
"""How a package is broken: the text of its module, or none."""
PROGRAM = """
import sys, traceback
from pe_lightning.__main__ import main
for line in sys.stdin.read().splitlines():
    status = main(line.split())
    if status:
        sys.exit(f"{line}: status {status}")
"""
"""Runs commands, one after the other, in a process that has imported nothing before."""


def plugins(_: Size) -> Iterator[Row]:
    """Commands beside an installed package of which one entry point is broken: a row per group."""
    commands = ["--help", "list", "encoders", " ".join(SHORT_FIT), "fit a.png --encoder gau --wandb.enabled false"]
    commands.append("suggest a.png --encoders gau --num_features 8 --data.sampling.stride 1")
    for group in GROUPS:
        row = Row(f"broken entry points of pe_lightning.{group}")
        for way, text in WAYS.items():
            with folder() as root:
                waves(24, 28).save("a.png")
                site = root / "site"
                (site / "pe_broken-1.0.dist-info").mkdir(parents=True)
                (site / "pe_broken-1.0.dist-info/METADATA").write_text(
                    "Metadata-Version: 2.1\nName: pe-broken\nVersion: 1.0\n"
                )
                points = f"[pe_lightning.{group}]\nlost = pe_broken:lost\n"
                (site / "pe_broken-1.0.dist-info/entry_points.txt").write_text(points)
                if text is not None:
                    (site / "pe_broken.py").write_text(text)
                done = subprocess.run(
                    [sys.executable, "-c", f"import sys; sys.path.append({str(site)!r})\n{PROGRAM}"],
                    input="\n".join(commands),
                    capture_output=True,
                    text=True,
                    check=False,
                )
                said = "pe_broken" in done.stderr or group in ASKED_FOR_ALONE
                row.add(done.returncode == 0 and said, f"{way}: names the package {said}, {done.stderr[-250:]}")
        yield row


# -- hooks ------------------------------------------------------------------------------------------------------------------


class OwnStrategy(SingleDeviceStrategy):
    """A strategy of somebody."""


STRATEGIES = {"one device": lambda: "auto", "ddp": lambda: "ddp", "an own one": lambda: OwnStrategy(torch.device("cpu"))}
NOT_CALLED = re.compile(
    r"to_\w+|from_datasets|load_\w+|forward|manual_backward|(un)?toggled?_\w+|configure_sharded_model|all_gather"
)
"""Public methods that are no hooks of a fit."""


def hooks(_: Size) -> Iterator[Row]:
    """Every public hook, overridden: weights and calls of fits that log seldom equal those of single steps."""
    warnings.simplefilter("ignore")
    logging.disable(logging.INFO)
    for (name, strategy), every in itertools.product(STRATEGIES.items(), (4, 50)):
        row = Row(f"hooks, {name}, rows every {every} steps")
        for owner, classes in HOOKS.items():
            for hook in dict.fromkeys(name for cls in classes for name in vars(cls)):
                is_method = inspect.isroutine(inspect.getattr_static(owner, hook, None))
                if not hook.startswith("_") and is_method and not NOT_CALLED.fullmatch(hook):
                    single, found = (_weights_and_calls(owner, hook, strategy(), period) for period in (1, every))
                    row.add(single == found, f"{owner.__name__}.{hook}: {single[1]} calls, {found[1]} found")
        yield row


def _weights_and_calls(owner: type, name: str, strategy: Any, every: int) -> tuple[dict[str, bytes], int]:
    """The weights of a short fit in which a hook is somebody's own and changes batches, and the number of its calls."""
    seed_everything(0, verbose=False)
    calls: list[str] = []

    def own(cls: type) -> type:
        usual = getattr(cls, name)

        def hook(self: Any, *args: Any, **kwargs: Any) -> Any:
            calls.append(name)
            result = usual(self, *args, **kwargs)
            if owner is not Callback and name in ("on_before_batch_transfer", "on_after_batch_transfer"):
                return replace(result, values=result.values * (1 + 0.1 * torch.rand(())))
            return result

        return type(f"Own{cls.__name__}", (cls,), {name: hook})

    module_type: Any = own(SimpleMLP) if owner is LightningModule else SimpleMLP
    data_type: Any = own(TensorDataModule) if owner is LightningDataModule else TensorDataModule
    quiet: Any = dict.fromkeys(("logger", "enable_checkpointing", "enable_progress_bar", "enable_model_summary"), False)
    callbacks = [own(Callback)()] if owner is Callback else []
    options: Any = {"max_steps": 9, "log_every_n_steps": every, "num_sanity_val_steps": 0, "devices": 1, **quiet}
    with folder() as root:
        trainer = Trainer(accelerator="cpu", default_root_dir=Path(root), callbacks=callbacks, strategy=strategy, **options)
        values = torch.rand(1, 8, 6, 1, generator=torch.Generator().manual_seed(0))
        module = module_type("rff", depth=1, hidden_size=4)
        trainer.fit(module, data_type(values, batching=Batching(steps_per_epoch=5)))
    if torch.distributed.is_initialized():  # processes that are forked later would wait for it
        torch.distributed.destroy_process_group()
    state = {key: value.numpy().tobytes() for key, value in module.state_dict().items() if isinstance(value, torch.Tensor)}
    return state, len(calls)
