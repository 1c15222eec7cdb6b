"""Held-out PSNR from the CSV log."""

import pytest

from pe_lightning.experiments.compare.curves import read_curve
from pe_lightning.experiments.compare.reading import find_runs


def curve_of(folder, *logs):
    for number, log in enumerate(logs):
        (folder / "logs" / f"version_{number}").mkdir(parents=True)
        (folder / "logs" / f"version_{number}" / "metrics.csv").write_text(log)
    return read_curve(find_runs([folder]).runs[0])


def test_seconds_are_spread_over_the_steps(make_run):
    curve = curve_of(make_run("a/1"), "step,train/psnr,val/psnr\n9,5.0,\n49,,10.0\n99,,20.0\n100,,\n")
    assert (curve.steps, curve.psnr) == ((49, 99), (10.0, 20.0))
    assert curve.seconds == (1.0, 2.0)
    assert not curve.measured


def test_an_exact_solution_comes_before_the_first_step(make_run):
    curve = curve_of(make_run("a/1", solve_seconds=1.0), "step,val/psnr\n49,10.0\n99,20.0\n")
    assert curve.seconds == (1.5, 2.0)


def test_seconds_of_the_log_are_taken(make_run):
    curve = curve_of(make_run("a/1"), "step,val/psnr,seconds\n49,10.0,0.25\n99,20.0,0.75\n")
    assert curve.seconds == (0.25, 0.75)
    assert curve.measured


def test_a_resumed_fit_goes_on(make_run):
    logs = ["step,val/psnr\n49,10.0\n99,20.0\n", "step,val/psnr\n99,21.0\n149,30.0\n"]
    assert curve_of(make_run("a/1"), *logs).psnr == (10.0, 21.0, 30.0)


def test_a_resumed_fit_replaces_what_came_after_its_checkpoint(make_run):
    logs = [
        "step,val/psnr,seconds\n49,10.0,1.0\n99,20.0,2.0\n149,25.0,3.0\n",
        "step,val/psnr,seconds\n99,21.0,2.5\n",
    ]
    curve = curve_of(make_run("a/1"), *logs)
    assert (curve.steps, curve.psnr, curve.seconds) == ((49, 99), (10.0, 21.0), (1.0, 2.5))


def test_many_versions_are_in_numeric_order(make_run):
    logs = [f"step,val/psnr\n49,{number}\n" for number in range(11)]
    assert curve_of(make_run("a/1"), *logs).psnr == (10.0,)


def test_values_that_are_not_finite_have_no_point(make_run):
    assert curve_of(make_run("a/1"), "step,val/psnr\n1,nan\n2,inf\n3,4.0\n").steps == (3,)


@pytest.mark.parametrize("log", ["", "step\n1\n", "step,val/psnr\n1,\n"])
def test_no_curve(make_run, log):
    assert curve_of(make_run("a/1"), log) is None


def test_no_log(make_run):
    assert curve_of(make_run("a/1")) is None


@pytest.mark.parametrize("log", ["step,val/psnr\nx,1.0\n", "step,val/psnr\n1,many\n", "step,val/psnr\n1.5,2\n"])
def test_a_broken_log_is_said(make_run, log):
    with pytest.raises(ValueError, match=r"metrics\.csv of version_0 cannot be read"):
        curve_of(make_run("a/1"), log)


def test_a_run_that_does_not_tell_its_seconds(make_run):
    assert curve_of(make_run("a/1", fit_seconds=None), "step,val/psnr\n1,2.0\n").seconds is None
