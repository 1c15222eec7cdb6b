"""The page in a real browser: sorting, one zoom, slider, error maps, frames, plots of rows, no errors on the console."""

import io
import shutil

import h5py
import numpy as np
import pytest
from PIL import Image

from pe_lightning.__main__ import main

pytestmark = [pytest.mark.slow, pytest.mark.browser]

EVIL = "<script>alert(1)</script>"
PICTURE, VIDEO, ROW = (12, 20), (40, 6, 10), (64,)
STILL = "matrix(1, 0, 0, 1, 0, 0)"


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    """Headless Chromium, which keeps what pages log."""
    webdriver = pytest.importorskip("selenium.webdriver", reason="needs selenium")
    program, driver = shutil.which("chromium"), shutil.which("chromedriver")
    if program is None or driver is None:
        pytest.skip("needs chromium and chromedriver")
    options = webdriver.ChromeOptions()
    options.binary_location = program
    for flag in ("--headless=new", "--no-sandbox", "--disable-gpu", "--no-first-run", "--window-size=1400,1000"):
        options.add_argument(flag)
    options.add_argument(f"--user-data-dir={tmp_path_factory.mktemp('profile')}")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    opened = webdriver.Chrome(options=options, service=webdriver.ChromeService(driver))
    yield opened
    opened.quit()


@pytest.fixture
def open_page(make_run, tmp_path, browser):
    """Opens a report of two runs, the better one first; nothing may have been logged when the test ends."""

    def make(grid, spoil=lambda path: None, **changes):
        for name, scores, noise in (("a/1", (30.0, 31.0), 0.05), ("b/1", (20.0, None), 0.2)):
            settings = {"signals": [EVIL, "y"], "grid": grid, "noise": noise, "num_params": len(name + str(noise))} | changes
            folder = make_run(name, scores, **settings) / "reconstructions"
            if name == "a/1":
                spoil(folder / "script-alert-1-script_comparison.h5")
        assert main(["compare", str(tmp_path), "--out", str(tmp_path / "report")]) == 0
        browser.get((tmp_path / "report" / "index.html").as_uri())
        return browser

    yield make
    assert [entry for entry in browser.get_log("browser") if "readback" not in entry["message"]] == []


def find(page, selector):
    return page.find_elements("css selector", selector)


def of_all(page, selector, expression):
    """An expression of every element that is found."""
    return page.execute_script(f"return [...document.querySelectorAll('{selector}')].map((e) => {expression})")


def choose(page, name, value):
    page.execute_script(
        """const control = document.forms[0][arguments[0]];
        control.value = arguments[1]; control.dispatchEvent(new Event('input', { bubbles: true }));""",
        name,
        value,
    )


def brightness(element):
    return np.asarray(Image.open(io.BytesIO(element.screenshot_as_png)).convert("RGB")).mean()


def wheel(page, element):
    from selenium.webdriver import ActionChains
    from selenium.webdriver.common.actions.wheel_input import ScrollOrigin

    origin = ScrollOrigin.from_element(element)
    ActionChains(page).scroll_from_origin(origin, 0, -600).perform()


def drag(page, element, x, y):
    from selenium.webdriver import ActionChains

    ActionChains(page).drag_and_drop_by_offset(element, x, y).perform()


def test_clicks_and_keys_sort_a_table(open_page):
    page = open_page(PICTURE)
    names = lambda: of_all(page, ".scores tbody th", "e.textContent")  # noqa: E731
    heads = {button.text.split()[0]: button for button in find(page, ".scores button")}
    assert names() == ["a/1", "bicubic interpolation", "b/1"]
    heads["parameters"].click()
    assert names() == ["a/1", "b/1", "bicubic interpolation"]
    heads["parameters"].click()
    assert names() == ["b/1", "a/1", "bicubic interpolation"]
    heads["run"].send_keys(" ")
    assert names() == ["a/1", "b/1", "bicubic interpolation"]


def test_all_columns_are_in_sight_in_a_window_of_1400_pixels(open_page):
    page = open_page(PICTURE, checkpoint_bytes=123_456_789)
    assert of_all(page, ".scroll:has(.scores)", "e.scrollWidth - e.clientWidth") == [0]


def test_wheel_drag_and_keys_move_all_pictures_at_once(open_page):
    page = open_page(PICTURE)
    transforms = lambda: of_all(page, ".view > img, .layers > img", "getComputedStyle(e).transform")  # noqa: E731
    view = find(page, ".view")[1]
    wheel(page, view)
    zoomed = transforms()
    assert len(zoomed) == 3
    assert zoomed[0].startswith("matrix(3.3")
    drag(page, view, 30, 20)
    before, after = ([float(n) for n in found[0][7:-1].split(",")] for found in (zoomed, transforms()))
    assert [b - a for a, b in zip(before[4:], after[4:], strict=True)] == pytest.approx([30, 20], abs=1)
    view.send_keys("0")
    assert set(transforms()) == {STILL}


def test_the_slider_uncovers_the_truth(open_page):
    page = open_page(PICTURE)
    find(page, "[value=slider]")[0].click()
    clips = lambda: of_all(page, ".over", "getComputedStyle(e).clipPath")  # noqa: E731
    assert all("50%" in clip for clip in clips())
    view = find(page, ".view")[1]
    drag(page, view.find_element("css selector", ".edge"), view.size["width"] // 4, 0)
    assert float(find(page, "[name=split]")[0].get_property("value")) == pytest.approx(75, abs=1)
    assert len(set(clips())) == 1
    assert "50%" not in clips()[0]
    assert set(of_all(page, ".view img", "getComputedStyle(e).transform")) == {STILL}


def test_error_maps_show_the_mean_error_on_the_chosen_scale(open_page):
    page = open_page(PICTURE)
    find(page, "[value=error]")[0].click()
    truth, better, worse = find(page, ".view")
    assert 0 < brightness(better) < brightness(worse)
    before, shown = brightness(worse), brightness(truth)
    choose(page, "largest", "1")
    assert brightness(worse) < before
    assert brightness(truth) == shown
    sources = of_all(page, ".view img", "e.src")
    choose(page, "signal", 1)
    assert set(sources).isdisjoint(of_all(page, ".view img", "e.src"))
    assert of_all(page, ".view + figcaption", "e.textContent") == ["ground truth", "a/131.00 dB", "b/1–"]


def test_a_frame_is_shown_in_all_panes(open_page):
    page = open_page(VIDEO, media="video", rate=25.0)
    sources = lambda: of_all(page, ".view img", "e.src")  # noqa: E731
    first = sources()
    assert len(set(first)) == 3  # ground truth and two runs
    view = find(page, ".view")[1]
    view.send_keys(".+")
    assert set(sources()).isdisjoint(first)
    assert page.switch_to.active_element == view  # the panes were not made anew
    view.send_keys(",0")
    assert sources() == first
    text = find(page, ".frame output")[0].text
    assert text.startswith("frame ")
    assert text.endswith(" s)")
    assert of_all(page, ".view img", "e.naturalWidth") == [10] * 5


def test_a_damaged_file_is_named_and_the_rest_is_shown(open_page):
    page = open_page(VIDEO, lambda path: path.write_bytes(b"no HDF5"))
    assert "script-alert-1-script_comparison.h5 cannot be read" in find(page, ".viewer")[0].text
    assert len(find(page, ".layers")) == 1


def labels(page):
    """What both plots show, after the next drawing."""
    page.execute_async_script("requestAnimationFrame(() => requestAnimationFrame(arguments[0]))")
    return of_all(page, ".plot", "e.ariaLabel.split(';')[0]")


def coloured(page, plot=0):
    """How many pixels of a plot have the colour of each run, and of the truth, within rounding."""
    labels(page)
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
    page = open_page(ROW)
    whole = labels(page)
    assert whole == [f"{what} of {EVIL}, samples 1 to 64 of 64" for what in ("value", "reconstruction − ground truth")]
    assert min(coloured(page)) > 50
    assert min(coloured(page, 1)[:2]) > 50
    plot, error = find(page, ".plot")
    wheel(page, plot)
    zoomed = labels(page)
    assert all("samples 2" in label for label in zoomed)
    drag(page, error, 400, 0)
    assert labels(page)[0] != zoomed[0]
    plot.send_keys("0")
    assert labels(page) == whole
    drawn = coloured(page)
    choose(page, "channel", 1)
    assert coloured(page) != drawn
    find(page, ".legend input")[1].click()
    assert [count > 50 for count in coloured(page)] == [True, False, True]
    choose(page, "signal", 1)
    assert labels(page)[0].startswith("value of y, samples")
    assert coloured(page)[1] == 0


def test_a_long_row_is_drawn_as_ranges(open_page):
    page = open_page((200_000,), channels=1, media="audio", rate=8000.0)
    assert min(coloured(page)[:2]) > 1000


def test_a_diverged_row_does_not_empty_the_plot(open_page):
    def spoil(path):
        with h5py.File(path, "r+") as file:
            file["reconstruction"][:63] = np.float32([[np.nan], [np.inf], [1e30]]).repeat(21, 0)

    assert min(coloured(open_page(ROW, spoil))[1:]) > 50
