#!/usr/bin/env bash
# A picture of a whole report, from top to bottom, as a headless Chromium draws it.
#   scripts/report-screenshot.sh RESULT.html OUT.png [WIDTH] [light|dark]     (default: 1280 light)
set -euo pipefail
[ $# -ge 2 ] || { sed -n '2,3s/^# *//p' "$0" >&2; exit 2; }

exec /usr/bin/python3 - "$(realpath "$1")" "$2" "${3:-1280}" "${4:-light}" <<'PYTHON'
import base64
import pathlib
import sys

from selenium import webdriver
from selenium.webdriver.chrome.options import Options
from selenium.webdriver.chrome.service import Service

page, picture, width, scheme = sys.argv[1:]
options = Options()
options.binary_location = "/usr/bin/chromium"
for argument in ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars"):
    options.add_argument(argument)
driver = webdriver.Chrome(service=Service("/usr/bin/chromedriver"), options=options)
try:
    driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [{"name": "prefers-color-scheme", "value": scheme}]})
    driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride",
                           {"width": int(width), "height": 800, "deviceScaleFactor": 1, "mobile": False})
    driver.get(pathlib.Path(page).as_uri())
    driver.execute_async_script(
        "const done = arguments[0]; requestAnimationFrame(() => requestAnimationFrame(() => done()));")
    shot = driver.execute_cdp_cmd("Page.captureScreenshot", {"format": "png", "captureBeyondViewport": True})
    pathlib.Path(picture).write_bytes(base64.b64decode(shot["data"]))
finally:
    driver.quit()
PYTHON
