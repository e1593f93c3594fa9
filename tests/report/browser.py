"""One page in a browser that Selenium drives, as tests use it."""

from __future__ import annotations

import json
from typing import Any

from tests.support.patience import PATIENCE

TOOK = "performance.getEntriesByType('navigation')[0].loadEventEnd"
"""What a page took until it was loaded, in milliseconds, as a script."""


class Page:
    """One page in the browser, and what it asked for and complained of."""

    def __init__(self, driver: Any) -> None:
        self.driver = driver

    def open(self, url: str, *, dark: bool = False, width: int = 1280, height: int = 900) -> Page:
        """Load a page anew in a window of this size; what the page before it did is forgotten."""
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
        """Run a script and return what it returns, when that is there."""
        return self.driver.execute_script(script, *arguments)

    def wait(self, script: str) -> Any:
        """Wait until a script returns something true."""
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
        """Return the names that the overview shows, in order."""
        found: list[str] = self.run(
            "return [...document.querySelectorAll('#jobs tr')].filter(r => r.offsetParent).map(r => r.dataset.name)"
        )
        return found

    def press(self, *keys: str) -> None:
        """Press keys where the focus is."""
        from selenium.webdriver.common.action_chains import ActionChains

        for key in keys:
            ActionChains(self.driver, duration=0).send_keys(key).perform()

    def focused(self) -> str:
        """Return what the focus is on: its text, or its id."""
        return str(self.run("const e = document.activeElement; return e.innerText.trim() || e.id || e.tagName"))

    def complaints(self) -> list[str]:
        """Return what the console has said since the last call, of every level."""
        return [str(entry["message"]) for entry in self.driver.get_log("browser")]

    def requests(self) -> list[str]:
        """Return the URLs that were asked for since the last call."""
        events = [json.loads(entry["message"])["message"] for entry in self.driver.get_log("performance")]
        return [event["params"]["request"]["url"] for event in events if event["method"] == "Network.requestWillBeSent"]

    def accessibility(self) -> list[dict[str, Any]]:
        """Return the nodes of the accessibility tree that a screen reader gets: role, name and properties."""
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
