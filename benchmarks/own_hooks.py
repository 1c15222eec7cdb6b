"""Short fits in which one public hook of Lightning is somebody's own: their weights, and how often it was called."""

from __future__ import annotations

import inspect
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from lightning.pytorch import Callback, Trainer, seed_everything

from pe_lightning.signals import Batching
from pe_lightning.training import SimpleMLP, TensorDataModule
from pe_lightning.training.uninterrupted import HOOKS

NOT_CALLED = re.compile(
    r"to_\w+|from_datasets|load_\w+|forward|manual_backward|(un)?toggled?_\w+|configure_sharded_model|all_gather"
)
"""Public methods that are no hooks of a fit, or are called with other arguments than an instance."""


OF_BATCHES = ("on_before_batch_transfer", "on_after_batch_transfer")


def public_hooks() -> Iterator[tuple[type, str]]:
    """Owner and name of every hook of modules, DataModules and callbacks: a new one of Lightning is among them."""
    for owner, classes in HOOKS.items():
        for name in dict.fromkeys(name for cls in classes for name in vars(cls)):
            is_method = inspect.isroutine(inspect.getattr_static(owner, name, None))
            if not name.startswith("_") and is_method and not NOT_CALLED.fullmatch(name):
                yield owner, name


def weights_and_calls(
    folder: Path, owner: type, names: Sequence[str], every: int, strategy: Any = "auto"
) -> tuple[dict[str, bytes], Counter[str]]:
    """The weights of a fit with a row of its log ``every`` so many steps, and the numbers of calls of the hooks.

    Hooks count their calls; those of batches change their values at random.
    """
    seed_everything(0, verbose=False)
    calls: Counter[str] = Counter()

    def counted(name: str, usual: Any) -> Any:
        def hook(self: Any, *args: Any, **kwargs: Any) -> Any:
            calls[name] += 1
            result = usual(self, *args, **kwargs)
            if owner is not Callback and name in OF_BATCHES:
                return replace(result, values=result.values * (1 + 0.1 * torch.rand(())))
            return result

        return hook

    def own(cls: type) -> Any:
        hooks = {name: counted(name, getattr(cls, name)) for name in names if issubclass(cls, owner)}
        return type(f"Own{cls.__name__}", (cls,), hooks) if hooks else cls

    quiet: Any = dict.fromkeys(("logger", "enable_checkpointing", "enable_progress_bar", "enable_model_summary"), False)
    options: Any = {"max_steps": 9, "log_every_n_steps": every, "num_sanity_val_steps": 0, "devices": 1, **quiet}
    callbacks = [own(Callback)()] if owner is Callback else []
    trainer = Trainer(accelerator="cpu", default_root_dir=folder, callbacks=callbacks, strategy=strategy, **options)
    values = torch.rand(1, 8, 6, 1, generator=torch.Generator().manual_seed(0))
    module = own(SimpleMLP)("rff", depth=1, hidden_size=4)
    trainer.fit(module, own(TensorDataModule)(values, batching=Batching(steps_per_epoch=5)))
    if torch.distributed.is_initialized():  # processes that are forked later would wait for it
        torch.distributed.destroy_process_group()
    state = {key: value.numpy().tobytes() for key, value in module.state_dict().items() if isinstance(value, torch.Tensor)}
    return state, calls
