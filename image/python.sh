#!/bin/sh
# The pinned environment in /opt/venv, from pyproject.toml and constraints.txt: what `make` installs,
# without what only tests need.
set -eu
project=$(cd "$(dirname "$0")/.." && pwd)
export DEBIAN_FRONTEND=noninteractive PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_PROGRESS_BAR=off

apt-get update -qq
apt-get install -y -qq --no-install-recommends python3-venv >/dev/null
apt-get clean
rm -rf /var/lib/apt/lists/*

python3 -m venv /opt/venv
python3 -c 'import sys, tomllib; print(*tomllib.load(sys.stdin.buffer)["project"]["dependencies"], sep="\n")' \
    <"$project/pyproject.toml" >/tmp/dependencies.txt
/opt/venv/bin/pip install -c "$project/constraints.txt" -r /tmp/dependencies.txt
rm /tmp/dependencies.txt

# distlab: only the way to /workspace is installed, so this needs no more of it than its name. What
# is there, in the image or mounted over it, is read when a process starts.
ln -sfn /workspace "$project/workspace"
mkdir -p /workspace/distlab
touch "$project/README.md"
/opt/venv/bin/pip install --no-deps -e "$project"
rm -rf /workspace/distlab.egg-info
