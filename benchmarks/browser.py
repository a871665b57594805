"""A Streamlit server and its page in Chromium, which measures its own times.

A chart is drawn in the first animation frame in which its cells are on the page. The clock is
`performance.now()`, which starts with the navigation.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator, Sequence
from pathlib import Path

from playwright.sync_api import Browser, Page, TimeoutError, ViewportSize, sync_playwright

from run import CHROMIUM_NAMES

ROOT = Path(__file__).resolve().parent.parent
DASHBOARD = ROOT / "app.py"
BARE_PAGE = Path(__file__).with_name("bare_page.py")
VIEWPORT: ViewportSize = {"width": 1440, "height": 900}  # pixels
PATIENCE = 240.0  # seconds to wait for a server, a chart or a run
FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    # Two pages are open at once; the hidden one must not be slowed down.
    "--disable-background-timer-throttling",
    "--disable-renderer-backgrounding",
    "--disable-backgrounding-occluded-windows",
)

# Plotly draws a heatmap as an <image>. If its content changes, the chart was redrawn. Charts without a
# heatmap do not count, nor do replaced charts, which Streamlit keeps hidden until the end of the script.
WATCH = """
(() => {
  const current = selector => [...document.querySelectorAll(selector)]
    .filter(figure => !figure.closest("[data-retained]"));
  const maps = () => current(".js-plotly-plot")
    .map(chart => [...chart.querySelectorAll(".heatmaplayer image")]
      .map(image => image.getAttribute("href") || image.getAttribute("xlink:href") || "").join("|"))
    .filter(signature => signature !== "");
  const drawn = () => [...current(".drawing svg"), ...maps()];
  const watch = window.benchmark = {drawn, first: null, pressed: null, redrawn: null, before: null};
  // It looks in each frame only while it waits, because a look takes time that the page lacks.
  const frame = () => {
    const now = performance.now(), charts = watch.drawn();
    if (watch.first === null && charts.length >= CHARTS) watch.first = now;
    if (watch.pressed !== null && watch.redrawn === null && charts.length === watch.before.length
        && charts.every((signature, place) => signature !== watch.before[place]))
      watch.redrawn = now;
    if (watch.first === null || (watch.pressed !== null && watch.redrawn === null))
      requestAnimationFrame(frame);
  };
  requestAnimationFrame(frame);
  window.addEventListener("keydown", event => {
    if (event.key !== "Enter" || !event.isTrusted) return;
    watch.before = watch.drawn();
    watch.redrawn = null;
    watch.pressed = performance.now();
    requestAnimationFrame(frame);
  }, true);
})();
"""

# A page that was hidden is redrawn first.
AT_REST = """
() => new Promise(rest => {
  let quick = 0, last = performance.now();
  const frame = now => {
    quick = now - last < 25 ? quick + 1 : 0;
    last = now;
    if (quick < 6) requestAnimationFrame(frame);
    else requestIdleCallback(() => rest(true));
  };
  requestAnimationFrame(frame);
})
"""

# During a run, a Cancel button replaces the button that starts it.
CLICK_RUN = """
() => {
  const watch = window.benchmark;
  const button = words => [...document.querySelectorAll("button")]
    .find(one => words.some(word => one.textContent.includes(word)));
  let started = false;
  // A look in every frame would take time that the run lacks.
  const observer = new MutationObserver(() => {
    started ||= Boolean(button(["Cancel"]));
    if (!started || !button(["Run again"]) || button(["Cancel"])) return;
    observer.disconnect();
    requestAnimationFrame(() => watch.ran = performance.now());
  });
  watch.ran = null;
  watch.clicked = performance.now();
  observer.observe(document.body, {subtree: true, childList: true, characterData: true});
  button(["Build and run", "Run again"]).click();
}
"""


class Server:
    """A Streamlit server of one script that has started and served no page yet."""

    def __init__(self, script: Path) -> None:
        port = free_port()
        self.url = f"http://127.0.0.1:{port}"
        options = {"server.port": port, "server.address": "127.0.0.1", "server.headless": "true"}
        self._popen = subprocess.Popen(
            [sys.executable, "-m", "streamlit", "run", str(script)]
            + [f"--{name}={value}" for name, value in options.items()],
            cwd=ROOT,  # with .streamlit/, so that both pages have the same settings
            env=os.environ | {"PYTHONPATH": str(ROOT)},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            self._await_health()
        except BaseException:
            self.close()
            raise

    def _await_health(self) -> None:
        give_up = time.monotonic() + PATIENCE
        while True:
            try:
                with urllib.request.urlopen(f"{self.url}/_stcore/health", timeout=5):
                    return
            except OSError as error:
                if self._popen.poll() is not None or time.monotonic() > give_up:
                    raise RuntimeError(f"the server did not start: {error}") from None
                time.sleep(0.02)

    def close(self) -> None:
        """Stop the server and its workers."""
        self._popen.terminate()
        try:
            self._popen.wait(10)
        except subprocess.TimeoutExpired:
            self._popen.kill()
            self._popen.wait()


@contextlib.contextmanager
def chromium(flags: Sequence[str] = FLAGS) -> Iterator[Browser]:
    """Open a Chromium of this machine.

    Raises:
      RuntimeError: this machine has no Chromium.
    """
    path = next(filter(None, map(shutil.which, CHROMIUM_NAMES)), None)
    if path is None:
        raise RuntimeError(f"there is no Chromium on this machine ({', '.join(CHROMIUM_NAMES)})")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=list(flags))
        try:
            yield browser
        finally:
            browser.close()


def open_page(browser: Browser, url: str, charts: int) -> tuple[Page, float]:
    """Return a page with an empty cache, and the seconds until it has drawn this number of charts."""
    page = browser.new_context(viewport=VIEWPORT).new_page()
    page.set_default_timeout(PATIENCE * 1e3)
    page.add_init_script(WATCH.replace("CHARTS", str(charts)))
    page.goto(url, wait_until="commit")
    _await(page, "window.benchmark?.first", "the first chart")
    return page, page.evaluate("window.benchmark.first") / 1e3


def change_field(page: Page, label: str, text: str) -> float:
    """Type into a text field; return the seconds from Enter until every chart was redrawn."""
    page.bring_to_front()
    page.evaluate(AT_REST)
    page.evaluate("window.benchmark.pressed = window.benchmark.redrawn = null")
    page.get_by_label(label, exact=True).fill(text)
    page.keyboard.press("Enter")
    _await(page, "window.benchmark.redrawn", f"a chart that follows {label}")
    return page.evaluate("window.benchmark.redrawn - window.benchmark.pressed") / 1e3


def click_run(page: Page) -> float:
    """Click the button that runs the layout; return the seconds until the page shows the result."""
    page.bring_to_front()
    page.evaluate(CLICK_RUN)
    _await(page, "window.benchmark.ran", "the result of the run")
    return page.evaluate("window.benchmark.ran - window.benchmark.clicked") / 1e3


def settle(page: Page) -> None:
    """Wait for the end of the page's script, so that it does not slow down the next measurement."""
    state = "document.querySelector('[data-testid=stApp]')?.dataset.testScriptState"
    _await(page, f"{state} === 'notRunning'", "the end of its script")


def _await(page: Page, condition: str, what: str) -> None:
    try:
        # Rarely, because polling slows the page down; the page has recorded the time.
        page.wait_for_function(condition, polling=50)
    except TimeoutError:
        said = page.locator("[data-testid=stAlert], [data-testid=stException]").all_inner_texts()
        raise RuntimeError(
            f"the page did not show {what} within {PATIENCE:g} s"
            + (f", but says: {' '.join(' '.join(said).split())}" if said else "")
        ) from None


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]
