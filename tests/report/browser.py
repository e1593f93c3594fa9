"""A page in a browser that Selenium drives, with the actions that the tests need."""

from __future__ import annotations

import json
from typing import Any

from tests.support.patience import PATIENCE

TOOK = "performance.getEntriesByType('navigation')[0].loadEventEnd"
"""A script that returns how many milliseconds the page took to load."""


class Page:
    """One page in the browser, with the requests that it sent and the messages on its console."""

    def __init__(self, driver: Any) -> None:
        self.driver = driver

    def open(self, url: str, *, dark: bool = False, width: int = 1280, height: int = 900) -> Page:
        """Load a page in a window of this size, and drop the requests and messages of the previous page."""
        media = [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]
        self.cdp("Emulation.setEmulatedMedia", features=media)
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600}
        self.cdp("Emulation.setDeviceMetricsOverride", **size)
        self.driver.get("about:blank")
        self.complaints(), self.requests()
        self.driver.get(url)
        return self

    def cdp(self, command: str, **arguments: Any) -> Any:
        return self.driver.execute_cdp_cmd(command, arguments)

    def run(self, script: str, *arguments: Any) -> Any:
        """Run a script in the page and return its result."""
        return self.driver.execute_script(script, *arguments)

    def wait(self, script: str) -> Any:
        """Wait until a script returns a true value, and return it."""
        from selenium.webdriver.support.ui import WebDriverWait

        return WebDriverWait(self.driver, PATIENCE, poll_frequency=0.02).until(lambda _: self.run(script))

    def open_job(self, name: str) -> Page:
        """Click on a job and wait for its details."""
        links = "[...document.querySelectorAll('#jobs a')]"
        link = self.run(f"return {links}.find(a => a.textContent === arguments[0])", name)
        self.run("arguments[0].scrollIntoView()", link)
        link.click()
        self.wait("return document.querySelector('#details .say')")
        return self

    def visible_jobs(self) -> list[str]:
        """Return the names of the jobs that the overview shows, in order."""
        found: list[str] = self.run(
            "return [...document.querySelectorAll('#jobs tr')].filter(r => r.offsetParent).map(r => r.dataset.name)"
        )
        return found

    def press(self, *keys: str) -> None:
        """Press keys, one after the other, on the element that has the focus."""
        from selenium.webdriver.common.action_chains import ActionChains

        for key in keys:
            ActionChains(self.driver, duration=0).send_keys(key).perform()

    def focused(self) -> str:
        """Return the text of the element that has the focus, or its id or tag if it has no text."""
        return str(self.run("const e = document.activeElement; return e.innerText.trim() || e.id || e.tagName"))

    def complaints(self) -> list[str]:
        """Return the console messages of every level since the last call."""
        return [str(entry["message"]) for entry in self.driver.get_log("browser")]

    def requests(self) -> list[str]:
        """Return the URLs that the page requested since the last call."""
        events = [json.loads(entry["message"])["message"] for entry in self.driver.get_log("performance")]
        return [event["params"]["request"]["url"] for event in events if event["method"] == "Network.requestWillBeSent"]

    def accessibility(self) -> list[dict[str, Any]]:
        """Return role, name and description of each node of the accessibility tree, as a screen reader gets them."""
        nodes = self.cdp("Accessibility.getFullAXTree")["nodes"]
        return [
            {
                "role": node["role"]["value"],
                "name": node.get("name", {}).get("value", ""),
                "description": node.get("description", {}).get("value", ""),
            }
            for node in nodes
            if not node.get("ignored") and "role" in node
        ]
