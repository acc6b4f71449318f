"""`python -m distlab.data [NAME ...]`: fetch and prepare sets ahead of training."""

import argparse
import sys
import time

from distlab.data.sets import NAMES, SIDE, prepare


def main(arguments: list[str] | None = None) -> int:
    """Prepare the named sets. Returns 1 when one cannot be had, else 0."""
    parser = argparse.ArgumentParser(prog="python -m distlab.data", description="Fetch and prepare data sets.")
    parser.add_argument("names", nargs="*", default=["fashion-mnist"], metavar="NAME")
    parser.add_argument("--size", type=int, default=SIDE, help=f"side of folder images in pixels (default {SIDE})")
    parser.add_argument("--on-damaged", choices=("stop", "skip"), default="stop", help="what a damaged image does")
    parser.epilog = f"NAME is {', '.join(NAMES)} or a folder of images"
    chosen = parser.parse_args(arguments)
    status = 0
    for name in chosen.names:
        start = time.monotonic()
        try:
            found = prepare(name, size=chosen.size, on_damaged=chosen.on_damaged, retry=True)
        except (OSError, RuntimeError, ValueError) as error:
            print(f"{name}: {error}", file=sys.stderr)
            status = 1
            continue
        facts = found.facts
        if found.note:
            print(f"note: {found.note}")
        shape = "x".join(map(str, facts["shape"]))
        state = "prepared" if found.fresh else "already there"
        print(
            f"{facts['name']}: {facts['train']:,} + {facts['val']:,} images of {shape}, "
            f"{len(facts['classes'])} classes, from {facts['source']}, {state} in {found.folder} "
            f"({time.monotonic() - start:.1f} s)"
        )
    return status


if __name__ == "__main__":
    sys.exit(main())
