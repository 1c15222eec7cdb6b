"""Rows, videos and volumes in a real browser: plots that zoom together, a frame for all panes, error maps."""

import pytest

from pe_lightning.__main__ import main
from pe_lightning.data.batches import SignalInfo
from pe_lightning.data.signals import Scaling

webdriver = pytest.importorskip("selenium.webdriver", reason="needs selenium")
wheel_input = pytest.importorskip("selenium.webdriver.common.actions.wheel_input", reason="needs selenium")

pytestmark = pytest.mark.slow

EVIL = "<script>alert(1)</script>"
SUM = """(canvas) => canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height).data
  .reduce((sum, value, k) => sum + (k % 4 < 3 ? value : 0), 0)"""


@pytest.fixture
def open_page(make_run, tmp_path, browser):
    """Opens a report of two runs, best first, on signals of this grid; nothing may have been logged when the test ends."""

    def make(grid, spoil=lambda folder: None, options=(), **changes):
        common = {"pictures": True, "signals": [EVIL, "y"], "grid": grid} | changes
        spoil(make_run("a/1", (30.0, 31.0), noise=0.05, **common))
        make_run("b/1", (20.0, 21.0), noise=0.2, **common)
        assert main(["compare", str(tmp_path), "--out", str(tmp_path / "report"), *options]) == 0
        browser.get((tmp_path / "report" / "index.html").as_uri())
        return browser

    yield make
    # a plot is not made to be read back, as the tests below do
    assert [entry for entry in browser.get_log("browser") if "readback" not in entry["message"]] == []


def video(grid):
    return SignalInfo(("x", "y"), tuple(grid), 3, Scaling("uint8", (0.0,), (255.0,)), 25.0, "video")


def sources(page):
    return page.execute_script("return [...document.querySelectorAll('.view img')].map((image) => image.src)")


def turn(page, frame):
    page.execute_script(
        """const slider = document.querySelector('.frames input');
        slider.value = arguments[0]; slider.dispatchEvent(new Event('input'));""",
        frame,
    )


def errors(page, count, not_like=None):
    """The brightness of the error maps, once they are drawn, and differ from earlier ones."""
    return page.execute_async_script(
        f"""const [count, before, done] = arguments;
        const check = () => {{
          const found = [...document.querySelectorAll('.view canvas')].map({SUM});
          const ready = found.length === count && found.every((sum, k) => sum > 0 && (!before || sum !== before[k]));
          ready ? done(found) : requestAnimationFrame(check);
        }};
        check();""",
        count,
        not_like,
    )


def test_a_frame_is_shown_in_all_panes(open_page):
    page = open_page((40, 6, 10), info=video((40, 6, 10)))
    first = sources(page)
    assert len(set(first)) == 3  # ground truth and two runs
    text = page.find_element("css selector", ".frames output").text
    turn(page, 2)
    second = sources(page)
    assert set(first).isdisjoint(second)
    assert page.find_element("css selector", ".frames output").text != text
    page.find_elements("css selector", ".view")[1].send_keys("..,")
    assert set(sources(page)).isdisjoint(second)
    turn(page, 2)
    assert sources(page) == second
    number = page.find_element("css selector", ".frames output").text
    assert number.startswith("frame ")
    assert number.endswith(" s)")
    assert page.execute_async_script(
        """const done = arguments[0];
        const images = [...document.querySelectorAll('.view img')];
        Promise.all(images.map((image) => image.decode())).then(() => done(images.map((i) => i.naturalWidth)))"""
    ) == [10, 10, 10]


def test_keys_turn_frames_and_zoom_all_panes(open_page):
    page = open_page((40, 6, 10))
    before = sources(page)
    view = page.find_elements("css selector", ".view")[2]
    view.send_keys(".+")
    assert set(sources(page)).isdisjoint(before)
    transforms = page.execute_script(
        "return [...document.querySelectorAll('.layer > *')].map(e => getComputedStyle(e).transform)"
    )
    assert len(set(transforms)) == 1
    assert transforms[0].startswith("matrix(1.25")
    assert page.switch_to.active_element == view  # the panes were not made anew
    view.send_keys(",0")
    assert sources(page) == before


def test_error_maps_and_slider_follow_the_frame(open_page):
    page = open_page((40, 6, 10))
    page.find_element("css selector", "input[value=error]").click()
    first = errors(page, 2)
    assert first[0] < first[1]
    turn(page, 1)
    second = errors(page, 2, first)
    assert second[0] < second[1]
    page.find_element("css selector", "input[value=slider]").click()
    before = page.execute_script("return [...document.querySelectorAll('.over img')].map((image) => image.src)")
    assert len(set(before)) == 1
    turn(page, 3)
    after = page.execute_script("return [...document.querySelectorAll('.over img')].map((image) => image.src)")
    assert after == [sources(page)[0]] * 2
    assert set(after).isdisjoint(before)


def test_images_have_no_frames(open_page):
    page = open_page((12, 20))
    assert not page.find_element("css selector", ".frames").is_displayed()


@pytest.mark.parametrize("grid", [(40, 6, 10), (64,)])
def test_a_damaged_file_is_named_and_the_rest_is_shown(open_page, grid):
    def spoil(folder):
        for path in (folder / "reconstructions").glob("*_comparison.h5"):
            path.write_bytes(b"no HDF5")

    page = open_page(grid, spoil)
    why = page.find_element("css selector", ".viewer").text
    assert "script-alert-1-script_comparison.h5 cannot be read" in why
    if grid == (64,):
        assert len(page.find_elements("css selector", ".legend input")) == 1
    else:
        assert len(set(sources(page))) == 2


def plots(page):
    """Of both plots: what is in it, as text and as a sum of its pixels, after the next drawing."""
    return page.execute_async_script(
        f"""const done = arguments[0];
        requestAnimationFrame(() => requestAnimationFrame(() => done(
          [...document.querySelectorAll('.plot')].map((canvas) => [canvas.ariaLabel, ({SUM})(canvas)])))); """
    )


def coloured(page, plot=0):
    """How many pixels of a plot have each run's colour, within rounding."""
    return page.execute_script(
        """const canvas = document.querySelectorAll('.plot')[arguments[0]];
        const { data } = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height);
        return ['--c0', '--c1', '--text'].map((name) => {
          const colour = getComputedStyle(canvas).getPropertyValue(name).trim();
          const wanted = [1, 3, 5].map((k) => parseInt(colour.slice(k, k + 2), 16));
          let count = 0;
          for (let k = 0; k < data.length; k += 4)
            if (data[k + 3] > 200 && wanted.every((value, c) => Math.abs(data[k + c] - value) < 6)) count++;
          return count;
        });""",
        plot,
    )


def test_rows_are_drawn_and_zoom_together(open_page):
    page = open_page((64,))
    whole = plots(page)
    assert [label.partition(";")[0] for label, _ in whole] == [
        f"value of {EVIL}, samples 1 to 64 of 64",
        f"reconstruction − ground truth of {EVIL}, samples 1 to 64 of 64",
    ]
    assert min(coloured(page)) > 50
    assert min(coloured(page, 1)[:2]) > 50
    plot, error = page.find_elements("css selector", ".plot")
    origin = wheel_input.ScrollOrigin.from_element(plot)
    webdriver.ActionChains(page).scroll_from_origin(origin, 0, -600).perform()
    zoomed = plots(page)
    assert all("samples 2" in label and label != before for (label, _), (before, _) in zip(zoomed, whole, strict=True))
    assert all(pixels != before for (_, pixels), (_, before) in zip(zoomed, whole, strict=True))
    webdriver.ActionChains(page).drag_and_drop_by_offset(error, 400, 0).perform()
    moved = plots(page)
    assert moved[0][0] != zoomed[0][0]
    plot.send_keys("0")
    assert plots(page) == whole
    error.send_keys("++")
    assert plots(page)[0][0] != whole[0][0]
    error.send_keys("--------")
    assert plots(page) == whole


def test_a_run_can_be_taken_out_of_the_plot(open_page):
    page = open_page((64,))
    plots(page)
    before = coloured(page)
    page.find_elements("css selector", ".legend input")[1].click()
    plots(page)
    after = coloured(page)
    assert before[1] > 50
    assert after[1] == 0
    assert after[0] >= before[0]


def test_channels_and_signals_can_be_chosen(open_page):
    page = open_page((64,))
    pixels = [plots(page)[0][1]]
    for select, value in ((2, 1), (1, 1)):
        page.execute_script(
            """const select = document.querySelectorAll('.controls select')[arguments[0] - 1];
            select.value = arguments[1]; select.dispatchEvent(new Event('change'));""",
            select,
            value,
        )
        pixels.append(plots(page)[0][1])
    assert len(set(pixels)) == 3
    assert plots(page)[0][0].startswith("value of y, samples")


def test_a_long_row_is_drawn_as_ranges(open_page):
    page = open_page((200_000,), channels=1, info=SignalInfo(("x", "y"), (200_000,), 1, Scaling("float32"), 8000.0, "audio"))
    assert "as the range of every 7 samples" in page.find_element("css selector", "main").text
    plots(page)
    assert min(coloured(page)[:2]) > 1000
    page.find_element("css selector", ".plot").send_keys("+" * 40)
    assert "samples 99" in plots(page)[0][0]
    assert min(coloured(page)[:2]) > 1000


def test_a_diverged_row_does_not_empty_the_plot(open_page):
    import h5py
    import numpy as np

    def spoil(folder):
        for path in (folder / "reconstructions").glob("*_comparison.h5"):
            with h5py.File(path, "r+") as file:
                file["reconstruction"][:] = np.float32([[np.nan], [np.inf], [1e30]]).repeat(22, 0)[:64].repeat(3, 1)

    page = open_page((64,), spoil)
    plots(page)
    assert coloured(page)[1] > 50
    assert coloured(page)[2] > 50
