"""Time to PSNR."""

from lightning.pytorch import Callback
from small_fits import signals

from pe_lightning.training.callbacks import TimeToPSNR

STEPS = 40


class Watch(Callback):
    """Every step's train PSNR and every validation's held-out PSNR, and a time that this callback alone moves on.

    A step takes one second, a validation a thousand.
    """

    def __init__(self, now):
        self.now, self.train, self.val = now, {}, {}

    def on_train_batch_end(self, trainer, pl_module, *arguments):
        self.now[0] += 1
        self.train[trainer.global_step] = pl_module.last_train.psnr().item()

    def on_validation_epoch_end(self, trainer, pl_module):
        self.now[0] += 1000

    def on_validation_end(self, trainer, pl_module):
        self.val[trainer.global_step] = trainer.callback_metrics["val/psnr"].item()


def first(values: dict[int, float], threshold: float) -> int:
    return next(step for step, value in values.items() if value >= threshold)


def test_first_steps_and_seconds_without_validation(fit, now):
    watch = Watch(now)
    callback = TimeToPSNR([4, 6, 8, 200], every_n_steps=5)
    run = fit("simple", signals(2, 16, 12), [watch, callback], steps=STEPS)
    read = {step: value for step, value in watch.train.items() if step % 5 == 0 or step == 1}
    found = callback.report()["time_to_psnr"]
    assert list(found) == ["train", "val"]
    for kind, values in (("train", read), ("val", watch.val)):
        for threshold in (4, 6, 8):
            step = first(values, threshold)
            assert found[kind][f"{threshold}dB"] == {"seconds": step, "steps": step}, (kind, threshold)
        assert found[kind]["200dB"] is None
    assert 1 < found["train"]["4dB"]["steps"] < found["train"]["8dB"]["steps"], "a fit that can tell them apart"
    header = (run.folder / "logs/version_0/metrics.csv").read_text().splitlines()[0].split(",")
    assert {"time_to/4dB", "time_to/8dB", "time_to/val_4dB"} <= set(header)
    assert "time_to/200dB" not in header


def test_the_first_and_the_last_step_are_read_too(fit, now):
    watch, callback = Watch(now), TimeToPSNR([-100], every_n_steps=30)
    fit("simple", signals(1, 16, 12), [watch, callback], steps=STEPS)
    assert callback.report()["time_to_psnr"]["train"]["-100dB"] == {"seconds": 1, "steps": 1}
    best = max(watch.train.values())
    assert best == watch.train[STEPS], "the fit improves to the end"
    now[0], callback = 0.0, TimeToPSNR([best - 1e-4], every_n_steps=1000)
    for _ in range(2):  # a second fit starts anew
        fit("simple", signals(1, 16, 12), [Watch(now), callback], steps=STEPS)
        found = callback.report()["time_to_psnr"]["train"].popitem()[1]
        assert found == {"seconds": STEPS, "steps": STEPS}


def test_a_resumed_fit_keeps_what_was_reached_and_its_clock(fit, now):
    watch, callback = Watch(now), TimeToPSNR([3, 8], every_n_steps=1)
    run = fit("simple", signals(2, 16, 12), [watch, callback], steps=6)
    checkpoint = run.folder / "checkpoints/last.ckpt"
    run.trainer.save_checkpoint(checkpoint)
    before = callback.report()["time_to_psnr"]["train"]
    assert before["3dB"] is not None
    assert before["8dB"] is None
    watch, again = Watch(now), TimeToPSNR([3, 8], every_n_steps=1)
    fit("simple", signals(2, 16, 12), [watch, again], steps=STEPS, ckpt_path=checkpoint)
    after = again.report()["time_to_psnr"]["train"]
    assert after["3dB"] == before["3dB"]
    step = first(watch.train, 8)
    assert after["8dB"] == {"seconds": step, "steps": step}
