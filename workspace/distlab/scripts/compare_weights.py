"""How far apart the weights of two checkpoints are."""

import argparse

from distlab import checkpoint, process, report


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("files", nargs=2, help="two checkpoints of one model")
    args = parser.parse_args()
    with process.alone() as me:
        one, other = (checkpoint.read(path)["model"] for path in args.files)
        checkpoint.require_fit(other, one)
        apart = max((one[name] - other[name]).abs().max().item() for name in one)
        report.log(me, "weights", apart=apart, largest=max(value.abs().max().item() for value in one.values()))


if __name__ == "__main__":
    main()
