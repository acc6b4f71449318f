#!/usr/bin/env bash
# Both engines and both images, as root, while other tests already run:
#
#     DISTLAB_SIF=FILE tests/engines/setup/beside.sh FOLDER
#
# Tests that need Docker wait for FOLDER/docker.lock, those that need Apptainer for FOLDER/apptainer.lock.
# The environment in .venv is made by whoever starts this. Apptainer's file is made from the root file
# system that Docker built, so that packages are fetched once; cluster.py says why that proves as much.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
cache=$(realpath -m "$1")
python=.venv/bin/python
cd "$here/../../.."

mkdir -p "$cache"
exec 8>"$cache/docker.lock" 9>"$cache/apptainer.lock"
flock 8
flock 9
# A daemon that was started here would keep a lock that only ends with its last holder.
trap 'flock -u 8; flock -u 9' EXIT
rm -f "$DISTLAB_SIF"

said() { echo "beside the tests, after $((SECONDS / 60)) min $((SECONDS % 60)) s: $*"; }

"$here/apptainer.sh" "$cache" 8>&- 9>&-
"$here/docker.sh" "$cache" 8>&- 9>&-
said "both engines are there"

export DOCKER_BUILDKIT=1
stage() { docker build --quiet --build-arg "BASE=$WORKSHOP_BASE" --target "$@" . >/dev/null; }
stage python
said "the image's environment is installed"
until [ -e .venv/.installed ]; do sleep 1; done
"$python" -m distlab.horovod_wheel
said "Horovod's wheel is ready"
# As the tests build it, so that they find it built.
version=$(sed -n 's/^version = "\(.*\)"$/\1/p' pyproject.toml)
WORKSHOP_IMAGE=distlab WORKSHOP_VERSION=$version docker compose build --quiet
flock -u 8
said "the Docker image is built"

stage installed --tag distlab-installed
layers=$(docker image inspect --format '{{.GraphDriver.Data.UpperDir}}:{{.GraphDriver.Data.LowerDir}}' distlab-installed)
mkdir -p "$cache/installed"
mount -t overlay overlay -o "ro,lowerdir=$layers" "$cache/installed"
trap 'umount "$cache/installed"; flock -u 8; flock -u 9' EXIT
DISTLAB_INSTALLED=$cache/installed "$python" tests/engines/cluster.py "$DISTLAB_SIF.part" 8>&- 9>&-
mv "$DISTLAB_SIF.part" "$DISTLAB_SIF"
said "Apptainer's file is built"
