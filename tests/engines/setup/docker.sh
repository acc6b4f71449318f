#!/usr/bin/env bash
# A Docker engine with Compose v2, for tests on a bare Debian 12, as root:
#
#     tests/engines/setup/docker.sh [FOLDER]    # after apptainer.sh, and with the same folder
#
# Debian 12 has the engine; Compose v2 and buildx come from the tree of Debian sid, whose
# plugins need nothing beside them. FOLDER/base becomes the image distlab-base, in the place of
# debian:bookworm-slim. An engine that runs already is used and left as it is; one that is started
# here has its number in FOLDER/dockerd.pid.
set -euo pipefail
cache=$(realpath -m "${1:-/var/cache/distlab-engines}")
plugins=/usr/local/lib/docker/cli-plugins
export DEBIAN_FRONTEND=noninteractive

apt-get install -y -qq --no-install-recommends docker.io iptables >/dev/null

if ! docker compose version >/dev/null 2>&1 || ! docker buildx version >/dev/null 2>&1; then
    rm -rf "$cache/sid/plugins"
    mkdir -p "$cache/sid/plugins" "$plugins"
    chroot "$cache/sid" sh -c 'apt-get -qq -o Acquire::Check-Valid-Until=false update &&
        cd /plugins && apt-get -qq -o APT::Sandbox::User=root download docker-compose docker-buildx'
    for package in "$cache"/sid/plugins/*.deb; do dpkg -x "$package" "$cache/sid/plugins/out"; done
    cp "$cache"/sid/plugins/out/usr/libexec/docker/cli-plugins/* "$plugins/"
fi

rm -f "$cache/dockerd.pid"
if ! docker info >/dev/null 2>&1; then
    nohup setsid dockerd >"$cache/dockerd.log" 2>&1 &
    echo $! >"$cache/dockerd.pid"
    for _ in $(seq 100); do docker info >/dev/null 2>&1 && break || sleep 0.3; done
    docker info >/dev/null || { tail -20 "$cache/dockerd.log"; exit 1; }
    # A machine that is kept from run to run would fill up: each build leaves an image of 7 GB and its layers.
    docker image prune --force >/dev/null
    docker builder prune --force --reserved-space 10GB >/dev/null
fi

docker image inspect distlab-base >/dev/null 2>&1 || tar -C "$cache/base" -c . | docker import - distlab-base >/dev/null
docker compose version
