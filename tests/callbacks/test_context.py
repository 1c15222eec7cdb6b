"""What callbacks ask of a module and of each other."""

import pytest
from lightning.pytorch.callbacks import EarlyStopping, ModelCheckpoint
from small_fits import MODULES, signals

from pe_lightning.callbacks import (
    Describes,
    PeakMemory,
    RunRecorder,
    Snapshots,
    StableRank,
    TimeToPSNR,
    check_monitors,
    reports,
)
from pe_lightning.callbacks.context import logged_by
from pe_lightning.errors import InputError


@pytest.mark.parametrize(
    ("callback", "held_out", "words"),
    [
        (EarlyStopping("val/psnr"), True, r"EarlyStopping: val/psnr grows .* set mode: max \(now: min\)"),
        (EarlyStopping("train/loss", mode="max"), True, "train/loss falls .* set mode: min"),
        (EarlyStopping("val/psrn", mode="max"), True, "nothing logs 'val/psrn'; did you mean 'val/psnr'"),
        (EarlyStopping("val/loss", mode="min"), True, "nothing logs 'val/loss'.* There are: val/psnr, train/psnr"),
        (EarlyStopping("val/psnr", mode="max"), False, "there is no val/psnr.*monitor 'train/psnr'"),
        (ModelCheckpoint(monitor="val/psnr"), True, "ModelCheckpoint: val/psnr grows"),
        (EarlyStopping("train/loss"), False, None),
        (EarlyStopping("train/psnr", mode="max"), False, None),
        (ModelCheckpoint(), True, None),
    ],
)
def test_what_would_never_stop_a_fit_is_refused(callback, held_out, words):
    module = MODULES["simple"]()
    assert isinstance(module, Describes)
    if words is None:
        check_monitors([PeakMemory(), callback], logged_by(module), held_out)
    else:
        with pytest.raises(InputError, match=words):
            check_monitors([PeakMemory(), callback], logged_by(module), held_out)


def test_reports_of_all_callbacks(fit):
    watching = [StableRank(), TimeToPSNR(), PeakMemory(), Snapshots()]
    assert all(callback.report() == {} for callback in watching[:3])
    run = fit("simple", signals(1, 16, 12), watching)
    assert list(reports(run.trainer)) == ["stable_rank", "time_to_psnr", "peak_memory"]
    assert RunRecorder.run_dir_of(run.trainer) == run.folder
