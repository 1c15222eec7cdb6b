"""Held-out scores from the CSV log."""

from itertools import pairwise

import pytest
from matplotlib.collections import PolyCollection

from pe_lightning.studies.compare.page import plot, read_curve
from pe_lightning.studies.compare.reading import find_runs
from pe_lightning.studies.compare.scores import compare


def curve_of(folder, *logs):
    for number, log in enumerate(logs):
        (folder / "logs" / f"version_{number}").mkdir(parents=True)
        (folder / "logs" / f"version_{number}" / "metrics.csv").write_text(log)
    return read_curve(find_runs([folder]).runs[0])


def test_finite_scores_of_the_log_are_taken_and_the_score_of_the_table_is_the_end(make_run):
    curve = curve_of(make_run("a/1"), "step,val/psnr,seconds\n9,,0.1\n49,10.0,0.25\n99,20.0,0.75\n100,nan,1\n")
    assert curve == ((49, 100), (10.0, 22.0), (0.25, 2.0))
    assert curve_of(make_run("b/1")) is None
    assert curve_of(make_run("c/1"), "step,val/psnr\n1,2.0\n") == ((1, 100), (2.0, 22.0), ())
    assert curve_of(make_run("d/1", (None,)), "step,val/psnr\n1,2.0\n") == ((1,), (2.0,), ())


def test_a_resumed_fit_replaces_what_came_after_its_checkpoint(make_run):
    logs = ["step,val/psnr,seconds\n49,10.0,1.0\n99,20.0,2.0\n149,25.0,3.0\n", "step,val/psnr,seconds\n99,21.0,2.5\n"]
    curve = curve_of(make_run("a/1", steps=0), *logs)
    assert (curve.steps, curve.values, curve.seconds) == ((49, 99), (10.0, 21.0), (1.0, 2.5))
    many = [f"step,val/psnr\n49,{number}\n" for number in range(11)]  # version_10 is after version_9
    assert curve_of(make_run("b/1", steps=0), *many).values == (10.0,)


def test_a_broken_log_is_named(make_run):
    with pytest.raises(ValueError, match=r"metrics\.csv of version_0 cannot be read"):
        curve_of(make_run("a/1"), "step,val/psnr\n1,many\n")


def test_runs_of_a_row_are_drawn_as_their_mean_with_the_deviation_over_seeds(make_run, tmp_path):
    runs = {}
    for seed, score in ((0, 10.0), (1, 14.0)):
        path = make_run(f"a/{seed}", (score,), seed=seed, fit_seconds=1.0 + seed, steps=20, baselines={})
        curve = curve_of(path, f"step,val/psnr,seconds\n10,8.0,{0.5 + seed}\n20,{score},{1 + seed}\n")
        runs[path] = curve
    (table,) = compare(find_runs([tmp_path]).runs, "encoder.name")
    plots = plot(table, {run: runs[run.path] for run in table.runs})
    assert list(plots) == ["step", "seconds"]
    of_step, of_seconds = (figure.axes[0] for figure in plots.values())
    assert of_step.lines[0].get_xydata().tolist() == [[10, 8], [20, 12]], "after so many steps"
    (band,) = (collection for collection in of_step.collections if isinstance(collection, PolyCollection))
    assert band.get_datalim(of_step.transData).y1 == pytest.approx(12 + 8**0.5)
    assert of_seconds.lines[0].get_xydata().tolist() == [[1, 8], [1.5, 12]]
    assert [1.5, 12] in [line.get_xydata()[0].tolist() for line in of_seconds.lines[1:]]


@pytest.mark.parametrize("longest", [11.0, 300.0, 1e5])
def test_labels_of_a_logarithmic_axis_do_not_overlap(make_run, tmp_path, longest):
    make_run("a/1", fit_seconds=0.8)
    make_run("b/1", fit_seconds=longest)
    (table,) = compare(find_runs([tmp_path]).runs)
    (figure,) = plot(table, {}).values()
    figure.canvas.draw()
    (axes,) = figure.axes
    assert axes.get_xscale() == "log"
    labels = [label for which in ("major", "minor") for label in axes.xaxis.get_ticklabels(which=which) if label.get_text()]
    low, high = axes.get_xlim()
    boxes = sorted(
        label.get_window_extent().extents[[0, 2]].tolist() for label in labels if low <= label.get_position()[0] <= high
    )
    assert len(boxes) > 1
    assert all(left[1] < right[0] for left, right in pairwise(boxes))


@pytest.mark.parametrize(("second", "plots"), [(1000, ["seconds"]), (2000, ["seconds", "parameters"])])
def test_there_is_no_plot_of_parameters_that_all_runs_have(make_run, tmp_path, second, plots):
    make_run("a/1")
    make_run("b/1", num_params=second)
    (table,) = compare(find_runs([tmp_path]).runs)
    assert list(plot(table, {})) == plots
