"""Headless Chromium for result pages, controlled with the DevTools protocol over a pipe: no port, no network."""

from __future__ import annotations

import base64
import fcntl
import json
import os
import queue
import shutil
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pyhooks.core.errors import RackgateError
from pyhooks.core.process import DIES_WITH_PARENT

# names of the program in Debian, Ubuntu and Google's package
PROGRAMS = ("chromium", "chromium-browser", "google-chrome")
# No host name is resolved, so that external requests fail, those of a page and those of the browser itself.
WORDS = (
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
AT_3_AND_4 = ("bash", "-c", 'exec "${@:3}" 3<&"$1" 4>&"$2"', "bash")
ABOVE = 10
# On a busy machine it takes long to start a browser and to render a page of forty plots.
ANSWER_S = 120.0
MOST_HEIGHT = 16_000


def find() -> str:
    """Return the path of the browser's program.

    Raises:
        RackgateError: no browser is installed.
    """
    for program in PROGRAMS:
        if found := shutil.which(program):
            return found
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
            self._ask(f"{domain}.enable")

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
        self._ask("Emulation.setDeviceMetricsOverride", metrics)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self._ask("Emulation.setEmulatedMedia", {"features": [scheme]})
        self._pipe.events.clear()
        self.errors = []
        told = self._ask("Page.navigate", {"url": file.resolve().as_uri()})
        if told.get("errorText"):
            raise RackgateError(f"{file}: {told['errorText']}")
        self._pipe.wait_event("Page.loadEventFired", self._tab, str(file))
        # the load event fires before fonts are ready and the first frame is drawn
        self.evaluate("document.fonts.ready.then(() => new Promise(done => requestAnimationFrame(() => done(true))))")
        self.errors = [text for event in self._pipe.events if (text := _error(event, self._tab))]

    def evaluate(self, script: str) -> Any:
        """Return the value of a JavaScript expression in the page; a promise is awaited.

        Raises:
            RackgateError: the expression throws.
        """
        words = {"expression": script, "returnByValue": True, "awaitPromise": True}
        told = self._ask("Runtime.evaluate", words)
        if "exceptionDetails" in told:
            raise RackgateError(f"the page's script failed: {_thrown(told['exceptionDetails'])}")
        return told["result"].get("value")

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
            raise RackgateError(f"{element}: the page does not show it")
        clip = {"x": box[0], "y": box[1], "width": box[2], "height": min(box[3], MOST_HEIGHT), "scale": 1}
        words = {"format": "png", "captureBeyondViewport": True, "clip": clip}
        file.write_bytes(base64.b64decode(self._ask("Page.captureScreenshot", words)["data"]))
        return file

    def pdf(self, file: Path) -> Path:
        """Print the page as PDF on A4 and return its path."""
        words = {"paperWidth": 8.27, "paperHeight": 11.69, "printBackground": True}
        file.write_bytes(base64.b64decode(self._ask("Page.printToPDF", words)["data"]))
        return file

    def _ask(self, method: str, words: Mapping[str, Any] | None = None) -> dict[str, Any]:
        return self._pipe.ask(method, words or {}, self._tab)


@contextmanager
def opened(program: str | None = None) -> Iterator[Page]:
    """Start a browser with one tab, and end it after the block.

    Raises:
        RackgateError: no browser is installed, or it does not start.
    """
    found = program or find()
    with tempfile.TemporaryDirectory(prefix="rackgate-browser-", ignore_cleanup_errors=True) as folder:
        words = [found, *WORDS, f"--user-data-dir={folder}"]
        # Chromium's sandbox does not work as root
        words += ["--no-sandbox"] if os.geteuid() == 0 else []
        with _started(words, Path(folder)) as pipe:
            target = pipe.ask("Target.createTarget", {"url": "about:blank"})["targetId"]
            tab = pipe.ask("Target.attachToTarget", {"targetId": target, "flatten": True})["sessionId"]
            yield Page(pipe, tab)


@contextmanager
def _started(words: list[str], folder: Path) -> Iterator[_Pipe]:
    theirs_in, ours_out = _pipe()
    ours_in, theirs_out = _pipe()
    log = folder / "log"
    with log.open("wb") as said:
        child = subprocess.Popen(
            [*DIES_WITH_PARENT, *AT_3_AND_4, str(theirs_in), str(theirs_out), *words],
            pass_fds=(theirs_in, theirs_out), stdin=subprocess.DEVNULL, stdout=said, stderr=said,
            env={**os.environ, "HOME": str(folder)},
        )  # fmt: skip
    os.close(theirs_in)
    os.close(theirs_out)
    pipe = _Pipe(ours_out, ours_in, log)
    try:
        yield pipe
        pipe.ask("Browser.close", {})
        child.wait(timeout=ANSWER_S)
    finally:
        if child.poll() is None:
            child.kill()
            child.wait()
        pipe.close()


def _pipe() -> tuple[int, int]:
    """Return the read and write end of a pipe; neither is descriptor 3 or 4, which the browser uses."""
    found = []
    for end in os.pipe():
        found.append(fcntl.fcntl(end, fcntl.F_DUPFD_CLOEXEC, ABOVE))
        os.close(end)
    return found[0], found[1]


class _Pipe:
    """Requests and responses of the DevTools protocol; each message is JSON followed by a zero byte."""

    def __init__(self, out: int, back: int, log: Path) -> None:
        self._out, self._log = os.fdopen(out, "wb", buffering=0), log
        self._back = os.fdopen(back, "rb", buffering=0)
        self._number = 0
        self._answers: queue.SimpleQueue[dict[str, Any] | None] = queue.SimpleQueue()
        self.events: list[dict[str, Any]] = []
        self._reader = threading.Thread(target=self._read, name="browser", daemon=True)
        self._reader.start()

    def _read(self) -> None:
        left = b""
        while block := self._back.read(1 << 20):
            *whole, left = (left + block).split(b"\0")
            for message in whole:
                self._answers.put(json.loads(message))
        self._answers.put(None)

    def _next(self, until_s: float, what: str) -> dict[str, Any]:
        try:
            message = self._answers.get(timeout=max(0.0, until_s - time.monotonic()))
        except queue.Empty as error:
            raise RackgateError(f"the browser did not answer within {ANSWER_S:.0f} s: {what}") from error
        if message is None:
            said = self._log.read_text(encoding="utf-8", errors="replace").strip()
            raise RackgateError(f"the browser ended: {what}", detail=said)
        if "method" in message:
            self.events.append(message)
        return message

    def ask(self, method: str, words: Mapping[str, Any], tab: str = "") -> dict[str, Any]:
        """Send a request and return its result.

        Raises:
            RackgateError: the response is an error or does not arrive in time, or the browser has ended.
        """
        self._number += 1
        message = {"id": self._number, "method": method, "params": words, **({"sessionId": tab} if tab else {})}
        try:
            self._out.write(json.dumps(message).encode() + b"\0")
        except BrokenPipeError as error:
            said = self._log.read_text(encoding="utf-8", errors="replace").strip()
            raise RackgateError(f"the browser ended: {method}", detail=said) from error
        until_s = time.monotonic() + ANSWER_S
        while (found := self._next(until_s, method)).get("id") != self._number:
            pass
        if "error" in found:
            raise RackgateError(f"the browser refuses {method}: {found['error'].get('message')}")
        return dict(found["result"])

    def wait_event(self, method: str, tab: str, what: str) -> None:
        """Wait for an event of a tab.

        Raises:
            RackgateError: the event does not arrive in time.
        """
        until_s = time.monotonic() + ANSWER_S
        while not any(one["method"] == method and one.get("sessionId") == tab for one in self.events):
            self._next(until_s, f"{method} of {what}")

    def close(self) -> None:
        """Close both ends."""
        self._out.close()
        self._reader.join(timeout=10)
        self._back.close()


def _error(event: Mapping[str, Any], tab: str) -> str:
    """Return the text of an error event of the tab; empty for any other event."""
    if event.get("sessionId") != tab:
        return ""
    method, words = event["method"], event["params"]
    if method == "Runtime.exceptionThrown":
        return _thrown(words["exceptionDetails"])
    if method == "Runtime.consoleAPICalled" and words["type"] in ("error", "assert"):
        return " ".join(str(one.get("value", one.get("description", ""))) for one in words["args"])
    if method == "Log.entryAdded" and words["entry"]["level"] == "error":
        return f"{words['entry']['text']} {words['entry'].get('url', '')}".strip()
    return ""


def _thrown(details: Mapping[str, Any]) -> str:
    return str(details.get("exception", {}).get("description") or details.get("text"))
