# SPDX-License-Identifier: Apache-2.0
"""One headless Chromium for all tests, and the test case that opens reports in it. The driver listens on a
free port of loopback, and both end with the tests. Every page is checked at the end of its test:
it has asked the network for nothing and the console has no errors.
"""
import json
import pathlib
import subprocess
import tempfile
import unittest

from selenium import webdriver
from selenium.webdriver.chrome.options import Options
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.by import By

REPORT_TOOL = None
_driver = None
_folder = None


def driver():
    global _driver, _folder
    if _driver is None:
        options = Options()
        options.binary_location = "/usr/bin/chromium"
        for argument in ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"):
            options.add_argument(argument)
        options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
        _driver = webdriver.Chrome(service=Service("/usr/bin/chromedriver"), options=options)
        _folder = tempfile.TemporaryDirectory()
    return _driver


def stop():
    if _driver is not None:
        _driver.quit()
        _folder.cleanup()


class PageCase(unittest.TestCase):
    def setUp(self):
        self.driver = driver()
        self.emulate()
        self.resize(1280)
        self.logs()  # what earlier pages left

    def tearDown(self):
        errors, requests = self.logs()
        self.assertEqual(errors, [], "on the console")
        self.assertEqual(requests, [], "asked of the network")

    def open(self, results, title="A report"):
        """Shows the report of `results`, an object or the text of one."""
        text = results if isinstance(results, str) else json.dumps(results)
        source, page = pathlib.Path(_folder.name, "results.json"), pathlib.Path(_folder.name, "page.html")
        source.write_text(text)
        subprocess.run([REPORT_TOOL, source, page, title], check=True)
        self.driver.get(page.as_uri())
        self.settle()

    def settle(self):
        """Until charts are drawn: observers run before the second frame."""
        self.driver.execute_async_script(
            "const done = arguments[0]; requestAnimationFrame(() => requestAnimationFrame(() => done()));")

    def logs(self):
        errors = [entry["message"] for entry in self.driver.get_log("browser")]
        requests = {}
        for entry in self.driver.get_log("performance"):
            message = json.loads(entry["message"])["message"]
            params = message["params"]
            if message["method"] == "Network.requestWillBeSent":
                requests[params["requestId"]] = params["request"]["url"]
            elif message["method"] == "Network.loadingFailed" and params.get("blockedReason") == "csp":
                requests.pop(params["requestId"], None)  # stopped before it left; the console has it
        own = ("data:", "blob:", f"file://{_folder.name}/page.html")
        return errors, [url for url in requests.values() if not url.startswith(own)]

    def emulate(self, scheme="light", media=""):
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": media, "features": [
            {"name": "prefers-color-scheme", "value": scheme}]})

    def resize(self, width, height=900):
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", {
            "width": width, "height": height, "deviceScaleFactor": 1, "mobile": False})
        self.settle()

    def js(self, script, *arguments):
        return self.driver.execute_script(script, *arguments)

    def all(self, selector):
        return self.driver.find_elements(By.CSS_SELECTOR, selector)

    def one(self, selector):
        found = self.all(selector)
        self.assertEqual(len(found), 1, f"elements that are {selector}")
        return found[0]

    def values(self, selector, attribute="data-value"):
        """That attribute of all such elements, shown or not, as numbers."""
        return [float(value) for value in self.texts(selector, attribute)]

    def texts(self, selector, attribute):
        return self.js("return [...document.querySelectorAll(arguments[0])].map(e => e.getAttribute(arguments[1]))",
                       selector, attribute)

    def press(self, *keys):
        """Real key events, to whatever has the focus."""
        actions = ActionChains(self.driver)
        for key in keys:
            actions.send_keys(key)
        actions.perform()

    def focused(self):
        return self.driver.switch_to.active_element
