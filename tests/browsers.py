"""A browser without a window, for the tests of pages. Needs Chromium with its driver."""

import contextlib
import shutil
from collections.abc import Iterator

import pytest

BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
DRIVER = shutil.which("chromedriver")


@contextlib.contextmanager
def chromium(width: int, height: int, scheme: str = "light", level: str = "ALL") -> Iterator:
    """Opens a browser that logs from a level on, and skips the tests that ask for it where there is none."""
    webdriver = pytest.importorskip("selenium.webdriver")
    if not (BROWSER and DRIVER):
        pytest.skip("Chromium and chromedriver are not installed")
    options = webdriver.ChromeOptions()
    options.binary_location = BROWSER
    for argument in (
        *("headless=new", "no-sandbox", "disable-gpu", "disable-dev-shm-usage", "disable-extensions"),
        *(f"window-size={width},{height}", f"blink-settings=preferredColorScheme={['dark', 'light'].index(scheme)}"),
    ):
        options.add_argument(f"--{argument}")
    options.set_capability("goog:loggingPrefs", {"browser": level})
    with webdriver.Chrome(options=options, service=webdriver.ChromeService(DRIVER)) as browser:
        yield browser
