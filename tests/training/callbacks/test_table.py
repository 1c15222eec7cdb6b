"""The table of a run explains its columns, and says what the fit found."""

import copy
import math
import re

import numpy as np
import pytest
import torch
from fits import signals

from pe_lightning.results.runs import Durations
from pe_lightning.training import ComplexLinear, TensorDataModule
from pe_lightning.training.callbacks import RunRecorder
from pe_lightning.training.callbacks.table import print_fit_scores


@pytest.mark.parametrize(("grid", "name"), [((24,), "cubic convolution"), ((12, 16), "bicubic"), ((16, 12, 14), "tricubic")])
def test_bicubic_is_a_word_for_pictures_and_held_out_is_explained(grid, name, make_trainer, tmp_path, capsys):
    recorder = RunRecorder(root=tmp_path, log=False)
    trainer = make_trainer(max_steps=0, callbacks=[recorder])
    data, module = TensorDataModule(signals(1, *grid)), ComplexLinear({"name": "gau", "sigma": "auto"}, solver="exact")
    trainer.fit(module, data)
    trainer.test(module, data, verbose=False)
    text = " ".join(capsys.readouterr().out.split())
    assert f"{name} interpolation" in text
    assert ("bicubic interpolation" in text) == (len(grid) == 2)
    assert "held out: samples that are not trained on (rest)" in text
    encoder = recorder.metrics["encoder"]
    sigmas = [entry["sigma"] for entry in (encoder if isinstance(encoder, list) else [encoder])]
    shown = " to ".join(dict.fromkeys(f"{sigma:.3g}" for sigma in (min(sigmas), max(sigmas))))
    choice = recorder.metrics["solution"]["choice"]
    padding = f"padding {choice['padding']} (chosen), " if choice["padding"] else ""
    more = "2 features per sample (chosen), " if choice["features_per_sample"] == 2 else ""
    assert f"s: sigma {shown} (chosen), {padding}{more}ridge {recorder.metrics['ridge']:.3g}" in text

    for weight, said in ((0.004, False), (0.25, True)):
        mixed = copy.deepcopy(recorder.metrics) | {"prior": {"name": "pictures", "weight": [weight]}}
        print_fit_scores(mixed, recorder.run_dir, Durations())
        assert (f"weight {weight:.2f}" in capsys.readouterr().out) == said


def test_learned_widths_are_printed(make_trainer, tmp_path, capsys):
    recorder = RunRecorder(root=tmp_path, log=False)
    encoder = {"name": "gau", "trainable": True, "num_features": 6}
    data, module = TensorDataModule(signals(2, 12, 12)), ComplexLinear(encoder)
    trainer = make_trainer(max_steps=9, callbacks=[recorder])
    trainer.fit(module, data)
    trainer.test(module, data, verbose=False)
    learned = torch.tensor(np.ravel(recorder.metrics["learned"]["0.log_sigma"])).exp()
    ((low, high),) = re.findall(r"sigma ([\d.]+) to ([\d.]+) \(learned\)", capsys.readouterr().out)
    assert math.isclose(float(low), learned.min(), rel_tol=0.01)
    assert math.isclose(float(high), learned.max(), rel_tol=0.01)
