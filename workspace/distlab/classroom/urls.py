"""The pages of every seat that runs here."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from urllib.parse import urlsplit

from distlab.classroom import engine
from distlab.classroom.project import NODES
from distlab.classroom.seats import Seat, of_project
from distlab.classroom.settings import ClassroomError

BOARD_PORT = 6006
# A restarting container counts as running, so that a seat without a page is reported.
UP = ("running", "restarting")
# Each question starts Python in a container, so not all at once.
AT_ONCE = 8
URLS_SECONDS = 120


@dataclass(frozen=True)
class Page:
    """What to open, or `text` in its place when there is nothing to open."""

    project: str
    name: str
    text: str
    ok: bool = True


def _pages(container: engine.Container) -> list[Page]:
    done = engine.ask("docker", "exec", container.id, "distlab", "urls", seconds=URLS_SECONDS)
    found = [line for line in done.stdout.splitlines() if line.startswith("http")]
    if done.returncode or not found:
        why = engine.last_line(done.stdout + done.stderr)
        text = f"has no page ({why}): docker logs {container.id[:12]}"
        return [Page(container.project, container.service, text, ok=False)]
    pages = [Page(container.project, container.service, url) for url in found]
    if BOARD_PORT in container.ports:
        address = f"http://{urlsplit(found[0]).hostname}:{container.ports[BOARD_PORT]}"
        pages.append(Page(container.project, f"{container.service} TensorBoard", address))
    return pages


def find(seats: list[Seat] | None = None) -> list[Page]:
    """Both nodes of these seats, or of all that run here: JupyterLab with its token, and TensorBoard.

    Raises:
        ClassroomError: nothing of them runs.
    """
    by_seat: dict[Seat, list[engine.Container]] = {seat: [] for seat in seats or []}
    for container in sorted(engine.containers(), key=lambda container: container.service):
        seat = of_project(container.project)
        if seat and container.service in NODES and container.state in UP and (seats is None or seat in by_seat):
            by_seat.setdefault(seat, []).append(container)
    if not any(by_seat.values()):
        words = seats[0].words if seats and len(seats) == 1 else ""
        raise ClassroomError("nothing of the workshop runs here", f"start it with make up{words}")
    asked = [container for seat in sorted(by_seat) for container in by_seat[seat] if container.state == "running"]
    with ThreadPoolExecutor(AT_ONCE) as pool:
        pages = [page for found in pool.map(_pages, asked) for page in found]
    here = {(container.project, container.service) for container in asked}
    for seat in by_seat:
        lost = [name for name in NODES if (seat.project, name) not in here]
        pages += [Page(seat.project, name, f"does not run: make up{seat.words}", ok=False) for name in lost]
    return pages


def print_pages(pages: list[Page]) -> None:
    """One line for each, labelled."""
    first, second = max(len(page.project) for page in pages), max(len(page.name) for page in pages)
    for page in pages:
        print(f"{page.project:{first}}  {page.name:{second}}  {page.text}")
