"""Headless Chromium for result pages, controlled with the DevTools protocol over a pipe: no port, no network."""

from __future__ import annotations

import base64
import fcntl
import json
import os
import queue
import shutil
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from pyhooks.core.errors import RackgateError
from pyhooks.core.files import writing
from pyhooks.core.process import supervised

# names of the program in Debian, Ubuntu and Google's package
PROGRAMS = ("chromium", "chromium-browser", "google-chrome")
# No host name is resolved, so that external requests of pages and of the browser itself fail.
OPTIONS = (
    "--headless=new",
    "--no-first-run",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
    "--host-resolver-rules=MAP * ~NOTFOUND",
    "--remote-debugging-pipe",
)
# The program reads commands from descriptor 3 and writes responses to descriptor 4.
REDIRECTED = ("bash", "-c", 'exec "${@:3}" 3<&"$1" 4>&"$2"', "bash")
FIRST_DESCRIPTOR = 10
# On a busy machine it takes long to start a browser and to render a page of forty plots.
RESPONSE_S = 120.0
MAX_HEIGHT = 16_000


def find_program() -> str:
    """Return the path of the browser's program.

    Raises:
        RackgateError: no browser is installed.
    """
    for program in PROGRAMS:
        if path := shutil.which(program):
            return path
    raise RackgateError(f"no {', '.join(PROGRAMS)}: as root 'apt-get install chromium', or run setup/system.sh")


class Page:
    """Browser tab.

    Args:
        pipe: connection to the browser.
        tab: session ID of the tab.

    Attributes:
        errors: console errors and uncaught exceptions of the last visit.
    """

    def __init__(self, pipe: _Pipe, tab: str) -> None:
        self._pipe, self._tab = pipe, tab
        self.errors: list[str] = []
        for domain in ("Page", "Runtime", "Log"):
            self._request(f"{domain}.enable")

    def visit(self, file: Path, *, width: int = 1280, height: int = 800, dark: bool = False) -> None:
        """Open the HTML file of a page and wait until it is rendered.

        Args:
            file: the HTML file.
            width: of the window, in CSS pixels; below 600 a phone is emulated.
            height: of the window, in CSS pixels.
            dark: whether to emulate a user preference for dark pages.

        Raises:
            RackgateError: it can't be opened, or is not ready in time.
        """
        phone = width < 600
        metrics = {"width": width, "height": height, "deviceScaleFactor": 2 if phone else 1, "mobile": phone}
        self._request("Emulation.setDeviceMetricsOverride", metrics)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self._request("Emulation.setEmulatedMedia", {"features": [scheme]})
        self._pipe.events.clear()
        self.errors = []
        response = self._request("Page.navigate", {"url": file.resolve().as_uri()})
        if response.get("errorText"):
            raise RackgateError(f"{file}: {response['errorText']}")
        self._pipe.wait_event("Page.loadEventFired", self._tab, str(file))
        # the load event fires before fonts are ready and the first frame is drawn
        self.evaluate("document.fonts.ready.then(() => new Promise(done => requestAnimationFrame(() => done(true))))")
        self.errors = [text for event in self._pipe.events if (text := _error(event, self._tab))]

    def evaluate(self, script: str) -> Any:
        """Return the value of a JavaScript expression in the page; a promise is awaited.

        Raises:
            RackgateError: the expression throws.
        """
        parameters = {"expression": script, "returnByValue": True, "awaitPromise": True}
        response = self._request("Runtime.evaluate", parameters)
        if "exceptionDetails" in response:
            raise RackgateError(f"the page's script failed: {_exception(response['exceptionDetails'])}")
        return response["result"].get("value")

    def screenshot(self, file: Path, element: str = "document.documentElement") -> Path:
        """Write a PNG screenshot of an element, or of the whole page, and return its path.

        Args:
            file: the PNG file.
            element: JavaScript expression whose value is the element.

        Raises:
            RackgateError: there is no such element, or it has no size.
        """
        box = self.evaluate(
            f"(() => {{ const box = ({element})?.getBoundingClientRect(); return box ? [box.x + window.scrollX,"
            " box.y + window.scrollY, box.width, box.height] : null; })()"
        )
        if not box or not box[2] or not box[3]:
            raise RackgateError(f"{element}: not visible on the page")
        clip = {"x": box[0], "y": box[1], "width": box[2], "height": min(box[3], MAX_HEIGHT), "scale": 1}
        return self._save(
            file, "Page.captureScreenshot", {"format": "png", "captureBeyondViewport": True, "clip": clip}
        )

    def pdf(self, file: Path) -> Path:
        """Print the page as PDF on A4 and return its path."""
        return self._save(file, "Page.printToPDF", {"paperWidth": 8.27, "paperHeight": 11.69, "printBackground": True})

    def _save(self, file: Path, method: str, parameters: Mapping[str, Any]) -> Path:
        content = base64.b64decode(self._request(method, parameters)["data"])
        with writing(file):
            file.write_bytes(content)
        return file

    def _request(self, method: str, parameters: Mapping[str, Any] | None = None) -> dict[str, Any]:
        return self._pipe.request(method, parameters or {}, self._tab)


@contextmanager
def open_browser(program: str | None = None) -> Iterator[Page]:
    """Start a browser with one tab, and end it after the block.

    Raises:
        RackgateError: no browser is installed, or it does not start.
    """
    with tempfile.TemporaryDirectory(prefix="rackgate-browser-", ignore_cleanup_errors=True) as folder:
        # Chromium's sandbox does not work as root.
        sandbox = ["--no-sandbox"] if os.geteuid() == 0 else []
        with _started(
            [program or find_program(), *OPTIONS, f"--user-data-dir={folder}", *sandbox], Path(folder)
        ) as pipe:
            target = pipe.request("Target.createTarget", {"url": "about:blank"})["targetId"]
            tab = pipe.request("Target.attachToTarget", {"targetId": target, "flatten": True})["sessionId"]
            yield Page(pipe, tab)


@contextmanager
def _started(command: list[str], folder: Path) -> Iterator[_Pipe]:
    child_in, own_out = _new_pipe()
    own_in, child_out = _new_pipe()
    log = folder / "log"
    command = [*REDIRECTED, str(child_in), str(child_out), *command]
    with (
        closing(_Pipe(own_out, own_in, log)) as pipe,
        supervised(command, log=log, pass_fds=(child_in, child_out), env={**os.environ, "HOME": str(folder)}) as child,
    ):
        os.close(child_in)
        os.close(child_out)
        yield pipe
        pipe.request("Browser.close", {})
        child.wait(timeout=RESPONSE_S)


def _new_pipe() -> tuple[int, int]:
    """Return the read and write end of a pipe; neither is descriptor 3 or 4, which the browser uses."""
    ends = []
    for end in os.pipe():
        ends.append(fcntl.fcntl(end, fcntl.F_DUPFD_CLOEXEC, FIRST_DESCRIPTOR))
        os.close(end)
    return ends[0], ends[1]


class _Pipe:
    """Requests and responses of the DevTools protocol; each message is JSON followed by a zero byte."""

    def __init__(self, output: int, input_: int, log: Path) -> None:
        self._output, self._log = os.fdopen(output, "wb", buffering=0), log
        self._input = os.fdopen(input_, "rb", buffering=0)
        self._number = 0
        self._messages: queue.SimpleQueue[dict[str, Any] | None] = queue.SimpleQueue()
        self.events: list[dict[str, Any]] = []
        self._reader = threading.Thread(target=self._read, name="browser", daemon=True)
        self._reader.start()

    def _read(self) -> None:
        rest = b""
        while block := self._input.read(1 << 20):
            *messages, rest = (rest + block).split(b"\0")
            for message in messages:
                self._messages.put(json.loads(message))
        self._messages.put(None)

    def _next(self, until_s: float, what: str) -> dict[str, Any]:
        try:
            message = self._messages.get(timeout=max(0.0, until_s - time.monotonic()))
        except queue.Empty as error:
            raise RackgateError(f"{what}: no response of the browser within {RESPONSE_S:.0f} s") from error
        if message is None:
            raise self._ended(what)
        if "method" in message:
            self.events.append(message)
        return message

    def _ended(self, what: str) -> RackgateError:
        return RackgateError(
            f"{what}: the browser ended", detail=self._log.read_text(encoding="utf-8", errors="replace").strip()
        )

    def request(self, method: str, parameters: Mapping[str, Any], tab: str = "") -> dict[str, Any]:
        """Send a request and return its result.

        Raises:
            RackgateError: the response is an error or does not arrive in time, or the browser has ended.
        """
        self._number += 1
        message = {"id": self._number, "method": method, "params": parameters, **({"sessionId": tab} if tab else {})}
        try:
            self._output.write(json.dumps(message).encode() + b"\0")
        except BrokenPipeError as error:
            raise self._ended(method) from error
        until_s = time.monotonic() + RESPONSE_S
        while (response := self._next(until_s, method)).get("id") != self._number:
            pass
        if "error" in response:
            raise RackgateError(f"{method}: rejected by the browser: {response['error'].get('message')}")
        return dict(response["result"])

    def wait_event(self, method: str, tab: str, what: str) -> None:
        """Wait for an event of a tab.

        Raises:
            RackgateError: the event does not arrive in time.
        """
        until_s = time.monotonic() + RESPONSE_S
        while not any(event["method"] == method and event.get("sessionId") == tab for event in self.events):
            self._next(until_s, f"{method} of {what}")

    def close(self) -> None:
        """Close both ends."""
        self._output.close()
        self._reader.join(timeout=10)
        self._input.close()


def _error(event: Mapping[str, Any], tab: str) -> str:
    """Return the text of an error event of the tab; empty for any other event."""
    if event.get("sessionId") != tab:
        return ""
    method, parameters = event["method"], event["params"]
    if method == "Runtime.exceptionThrown":
        return _exception(parameters["exceptionDetails"])
    if method == "Runtime.consoleAPICalled" and parameters["type"] in ("error", "assert"):
        return " ".join(str(argument.get("value", argument.get("description", ""))) for argument in parameters["args"])
    if method == "Log.entryAdded" and parameters["entry"]["level"] == "error":
        return f"{parameters['entry']['text']} {parameters['entry'].get('url', '')}".strip()
    return ""


def _exception(details: Mapping[str, Any]) -> str:
    return str(details.get("exception", {}).get("description") or details.get("text"))
