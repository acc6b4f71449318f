"""The command `distlab`."""

import argparse
import json
import os
import sys
from collections.abc import Callable, Sequence
from typing import Any

from distlab.errors import DistlabError
from distlab.hosts import find, parse
from distlab.launch import RunFailed, run, script_names
from distlab.launchers import RUNS_BY

INTERRUPTED = 130
USAGE = 2


def _doctor(options: argparse.Namespace, _: list[str]) -> int:
    from distlab.doctor import examine, print_diagnoses

    diagnoses = examine(meet=not options.quick)
    ok = all(diagnosis.ok for diagnosis in diagnoses)
    if options.json:
        print(json.dumps({"ok": ok, "checks": [diagnosis.as_dict() for diagnosis in diagnoses]}))
    else:
        print_diagnoses(diagnoses)
    return 0 if ok else 1


def _hosts(options: argparse.Namespace, _: list[str]) -> int:
    found = find()
    if options.json:
        print(json.dumps({"source": found.source, "hosts": [vars(host) for host in found.hosts]}))
    else:
        print(found)
    return 0


def _status(failure: RunFailed) -> int:
    return next((end.status for end in failure.result.ranks if end.how == "left" and end.status > 0), 1)


def _run(options: argparse.Namespace, words: list[str]) -> int:
    # With --json the one line on stdout is for programs; people read the rest on stderr.
    out = sys.stderr if options.json else sys.stdout
    try:
        result = run(
            options.script,
            *words,
            hosts=parse(options.hosts) if options.hosts else None,
            launcher=options.launcher,
            timeout=options.timeout,
            cold=options.cold,
            threads=options.threads,
            master_port=options.master_port,
            out=out,
        )
    except RunFailed as failure:
        print(f"distlab: {failure}", file=sys.stderr)
        if options.json:
            print(failure.result.to_json())
        return _status(failure)
    except KeyboardInterrupt:
        print("distlab: interrupted; all ranks are stopped", file=sys.stderr)
        if options.json:
            print(json.dumps({"ok": False, "error": "interrupted"}))
        return INTERRUPTED
    except (DistlabError, OSError) as error:
        if options.json:
            print(json.dumps({"ok": False, "error": str(error)}))
        raise
    if options.json:
        print(result.to_json())
    else:
        result.show()
    return 0


def _check(options: argparse.Namespace, _: list[str]) -> int:
    from distlab.checks import check

    return 0 if check(options.exercise, file=options.file).ok else 1


def _bench(options: argparse.Namespace, words: list[str]) -> int:
    from distlab.benchmarks import run_benchmark

    return run_benchmark(options.name, [*options.words, *words])


def _lab(options: argparse.Namespace, _: list[str]) -> int:
    from distlab.lab import serve

    return serve(port=options.port, browser=not options.no_browser)


def _urls(options: argparse.Namespace, _: list[str]) -> int:
    from distlab.lab import urls

    found = urls()
    print(*(found or ["no JupyterLab of yours runs here: start it with make lab"]), sep="\n")
    return 0 if found else 1


def _node(options: argparse.Namespace, _: list[str]) -> int:
    from distlab.node.serve import serve

    return serve()


def _board(options: argparse.Namespace, _: list[str]) -> int:
    from distlab.board import serve

    return serve(port=options.port, bind=options.bind)


def _data(options: argparse.Namespace, words: list[str]) -> int:
    from distlab.data.__main__ import main as prepare

    return prepare(options.names or ["fashion-mnist"])


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="distlab", description="Distributed deep learning on two hosts, real or simulated."
    )
    verbs = parser.add_subparsers(dest="verb", required=True, metavar="VERB")

    def verb(name: str, do: Callable[..., Any], help: str) -> argparse.ArgumentParser:
        sub = verbs.add_parser(name, help=help, description=help)
        sub.set_defaults(do=do)
        return sub

    sub = verb("doctor", _doctor, "say what is here, what will work, and how to mend what does not")
    sub.add_argument("--json", action="store_true", help="one JSON object")
    sub.add_argument("--quick", action="store_true", help="start no ranks")

    sub = verb("hosts", _hosts, "list the hosts and slots found here")
    sub.add_argument("--json", action="store_true", help="one JSON object")

    sub = verb("run", _run, "start a script on the hosts; its own arguments follow --")
    sub.add_argument("script", metavar="SCRIPT", help=f"{', '.join(script_names())}, or a path")
    sub.add_argument("--launcher", default="torchrun", help=f"one of: {', '.join(RUNS_BY)}")
    sub.add_argument("--hosts", metavar="HOSTS", help="for example node1:2,node2:2; default: those found here")
    sub.add_argument("--timeout", type=float, default=600, metavar="S", help="seconds until all is stopped (600)")
    sub.add_argument("--cold", action="store_true", help="call torchrun itself on each host")
    sub.add_argument(
        "--threads", type=int, metavar="N", help="threads per rank; default: OMP_NUM_THREADS, else a share of the cores"
    )
    sub.add_argument("--master-port", type=int, metavar="PORT", help="port to try first for the rendezvous")
    sub.add_argument("--json", action="store_true", help="end with one JSON line")

    sub = verb("check", _check, "check an exercise and name the mistake")
    sub.add_argument("exercise", metavar="EXERCISE", help="for example ddp")
    sub.add_argument("--file", help="another file than workspace/exercises/EXERCISE.py")

    sub = verb("bench", _bench, "run a benchmark; it prints ratios of one run")
    sub.add_argument("name", metavar="NAME", help="for example launch or ddp")
    sub.add_argument("words", nargs="*", metavar="ARG", help="what the benchmark itself takes")

    sub = verb("lab", _lab, "start JupyterLab on the first page, on this machine only, with a token")
    sub.add_argument("--port", type=int, help="port to try first (8888)")
    sub.add_argument("--no-browser", action="store_true", help="do not open a browser")

    verb("urls", _urls, "print the first page's URL, with its token, of each JupyterLab that runs here")
    verb("node", _node, "be node1 or node2: what the workshop's container runs")

    sub = verb("board", _board, "show the runs' curves in TensorBoard, on this machine only")
    sub.add_argument("--port", type=int, default=6006, metavar="PORT", help="port to listen on (6006)")
    sub.add_argument("--bind", default="127.0.0.1", metavar="ADDRESS", help="address to listen on (127.0.0.1)")

    sub = verb("data", _data, "fetch and prepare data sets")
    sub.add_argument("names", nargs="*", metavar="NAME", help="default: fashion-mnist")
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run one verb; the exit status is the job's."""
    words = list(sys.argv[1:] if argv is None else argv)
    own, extra = (words[: words.index("--")], words[words.index("--") + 1 :]) if "--" in words else (words, [])
    parser = _parser()
    options, unknown = parser.parse_known_args(own)
    if unknown:
        hint = "; the script's own arguments follow --" if options.verb == "run" else ""
        parser.error(f"unknown argument {unknown[0]}{hint}")
    try:
        return int(options.do(options, extra))
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        # `distlab doctor | head`: the reader has seen enough. Python must not complain at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except (DistlabError, OSError) as error:
        text = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        print(f"distlab: {text}", file=sys.stderr)
        return USAGE


if __name__ == "__main__":
    sys.exit(main())
