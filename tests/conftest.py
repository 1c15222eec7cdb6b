"""Fixtures that several test modules share."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from lightning.pytorch import Trainer

# tensors of tests are small: threads, also of the processes that tests start, would only wait for each other
os.environ.setdefault("OMP_NUM_THREADS", "1")

# PyTorch and Lightning are imported by fixtures: the process that starts those of xdist, which wait for it, does without
LONGEST = ("test_no_tensor_stays_on_the_cpu", "test_the_site_needs_no_network")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The longest tests run first, so that no process of xdist waits for the other at the end."""
    items.sort(key=lambda item: item.name not in LONGEST)


@pytest.fixture(autouse=True)
def _same_random_numbers_in_any_order(monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    torch.manual_seed(0)
    monkeypatch.setenv("PL_GLOBAL_SEED", "0")  # where a fit of another test leaves its seed


@pytest.fixture
def empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty working directory, without an account of W&B."""
    monkeypatch.chdir(tmp_path)
    for variable in ("WANDB_MODE", "WANDB_API_KEY"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("NETRC", str(tmp_path / "no-netrc"))
    return tmp_path


@pytest.fixture
def fresh_wandb() -> Iterator[None]:
    """W&B reads its environment once in a process: here in the test, and again after it."""
    import wandb

    finish = wandb.finish  # a test may replace it
    finish()  # a run that another test has left open: after teardown() it cannot be finished
    wandb.teardown()
    yield
    finish()
    wandb.teardown()


@pytest.fixture
def alone(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Verbs, hints and recipes are those of the framework, as where no other package is installed."""

    from pe_lightning.cli import recipes

    def own(**group: str) -> list[EntryPoint]:
        return [point for point in entry_points(**group) if point.value.startswith("pe_lightning.")]

    monkeypatch.setattr("pe_lightning.__main__.entry_points", own)
    for module in ("pe_lightning.hints", "pe_lightning.cli.recipes"):
        load = lambda group, *_, **__: (point.load() for point in own(group=group))  # noqa: E731
        monkeypatch.setattr(f"{module}.load_entry_points", load)
    recipes._paths.cache_clear()
    yield
    recipes._paths.cache_clear()


@pytest.fixture
def make_trainer(tmp_path: Path) -> Callable[..., Trainer]:
    """A Trainer on the CPU that prints, logs and saves nothing, unless told otherwise."""

    from lightning.pytorch import Trainer

    def make(**arguments: Any) -> Trainer:
        quiet = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False, "enable_model_summary": False}
        return Trainer(**{"accelerator": "cpu", "default_root_dir": tmp_path, **quiet, **arguments})

    return make


@pytest.fixture(autouse=True, scope="session")
def _cache_of_the_tests(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Decoded signals are cached in a folder that goes with the tests, commands in processes of their own included."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PE_LIGHTNING_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield
