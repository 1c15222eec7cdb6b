"""What callbacks put into metrics.json."""

from types import SimpleNamespace

from small_fits import signals

from pe_lightning.callbacks import PeakMemory, Reporting, RunRecorder, Snapshots, StableRank, TimeToPSNR, reports


def test_who_reports():
    assert isinstance(StableRank(), Reporting)
    assert isinstance(TimeToPSNR(), Reporting)
    assert isinstance(PeakMemory(), Reporting)
    assert not isinstance(Snapshots(), Reporting)
    assert not isinstance(RunRecorder(), Reporting)


def test_all_reports_together(fit):
    run = fit("simple", signals(1, 16, 12), [StableRank(), TimeToPSNR(), PeakMemory(), Snapshots()])
    assert list(reports(run.trainer)) == ["stable_rank", "time_to_psnr", "peak_memory"]


def test_nothing_to_say():
    assert reports(SimpleNamespace(callbacks=[object(), StableRank(), TimeToPSNR(), PeakMemory()])) == {}
