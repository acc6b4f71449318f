"""`python3 -m distlab.classroom VERB`, which `make up`, `down`, `urls` and `preflight` call."""

import argparse
import io
import sys
from collections.abc import Sequence

from distlab.child import interrupted_by_signals
from distlab.classroom import seats, settings
from distlab.classroom.settings import ClassroomError

INTERRUPTED = 130


def _up(options: argparse.Namespace) -> int:
    from distlab.classroom.up import up

    return up(seats.parse(options.seat), settings.load())


def _down(options: argparse.Namespace) -> int:
    from distlab.classroom.down import down

    return down(seats.parse(options.seat) if options.seat else None)


def _urls(options: argparse.Namespace) -> int:
    from distlab.classroom import engine, urls

    engine.engine_version()
    pages = urls.find(seats.parse(options.seat) if options.seat else None)
    urls.print_pages(pages)
    return 0 if all(page.ok for page in pages) else 1


def _preflight(options: argparse.Namespace) -> int:
    from distlab.classroom.preflight import preflight

    return preflight(seats.room(options.seats), settings.load(), start=not options.no_start)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="classroom", description="The workshop's containers on this machine.")
    verbs = parser.add_subparsers(dest="verb", required=True, metavar="VERB")
    for name, do, help in (
        ("up", _up, "start node1 and node2 and print their pages"),
        ("down", _down, "remove them, keeping the attendees' work; all of them without a seat"),
        ("urls", _urls, "print the pages of all seats that run"),
    ):
        sub = verbs.add_parser(name, help=help, description=help)
        sub.add_argument("--seat", default="", metavar="N", help="a number from 1 to 99, or several: 1-20")
        sub.set_defaults(do=do)
    help = "say whether the workshop will work on this machine, and prove it"
    sub = verbs.add_parser("preflight", help=help, description=help)
    sub.add_argument("--seats", default="", metavar="N", help="look whether this many attendees fit")
    sub.add_argument("--no-start", action="store_true", help="start nothing, so nothing is proved")
    sub.set_defaults(do=_preflight)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run one verb; 0 when all went well."""
    options = _parser().parse_args(argv)
    # Docker writes to the same file or pipe, and our line belongs before its own.
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(line_buffering=True)
    try:
        with interrupted_by_signals():
            return int(options.do(options))
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return INTERRUPTED
    except (ClassroomError, OSError) as error:
        print(error, file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
