"""What early stopping may wait for."""

import pytest
from lightning.pytorch.callbacks import EarlyStopping, ModelCheckpoint

from pe_lightning.callbacks import PeakMemory, check_monitors
from pe_lightning.errors import InputError


@pytest.mark.parametrize(
    ("callback", "held_out", "words"),
    [
        (EarlyStopping("val/psnr"), True, r"EarlyStopping: val/psnr grows .* set mode: max \(now: min\)"),
        (EarlyStopping("train/psnr", mode="min"), True, "set mode: max"),
        (EarlyStopping("train/loss", mode="max"), True, "train/loss falls .* set mode: min"),
        (EarlyStopping("val/psrn", mode="max"), True, "nothing logs 'val/psrn'; did you mean 'val/psnr'"),
        (EarlyStopping("val/loss", mode="min"), True, "nothing logs 'val/loss'.* There are: val/psnr, train/psnr"),
        (EarlyStopping("val/psnr", mode="max"), False, "there is no val/psnr.*monitor 'train/psnr'"),
        (ModelCheckpoint(monitor="val/psnr"), True, "ModelCheckpoint: val/psnr grows"),
    ],
)
def test_what_would_wait_for_ever_or_for_the_worse_is_refused(callback, held_out, words):
    with pytest.raises(InputError, match=words):
        check_monitors([PeakMemory(), callback], held_out)


def test_what_makes_sense_is_not():
    sound = [EarlyStopping("val/psnr", mode="max"), EarlyStopping("train/loss"), ModelCheckpoint(), PeakMemory()]
    check_monitors(sound, held_out=True)
    check_monitors([EarlyStopping("train/psnr", mode="max")], held_out=False)
    check_monitors([EarlyStopping("val/mine")], held_out=True, others=["val/mine"])
