"""What callbacks cost where they do nothing."""

import pytest
from lightning.pytorch import Callback

from pe_lightning.callbacks import PeakMemory, Snapshots, StableRank, TimeToPSNR
from pe_lightning.callbacks.quiet import QuietCallback

STEP_HOOKS = ["on_train_batch_start", "on_before_zero_grad", "on_before_backward", "on_after_backward"]
STEP_HOOKS += ["on_before_optimizer_step", "on_train_batch_end"]


def called(callback: Callback) -> list[str]:
    """The hooks of a step that Lightning calls."""
    return [name for name in STEP_HOOKS if callable(getattr(callback, name))]


@pytest.mark.parametrize(
    ("callback", "hooks"),
    [
        (QuietCallback(), []),
        (PeakMemory(), []),
        (Snapshots(), ["on_train_batch_end"]),
        (StableRank(), ["on_train_batch_end"]),
        (TimeToPSNR(), ["on_train_batch_start", "on_train_batch_end"]),
        (Callback(), STEP_HOOKS),
    ],
    ids=lambda value: type(value).__name__,
)
def test_only_hooks_that_do_something_are_called(callback, hooks):
    assert called(callback) == hooks


class Last(QuietCallback):
    """Remembers the last step."""

    step = 0

    def on_train_batch_end(self, trainer, *arguments):
        self.step = trainer.global_step


def test_lightning_runs_callbacks_without_these_hooks(fit):
    from small_fits import signals

    last = Last()
    fit("complex", signals(1, 8, 8), [QuietCallback(), last], steps=4)
    assert last.step == 4
