"""Prints in the way that MODE says."""

import os
import sys
import time

mode, rank = sys.argv[1], os.environ["RANK"]

if mode == "flood":
    for number in range(int(sys.argv[2])):
        print(f"{rank} {number}")
elif mode == "live":
    print("first", flush=True)
    time.sleep(1.5)
    print("second", flush=True)
elif mode == "bars":
    for step in range(4):
        sys.stderr.write(f"\rstep {step} ████ 3.0 images/s")
        sys.stderr.flush()
        time.sleep(0.2)
    sys.stderr.write("\n")
    print("after the bar")
elif mode == "bytes":
    sys.stdout.flush()
    os.write(1, b"caf\xe9 \xff\x00 \xe2\x82\xac\n")
    print("then text: \N{SNOWMAN} and a lone half \ud83d")
elif mode == "long":
    print("x" * 3_000_000 + "end")
    print("no newline at the end", end="")
elif mode == "die":
    print("last words on stdout")
    print("last words on stderr", file=sys.stderr)
    os.kill(os.getpid(), 9)
elif mode == "survived":
    # An error that the script copes with is no failure, and what it prints is not lost.
    import traceback

    try:
        raise KeyError("coped with")
    except KeyError:
        traceback.print_exc()
    print("done")
elif mode == "child":
    import subprocess

    subprocess.run([sys.executable, "-S", "-c", "print('from a child')"], check=True)
    print("stdin:", repr(sys.stdin.read()))
