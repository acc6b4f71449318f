"""A notebook as an attendee sees it: opened in headless Chromium, run from the menu, photographed.

    report = open_and_run("http://127.0.0.1:8888/lab/tree/Start_Here.ipynb?token=...", PICTURES)

It needs nothing but a URL, so the JupyterLab may run anywhere, in a container, too. Nothing is
saved, unless a notebook runs for the two minutes after which JupyterLab saves by itself: point it
at a copy.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from PIL import Image
from playwright.sync_api import ConsoleMessage, Error, Page, Request, Response, sync_playwright

CHROMIUM = Path("/usr/bin/chromium")
FLAGS = [
    *("--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
]
PICTURES = Path(__file__).parent / "pictures"
WINDOW = {"width": 1280, "height": 900}
LOAD_SECONDS = 60
POLL_MILLISECONDS = 200
# When an interface comes or goes, as those of containers do, Chromium drops what it was asked for.
DISTURBED = "net::ERR_NETWORK_CHANGED"
TRIES = 5
# JupyterLab draws what a cell raises as it draws what is printed to stderr: on red.
RED = ["application/vnd.jupyter.error", "application/vnd.jupyter.stderr"]
# Other notebooks, which JupyterLab opens again from last time, are hidden behind it.
PANEL = ".jp-NotebookPanel:not(.lm-mod-hidden)"

STATE = f"""() => {{
    const panel = document.querySelector('{PANEL}');
    return {{
        kernel: panel?.querySelector('.jp-Toolbar-kernelName')?.textContent ?? 'No Kernel',
        status: panel?.querySelector('.jp-Notebook-ExecutionIndicator')?.dataset.status,
        cells: [...panel?.querySelectorAll('.jp-CodeCell') ?? []].map(cell => {{
            const outputs = [...cell.querySelectorAll('.jp-OutputArea-output')];
            return {{
                prompt: cell.querySelector('.jp-InputPrompt').textContent,
                text: outputs.map(output => output.textContent).join('\\n'),
                errors: outputs.filter(output => {RED}.includes(output.dataset.mimeType)).map(red => red.textContent),
                images: outputs.flatMap(output => [...output.querySelectorAll('img')].map(img => img.naturalWidth)),
            }};
        }}),
    }};
}}"""

# A choice of kernels is accepted; every other question is declined, and news are only closed,
# since a "No" would be stored for the person whose JupyterLab this is.
CLOSE_POPUPS = """() => {
    const found = [];
    for (const dialog of document.querySelectorAll('.jp-Dialog')) {
        found.push(dialog.innerText);
        const accept = dialog.querySelector('.jp-Dialog-button.jp-mod-accept');
        const reject = dialog.querySelector('.jp-Dialog-button.jp-mod-reject');
        (dialog.querySelector('select') ? accept : reject ?? accept)?.click();
    }
    for (const toast of document.querySelectorAll('.Toastify__toast')) {
        found.push(toast.innerText);
        toast.querySelector('.jp-Notification-Toast-Close')?.click();
    }
    return found;
}"""

# Chromium draws cells only when they come into view.
DRAWN = f"""async () => {{
    await Promise.all([...document.querySelectorAll('{PANEL} img')].map(image => image.decode().catch(() => null)));
    await new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)));
}}"""

PAGE_DOWN = f"""() => {{
    const view = document.querySelector('{PANEL} .jp-WindowedPanel-outer');
    const last = [...view.querySelectorAll('.jp-Cell')].at(-1);
    const before = view.scrollTop;
    if (last.getBoundingClientRect().bottom > view.getBoundingClientRect().bottom)
        view.scrollTop += view.clientHeight - 40;
    return view.scrollTop > before;
}}"""

TO_THE_TOP = f"() => document.querySelector('{PANEL} .jp-WindowedPanel-outer').scrollTo(0, 0)"


@dataclass
class Cell:
    """A code cell: its prompt such as `[3]:`, the text of its outputs, what of it is red, its images' true widths."""

    prompt: str
    text: str
    errors: list[str]
    images: list[int]

    @property
    def ran(self) -> bool:
        """It came to an end, well or not."""
        return any(letter.isdigit() for letter in self.prompt)


@dataclass
class Report:
    """What was seen: the code cells as they were stored and after they ran, and what went wrong."""

    opened: list[Cell] = field(default_factory=list)
    cells: list[Cell] = field(default_factory=list)
    pictures: list[Path] = field(default_factory=list)
    popups: list[str] = field(default_factory=list)
    console: list[str] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)
    elsewhere: list[str] = field(default_factory=list)
    disturbed: bool = False

    @property
    def ran(self) -> int:
        """How many code cells ran."""
        return sum(cell.ran for cell in self.cells)

    @property
    def errors(self) -> list[str]:
        """What cells raised or printed to stderr."""
        return [error for cell in self.cells for error in cell.errors]

    @property
    def text(self) -> str:
        """All outputs, from top to bottom."""
        return "\n".join(cell.text for cell in self.cells)

    def forget(self) -> None:
        """What was wrong is no more, since the page loads anew."""
        self.disturbed = False
        for wrong in (self.popups, self.console, self.failed, self.elsewhere):
            wrong.clear()

    def listen(self, page: Page, server: str) -> None:
        """From now on, note errors of the page, requests that fail, and requests to another server."""

        def failed(request: Request) -> None:
            # The browser itself gives up what a page that it leaves had asked for.
            if request.failure == DISTURBED:
                self.disturbed = True
            elif request.failure != "net::ERR_ABORTED":
                self.failed.append(f"{request.failure} {request.url}")

        def answered(response: Response) -> None:
            if response.status >= 400:
                self.failed.append(f"{response.status} {response.url}")

        def asked(request: Request) -> None:
            if request.url.startswith("http") and urlsplit(request.url).netloc != server:
                self.elsewhere.append(request.url)

        def said(message: ConsoleMessage) -> None:
            if message.type == "error" and DISTURBED not in message.text:
                self.console.append(message.text)

        page.on("console", said)
        page.on("pageerror", lambda error: self.console.append(str(error)))
        page.on("requestfailed", failed)
        page.on("response", answered)
        page.on("request", asked)


@contextmanager
def window() -> Iterator[Page]:
    """An empty page in a browser that has never been used before."""
    if not CHROMIUM.exists():
        pytest.skip(f"no browser: {CHROMIUM} is missing (apt-get install chromium)")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        try:
            yield browser.new_page(viewport=WINDOW)
        finally:
            browser.close()


def visit(page: Page, url: str) -> None:
    """Go there, once more where the machine's network changed on the way."""
    for left in reversed(range(TRIES)):
        try:
            page.goto(url)
            return
        except Error as error:
            if DISTURBED not in error.message or not left:
                raise


def open_and_run(url: str, pictures: Path, seconds: float = 180) -> Report:
    """Open a notebook, run all its cells, photograph it from top to bottom, stop its kernel.

    Args:
        url: of JupyterLab with the notebook and the token: `http://HOST:PORT/lab/tree/PATH?token=...`.
        pictures: the folder for `NOTEBOOK-opened.png`, `NOTEBOOK-01.png`, ...; older ones of it are deleted.
        seconds: how long the cells may take.

    Raises:
        PermissionError: the token opens nothing, or there is no such notebook.
        TimeoutError: it does not load or its cells do not end; says what was seen, and `NOTEBOOK-stuck.png` shows it.
    """
    parts = urlsplit(url)
    base, path = parts.path.split("/lab/tree/")
    name = Path(path).stem
    pictures.mkdir(parents=True, exist_ok=True)
    for old in pictures.glob(f"{name}-*.png"):
        old.unlink()
    report = Report()
    with window() as page:
        report.listen(page, parts.netloc)
        stored = page.request.get(f"{parts.scheme}://{parts.netloc}{base}/api/contents/{path}?{parts.query}")
        if not stored.ok:
            raise PermissionError(f"{url} shows no notebook: {stored.status} {stored.text()}")
        code = sum(cell["cell_type"] == "code" for cell in stored.json()["content"]["cells"])
        try:
            _load(page, report, url, code)
            page.evaluate(DRAWN)
            report.opened = _state(page).cells
            page.screenshot(path=pictures / f"{name}-opened.png")
            _choose(page, "Edit", "editmenu:clear-all")
            _wait(page, report, lambda state: not state.ran, LOAD_SECONDS, "keeps its outputs")
            _choose(page, "Run", "runmenu:run-all")
            # JupyterLab marks every cell with a star at once, and takes the stars away after an error.
            _wait(page, report, lambda state: state.ran and state.idle and not state.waits, seconds, "still runs")
            report.pictures = [pictures / f"{name}-opened.png", *_photograph(page, pictures, name)]
            report.cells = _state(page).cells
            _choose(page, "Kernel", "kernelmenu:shutdown")
            _wait(page, report, lambda state: state.kernel == "No Kernel", LOAD_SECONDS, "keeps its kernel")
        except Exception:
            page.screenshot(path=pictures / f"{name}-stuck.png")
            raise
    return report


@dataclass
class State:
    """The notebook in front, at this moment."""

    kernel: str
    status: str | None
    cells: list[Cell]

    @property
    def idle(self) -> bool:
        """There is a kernel, and it has nothing to do."""
        return self.kernel != "No Kernel" and self.status == "idle"

    @property
    def ran(self) -> bool:
        """Some cell came to an end."""
        return any(cell.ran for cell in self.cells)

    @property
    def waits(self) -> bool:
        """Some cell runs or is about to."""
        return any("*" in cell.prompt for cell in self.cells)


def _state(page: Page) -> State:
    seen = page.evaluate(STATE)
    return State(seen["kernel"], seen["status"], [Cell(**cell) for cell in seen["cells"]])


def _wait(page: Page, report: Report, done: Callable[[State], object], seconds: float, fault: str) -> None:
    until = time.monotonic() + seconds
    while True:
        popups = page.evaluate(CLOSE_POPUPS)
        report.popups += [popup for popup in popups if popup and popup not in report.popups]
        state = _state(page)
        if not popups and done(state):
            return
        if time.monotonic() > until:
            prompts = " ".join(cell.prompt for cell in state.cells)
            wrong = report.popups + report.console + report.failed
            raise TimeoutError(
                f"after {seconds:g} s {page.url} {fault}: {state.kernel}, {state.status}, {prompts}; {wrong}"
            )
        # Unlike time.sleep, this lets the page's events through.
        page.wait_for_timeout(POLL_MILLISECONDS)


def _load(page: Page, report: Report, url: str, cells: int) -> None:
    for _ in range(TRIES):
        report.forget()
        visit(page, url)
        # Half a JupyterLab does not mend itself.
        _wait(
            page,
            report,
            lambda state: report.disturbed or (state.idle and len(state.cells) == cells),
            LOAD_SECONDS,
            "is not loaded",
        )
        if not report.disturbed:
            return
    raise TimeoutError(f"{url} is not loaded: the network of this machine changes all the time")


def _choose(page: Page, menu: str, command: str) -> None:
    page.get_by_role("menuitem", name=menu, exact=True).click()
    page.locator(f'.lm-Menu-item[data-command="{command}"]:not(.lm-mod-disabled)').click()
    # What lies under the mouse looks different in a picture.
    page.mouse.move(0, 0)


def _photograph(page: Page, folder: Path, name: str) -> list[Path]:
    notebook = page.locator(f"{PANEL} .jp-Notebook")
    taken: list[Path] = []
    page.evaluate(TO_THE_TOP)
    more = True
    while more:
        page.evaluate(DRAWN)
        taken.append(folder / f"{name}-{len(taken) + 1:02}.png")
        notebook.screenshot(path=taken[-1])
        more = page.evaluate(PAGE_DOWN)
    return taken


def is_blank(picture: Path) -> bool:
    """Hardly a pixel differs from the background; a line of text is more."""
    with Image.open(picture) as image:
        # The frame is not what it shows.
        shades = image.convert("L").crop((4, 4, image.width - 4, image.height - 4)).histogram()
    return max(shades) > 0.999 * sum(shades)
