#!/bin/sh
# Horovod in /opt/venv, with NCCL, so that one image serves CPU and GPU: from a wheel in image/wheels
# if `make horovod` left one, else built here, where the compiler stays behind with the stage.
set -eu
project=$(cd "$(dirname "$0")/.." && pwd)
export DEBIAN_FRONTEND=noninteractive PIP_NO_CACHE_DIR=1 HOROVOD_NCCL=1 DISTLAB_HOROVOD=/tmp/horovod

apt-get update -qq
apt-get install -y -qq --no-install-recommends g++ make python3-dev >/dev/null

PYTHONPATH="$project/horovod" /opt/venv/bin/python -m distlab.horovod_wheel
rm -rf /tmp/horovod "$project/horovod" "$project/image/wheels"
