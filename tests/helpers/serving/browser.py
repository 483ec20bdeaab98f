"""A headless Chromium driven over a pipe by its DevTools protocol; knows nothing of the pages."""

import json
import os
import select
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

BINARY = shutil.which("chromium") or shutil.which("chromium-browser")
"""None where there is no browser."""

# Chromium reads commands from file 3 and answers to file 4.
_AT_3_AND_4 = """
import os, sys
os.dup2(int(sys.argv[1]), 3)
os.dup2(int(sys.argv[2]), 4)
os.execv(sys.argv[3], sys.argv[3:])
"""


class Page:
    """One tab. Each call waits for its answer.

    Attributes:
        events: What the browser told meanwhile, of the domains that were enabled.
    """

    def __init__(self, commands: int, answers: int) -> None:
        self._commands, self._answers = commands, answers
        self._pending = b""
        self._number = 0
        self.events: list[dict[str, Any]] = []
        self._session: str | None = None
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        attached = self.call("Target.attachToTarget", targetId=target, flatten=True)
        self._session = attached["sessionId"]

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Send a command of the protocol and return its result."""
        self._number += 1
        message = {"id": self._number, "method": method, "params": parameters}
        if self._session is not None:
            message["sessionId"] = self._session
        os.write(self._commands, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._read()
            if answer.get("id") == self._number:
                assert "error" not in answer, answer
                result: dict[str, Any] = answer["result"]
                return result
            if "method" in answer:
                self.events.append(answer)

    def open(self, address: str) -> None:
        """Load a page and wait until its scripts have run."""
        # Only the part after # would change: the page would not be loaded anew.
        self.call("Page.navigate", url="about:blank")
        self.call("Page.navigate", url=address)
        self.wait(f"location.href.startsWith({json.dumps(address.split('#')[0])})")
        self.wait("document.readyState === 'complete'")

    def evaluate(self, expression: str) -> Any:
        """The value of a JavaScript expression; it must be plain data."""
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def wait(self, condition: str, seconds: float = 20) -> None:
        """Until an expression is true."""
        end = time.monotonic() + seconds
        while not self.evaluate(condition):
            assert time.monotonic() < end, f"{condition} did not come true"
            time.sleep(0.02)

    def point(self, selector: str, right: float, down: float, *, click: bool = False) -> None:
        """Move the mouse over an element, to a share of its width and height."""
        box = self.evaluate(
            f"(e => {{ e.scrollIntoView({{block: 'center'}}); const b = e.getBoundingClientRect();"
            f"return [b.x + b.width * {right}, b.y + b.height * {down}]; }})"
            f"(document.querySelector({json.dumps(selector)}))"
        )
        index = {"x": box[0], "y": box[1]}
        self.call("Input.dispatchMouseEvent", type="mouseMoved", **index)
        if click:
            for event in ("mousePressed", "mouseReleased"):
                self.call(
                    "Input.dispatchMouseEvent", type=event, button="left", clickCount=1, **index
                )

    def press(self, key: str) -> None:
        """Press and release a key, such as Escape, Tab or ArrowDown; Enter presses a button."""
        code = {"Escape": 27, "ArrowLeft": 37, "ArrowUp": 38, "ArrowRight": 39, "ArrowDown": 40}
        code |= {"Tab": 9, "Enter": 13}
        named = {"key": key, "code": key, "windowsVirtualKeyCode": code[key]}
        down = {"type": "keyDown", "text": "\r"} if key == "Enter" else {"type": "rawKeyDown"}
        for event in (down, {"type": "keyUp"}):
            self.call("Input.dispatchKeyEvent", **event, **named)

    def write(self, text: str) -> None:
        """Put a text where the focus is, as if it were pasted."""
        self.call("Input.insertText", text=text)

    def resize(self, width: int, height: int, *, dark: bool = False) -> None:
        """Set the window, in CSS pixels, and the colors that the user prefers; nothing moves."""
        self.call(
            "Emulation.setDeviceMetricsOverride",
            **{"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False},
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        still = {"name": "prefers-reduced-motion", "value": "reduce"}
        self.call("Emulation.setEmulatedMedia", features=[scheme, still])

    def _read(self) -> dict[str, Any]:
        while b"\0" not in self._pending:
            ready, _, _ = select.select([self._answers], [], [], 60)
            chunk = os.read(self._answers, 1 << 20) if ready else b""
            assert chunk, "the browser does not answer"
            self._pending += chunk
        message, _, self._pending = self._pending.partition(b"\0")
        answer: dict[str, Any] = json.loads(message)
        return answer


@contextmanager
def browser(profile: Path) -> Iterator[Page]:
    """A page in a browser of its own, which ends with it; ``profile`` is an empty folder."""
    assert BINARY is not None
    (theirs_in, commands), (answers, theirs_out) = os.pipe(), os.pipe()
    flags = "--headless=new --no-sandbox --disable-gpu --hide-scrollbars --remote-debugging-pipe"
    process = subprocess.Popen(
        [
            sys.executable,
            "-c",
            _AT_3_AND_4,
            str(theirs_in),
            str(theirs_out),
            BINARY,
            *flags.split(),
            f"--user-data-dir={profile}",
        ],
        pass_fds=(theirs_in, theirs_out),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    os.close(theirs_in)
    os.close(theirs_out)
    try:
        yield Page(commands, answers)
    finally:
        os.close(commands)
        os.close(answers)
        process.terminate()
        process.wait(timeout=20)
