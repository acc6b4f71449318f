#!/bin/sh
# The Debian packages of the image. Dockerfile and Singularity both call this, so that a room with
# Docker and a cluster with Apptainer run the same thing.
#
# python3: what the environment is made from. openssh: ranks on the other host. iputils-ping, lsof,
# iproute2, procps: looking around. curl: the health check. libnss-extrausers: see user.sh.
# dataset-fashion-mnist: the images that every lesson trains on, so that no room needs a network.
set -eu
export DEBIAN_FRONTEND=noninteractive

apt-get update -qq
apt-get install -y -qq --no-install-recommends python3 openssh-client openssh-server iputils-ping lsof iproute2 \
    procps curl libnss-extrausers dataset-fashion-mnist >/dev/null
apt-get clean
rm -rf /var/lib/apt/lists/* /var/cache/debconf/*-old /var/log/apt /var/log/dpkg.log

# The package made keys of this machine; they would be the same in every copy of the image.
rm -f /etc/ssh/ssh_host_*

# A login shell, such as JupyterLab's terminal, starts from Debian's PATH.
echo 'PATH=/opt/venv/bin:$PATH' >/etc/profile.d/workshop.sh
