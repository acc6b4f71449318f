"""How far apart the weights of two checkpoints are."""

import argparse

from distlab import checkpoint, process, report


def main() -> None:
    """Report how far the weights of two checkpoints are from each other."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("files", nargs=2, help="two checkpoints of one model")
    args = parser.parse_args()
    with process.alone() as me:
        first, second = (checkpoint.read(path)["model"] for path in args.files)
        checkpoint.require_fit(second, first)
        apart = max((first[name] - second[name]).abs().max().item() for name in first)
        report.log(me, "weights", apart=apart, largest=max(value.abs().max().item() for value in first.values()))


if __name__ == "__main__":
    main()
