"""Starts seats: looks first, says what it found, and ends with the pages to open."""

import sys
from collections.abc import Callable, Mapping

from distlab.classroom import engine, gpus, ports, seats, urls
from distlab.classroom.folder import prepare
from distlab.classroom.project import Project, build, make_project
from distlab.classroom.seats import Seat
from distlab.classroom.settings import ClassroomError


def _refuse(wanted: list[Seat], settings: Mapping[str, str]) -> None:
    running = engine.containers()
    for seat in wanted:
        for container in running:
            if container.project == seat.project and engine.is_elsewhere(container):
                raise ClassroomError(
                    f"{seat.project} was started from {container.started_from}",
                    "take another SEAT, or make down there first",
                )
    for clash in ports.clashes(wanted, settings, running):
        raise clash


def plan(wanted: list[Seat], settings: Mapping[str, str]) -> list[Project]:
    """A project for each seat, with its folder; says in a line what was decided.

    Raises:
        ClassroomError: something stands in the way of one of them; nothing was started.
    """
    engine.engine_version()
    engine.compose_version()
    _refuse(wanted, settings)
    found = gpus.choose(settings)
    print(f"GPUs: {found.text}" + (f". To use them: {found.remedy}" if found.remedy else ""))
    if len(wanted) > 1 and settings.get("WORKSHOP_TOKEN"):
        print("token: WORKSHOP_TOKEN is set, so every seat has the same")
    projects = []
    for seat in wanted:
        subnet = seats.subnet(seat.number, settings) if settings.get("WORKSHOP_SUBNET") else ""
        place = prepare(seat.copy, settings, own=bool(seat.number))
        if place.text:
            print(f"{seat.project}: {place.text}")
        projects.append(make_project(seat.project, place, seats.ports(seat, settings), found, subnet))
    return projects


def _each(projects: list[Project], lost: dict[str, ClassroomError], do: Callable[[Project], None], said: str) -> None:
    for project in projects:
        if project.name in lost:
            continue
        try:
            do(project)
        except ClassroomError as error:
            lost[project.name] = error
        else:
            print(f"{project.name}: {said}")


def up(wanted: list[Seat], settings: Mapping[str, str]) -> int:
    """Build once, start every seat, wait until all are healthy, print their pages.

    A seat that does not come up is named and the others start all the same; the status is 1 then.

    Raises:
        ClassroomError: something stands in the way, and nothing was started.
    """
    projects = plan(wanted, settings)
    if note := build(projects[0], settings["WORKSHOP_IMAGE"]):
        print(note)
    lost: dict[str, ClassroomError] = {}
    _each(projects, lost, Project.start, "starting")
    _each(projects, lost, Project.wait, "node1 and node2 are up")
    for error in lost.values():
        print(error, file=sys.stderr)
    healthy = [seat for seat in wanted if seat.project not in lost]
    if healthy:
        urls.print_pages(urls.find(healthy))
    return 1 if lost else 0
