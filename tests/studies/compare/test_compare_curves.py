"""Held-out scores from the CSV log."""

import pytest

from pe_lightning.studies.compare.page import plot, read_curve
from pe_lightning.studies.compare.reading import find_runs
from pe_lightning.studies.compare.scores import compare


def curve_of(folder, *logs):
    for number, log in enumerate(logs):
        (folder / "logs" / f"version_{number}").mkdir(parents=True)
        (folder / "logs" / f"version_{number}" / "metrics.csv").write_text(log)
    return read_curve(find_runs([folder]).runs[0])


def test_seconds_of_the_log_are_taken_and_of_the_scores_those_that_are_finite(make_run):
    curve = curve_of(make_run("a/1"), "step,val/psnr,seconds\n9,,0.1\n49,10.0,0.25\n99,20.0,0.75\n100,nan,1\n")
    assert curve == ((49, 99), (10.0, 20.0), (0.25, 0.75))
    assert curve_of(make_run("b/1")) is None
    assert curve_of(make_run("c/1"), "step,val/psnr\n1,2.0\n") == ((1,), (2.0,), ())


def test_a_resumed_fit_replaces_what_came_after_its_checkpoint(make_run):
    logs = ["step,val/psnr,seconds\n49,10.0,1.0\n99,20.0,2.0\n149,25.0,3.0\n", "step,val/psnr,seconds\n99,21.0,2.5\n"]
    curve = curve_of(make_run("a/1"), *logs)
    assert (curve.steps, curve.values, curve.seconds) == ((49, 99), (10.0, 21.0), (1.0, 2.5))
    many = [f"step,val/psnr\n49,{number}\n" for number in range(11)]  # version_10 is after version_9
    assert curve_of(make_run("b/1"), *many).values == (10.0,)


def test_a_broken_log_is_named(make_run):
    with pytest.raises(ValueError, match=r"metrics\.csv of version_0 cannot be read"):
        curve_of(make_run("a/1"), "step,val/psnr\n1,many\n")


@pytest.mark.parametrize(("second", "plots"), [(1000, ["seconds"]), (2000, ["seconds", "parameters"])])
def test_there_is_no_plot_of_parameters_that_all_runs_have(make_run, tmp_path, second, plots):
    make_run("a/1")
    make_run("b/1", num_params=second)
    (table,) = compare(find_runs([tmp_path]).runs)
    assert list(plot(table, {})) == plots
