"""A WebDriver client of chromedriver: HTTP and JSON of the standard library.

`Browser` starts chromedriver on a free port and Chromium with a temporary profile. `close` ends both; it runs at the end of the
process too, also after an interrupt.
"""

import atexit
import base64
import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import tempfile
import threading
import time
import urllib.error
import urllib.request

KEYS = {
    "backspace": "\ue003", "tab": "\ue004", "enter": "\ue007", "shift": "\ue008", "control": "\ue009", "escape": "\ue00c",
    "left": "\ue012", "up": "\ue013", "right": "\ue014", "down": "\ue015",
}
START_SECONDS = 30
COMMAND_SECONDS = 60
WAIT_SECONDS = 20
POLL_SECONDS = 0.05


class WebDriverError(Exception):
    """An error that chromedriver returned."""


class Browser:
    """A Chromium and the chromedriver that drives it."""

    def __init__(self):
        atexit.register(self.close)
        self.profile = tempfile.mkdtemp(prefix="oxtsdb-browser-")
        self.session = None
        # In a session of the system of its own, so that `close` finds all of its processes.
        self.driver = subprocess.Popen(
            ["chromedriver", "--port=0"], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            env={**os.environ, "TZ": "UTC"}, start_new_session=True)
        self.address = f"http://127.0.0.1:{self._port()}"
        # Chromedriver blocks when nothing reads its output.
        threading.Thread(target=self.driver.stdout.read, daemon=True).start()
        options = {"args": [
            "--headless=new", "--no-sandbox", f"--user-data-dir={self.profile}", "--window-size=1280,800", "--hide-scrollbars",
            "--disable-gpu", "--disable-dev-shm-usage", "--disable-background-networking", "--disable-component-update", "--no-first-run"]}
        capabilities = {"browserName": "chrome", "goog:chromeOptions": options, "goog:loggingPrefs": {"browser": "ALL", "performance": "ALL"}}
        created = self._request("POST", "/session", {"capabilities": {"alwaysMatch": capabilities}})
        self.session = f"/session/{created['sessionId']}"

    def close(self):
        """Ends Chromium and chromedriver, and removes the profile."""
        atexit.unregister(self.close)
        if self.session:
            with contextlib.suppress(OSError, WebDriverError):
                self._request("DELETE", self.session, seconds=10)
            self.session = None
        self._end_processes()
        self.driver.wait()
        shutil.rmtree(self.profile, ignore_errors=True)

    def _port(self):
        deadline = threading.Timer(START_SECONDS, self.driver.kill)
        deadline.start()
        lines = []
        try:
            for line in self.driver.stdout:
                lines.append(line)
                if match := re.search(r"started successfully on port (\d+)", line):
                    return match[1]
        finally:
            deadline.cancel()
        raise WebDriverError(f"chromedriver did not start: {''.join(lines)}")

    def _end_processes(self):
        """Kills the processes of chromedriver's session: Chromium outlives a chromedriver that is killed."""
        for pid in filter(str.isdigit, os.listdir("/proc")):
            # A process may have ended meanwhile.
            with contextlib.suppress(ProcessLookupError, FileNotFoundError, PermissionError):
                if os.getsid(int(pid)) == self.driver.pid:
                    os.kill(int(pid), signal.SIGKILL)

    def _request(self, method, path, body=None, seconds=COMMAND_SECONDS):
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.address + path, data, {"Content-Type": "application/json"}, method=method)
        try:
            with urllib.request.urlopen(request, timeout=seconds) as response:
                return json.load(response)["value"]
        except urllib.error.HTTPError as error:
            value = json.load(error)["value"]
            raise WebDriverError(f"{value['error']}: {value['message'].splitlines()[0]}") from None

    def post(self, path, **body):
        return self._request("POST", self.session + path, body)

    def devtools(self, command, **parameters):
        """Runs a command of the DevTools protocol."""
        return self.post("/goog/cdp/execute", cmd=command, params=parameters)

    # ---- pages

    def open(self, url):
        """Loads a page, even if the URL differs from the current one only behind the `#`."""
        self.post("/url", url="about:blank")
        self.post("/url", url=url)

    def back(self):
        self.post("/back")

    def run(self, script, *arguments):
        """The result of the body of a function."""
        return self.post("/execute/sync", script=script, args=list(arguments))

    def wait(self, script, *arguments, seconds=WAIT_SECONDS):
        """Waits until the result of a function's body is true, and returns it."""
        deadline = time.monotonic() + seconds
        while True:
            result = self.run(script, *arguments)
            if result:
                return result
            if time.monotonic() > deadline:
                raise AssertionError(f"not within {seconds} s: {script} {list(arguments)}")
            time.sleep(POLL_SECONDS)

    def size(self, width, height, is_phone=False):
        self.devtools("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=2 if is_phone else 1, mobile=is_phone)

    def scheme(self, name):
        """The colours that the system prefers: `light` or `dark`."""
        self.devtools("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": name}])

    def screenshot(self):
        """A PNG of the visible part."""
        return base64.b64decode(self._request("GET", self.session + "/screenshot"))

    # ---- input

    def _element(self, selector):
        return next(iter(self.post("/element", using="css selector", value=selector).values()))

    def click(self, selector):
        self.post(f"/element/{self._element(selector)}/click")

    def fill(self, selector, text):
        """Replaces the text of a field and leaves the focus in it."""
        element = self._element(selector)
        self.post(f"/element/{element}/clear")
        self.post(f"/element/{element}/value", text=text)

    def press(self, *keys):
        """Presses keys one after the other: names of `KEYS`, characters, or `shift+left`."""
        actions = []
        for key in keys:
            names = key.split("+") if len(key) > 1 else [key]
            values = [KEYS.get(name, name) for name in names]
            actions += [{"type": "keyDown", "value": value} for value in values]
            actions += [{"type": "keyUp", "value": value} for value in reversed(values)]
        self.post("/actions", actions=[{"type": "key", "id": "keyboard", "actions": actions}])

    def type(self, text):
        """Types into the element that has the focus."""
        self.press(*text)

    def _mouse(self, *actions):
        self.post("/actions", actions=[{"type": "pointer", "id": "mouse", "parameters": {"pointerType": "mouse"}, "actions": list(actions)}])

    @staticmethod
    def _move(x, y):
        return {"type": "pointerMove", "x": round(x), "y": round(y), "duration": 0}

    def point(self, x, y):
        """Moves the pointer."""
        self._mouse(self._move(x, y))

    def drag(self, from_x, to_x, y):
        self._mouse(
            self._move(from_x, y), {"type": "pointerDown", "button": 0}, self._move((from_x + to_x) / 2, y), self._move(to_x, y),
            {"type": "pointerUp", "button": 0})

    # ---- logs

    def _log(self, kind):
        return self.post("/se/log", type=kind)

    def console(self):
        """Messages of the console since the last call, also those of the network and of the content security policy."""
        return [f"{entry['level']}: {entry['message']}" for entry in self._log("browser")]

    def events(self):
        """Events of the DevTools protocol since the last call: names and parameters."""
        messages = [json.loads(entry["message"])["message"] for entry in self._log("performance")]
        return [(message["method"], message["params"]) for message in messages]
