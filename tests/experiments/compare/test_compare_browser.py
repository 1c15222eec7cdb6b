"""The page in a real browser: sorting, linked zoom, slider, error maps, no errors on the console."""

import pytest

from pe_lightning.__main__ import main

webdriver = pytest.importorskip("selenium.webdriver", reason="needs selenium")
wheel_input = pytest.importorskip("selenium.webdriver.common.actions.wheel_input", reason="needs selenium")

pytestmark = pytest.mark.slow


@pytest.fixture
def page(make_run, tmp_path, browser):
    """A report of three runs, opened from disk; nothing may have been logged when the test ends."""
    common = {"pictures": True, "signals": ["x", "y", "<script>alert(1)</script>"]}
    make_run("a/1", (30.0, 31.0, 35.0), noise=0.05, num_params=300, **common)
    make_run("b/1", (29.0, None, 33.0), noise=0.1, num_params=200, **common)
    make_run("c/1", (25.0, 26.0, 27.0), noise=0.2, num_params=1000, **common)
    assert main(["compare", str(tmp_path), "--out", str(tmp_path / "report")]) == 0
    browser.get((tmp_path / "report" / "index.html").as_uri())
    yield browser
    assert browser.get_log("browser") == []


def names(page):
    return page.execute_script("return [...document.querySelectorAll('.scores tbody th')].map(e => e.textContent)")


def head(page, text):
    return page.execute_script(
        "return [...document.querySelectorAll('.scores thead button')].find(e => e.textContent === arguments[0])", text
    )


def transforms(page):
    return page.execute_script("return [...document.querySelectorAll('.layer > *')].map(e => getComputedStyle(e).transform)")


def test_a_click_sorts_and_says_so(page):
    assert names(page) == ["a/1", "c/1", "bicubic interpolation", "b/1"]
    head(page, "parameters").click()
    assert names(page) == ["c/1", "a/1", "b/1", "bicubic interpolation"]
    head(page, "parameters").click()
    assert names(page) == ["b/1", "a/1", "c/1", "bicubic interpolation"]
    states = page.execute_script(
        "return [...document.querySelectorAll('.scores thead th')].map(e => e.getAttribute('aria-sort'))"
    )
    assert [state for state in states if state != "none"] == ["ascending"]


def test_the_keyboard_sorts(page):
    page.execute_script("arguments[0].focus()", head(page, "run"))
    page.switch_to.active_element.send_keys(" ")
    assert names(page) == ["a/1", "b/1", "bicubic interpolation", "c/1"]


def test_wheel_and_drag_move_all_pictures_at_once(page):
    view = page.find_elements("css selector", ".view")[1]
    actions = webdriver.ActionChains(page)
    origin = wheel_input.ScrollOrigin.from_element(view)
    actions.scroll_from_origin(origin, 0, -600).perform()
    zoomed = transforms(page)
    assert len(zoomed) == 4
    assert len(set(zoomed)) == 1
    assert zoomed[0].startswith("matrix(3.3")
    webdriver.ActionChains(page).drag_and_drop_by_offset(view, 30, 20).perform()
    moved = transforms(page)
    assert len(set(moved)) == 1
    before, after = ([float(n) for n in m[7:-1].split(",")] for m in (zoomed[0], moved[0]))
    assert [b - a for a, b in zip(before[4:], after[4:], strict=True)] == pytest.approx([30, 20], abs=1)
    view.send_keys("0")
    assert set(transforms(page)) == {"matrix(1, 0, 0, 1, 0, 0)"}


def test_the_keyboard_zooms(page):
    page.find_element("css selector", ".view").send_keys("++")
    assert set(transforms(page)) != {"matrix(1, 0, 0, 1, 0, 0)"}
    assert len(set(transforms(page))) == 1


def test_the_slider_uncovers_the_truth(page):
    page.find_element("css selector", "input[value=slider]").click()
    clips = "return [...document.querySelectorAll('.over')].map(e => getComputedStyle(e).clipPath)"
    half = page.execute_script(clips)
    assert len(half) == 3
    assert all("50%" in clip for clip in half)
    view = page.find_elements("css selector", ".view")[1]
    edge = view.find_element("css selector", ".edge")
    webdriver.ActionChains(page).drag_and_drop_by_offset(edge, view.size["width"] // 4, 0).perform()
    share = float(page.execute_script("return document.querySelector('[aria-label^=share]').value"))
    assert share == pytest.approx(75, abs=1)
    moved = page.execute_script(clips)
    assert len(set(moved)) == 1
    assert set(moved).isdisjoint(half)
    assert transforms(page)[0] == "matrix(1, 0, 0, 1, 0, 0)"


def test_error_maps_are_darker_for_better_runs(page):
    page.find_element("css selector", "input[value=error]").click()
    brightness = page.execute_async_script(
        """const done = arguments[0];
        const sums = () => [...document.querySelectorAll('canvas')].map((canvas) => {
          const {data} = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height);
          return data.reduce((sum, value, k) => sum + (k % 4 < 3 ? value : 0), 0);
        });
        const check = () => {
          const found = sums();
          found.length === 3 && found.every((s) => s > 0) ? done(found) : requestAnimationFrame(check);
        };
        check();"""
    )
    captions = page.execute_script("return [...document.querySelectorAll('figcaption strong')].map(e => e.textContent)")
    assert captions == ["ground truth", "a/1", "c/1", "b/1"]
    by_name = dict(zip(captions[1:], brightness, strict=True))
    assert by_name["a/1"] < by_name["b/1"] < by_name["c/1"]


def test_another_signal(page):
    first = page.execute_script("return document.querySelectorAll('.view img')[1].src")
    page.execute_script(
        "const s = document.querySelector('.controls select'); s.value = 1; s.dispatchEvent(new Event('change'))"
    )
    assert page.execute_script("return document.querySelectorAll('.view img')[1].src") != first
    assert page.execute_script("return [...document.querySelectorAll('.view img')].every(i => i.src.startsWith('data:'))")


def test_an_edited_script_would_not_run(page, tmp_path):
    """The policy holds: what a name might smuggle in is not run."""
    path = tmp_path / "report" / "index.html"
    path.write_text(path.read_text().replace("</main>", "<script>document.title = 'run'</script></main>"))
    page.get(path.as_uri())
    assert page.title != "run"
    assert "Content Security Policy" in page.get_log("browser")[0]["message"]
