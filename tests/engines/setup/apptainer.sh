#!/usr/bin/env bash
# Apptainer for tests on a bare Debian 12, as root, in a folder that may be kept from run to run:
#
#     tests/engines/setup/apptainer.sh [FOLDER]    # /var/cache/distlab-engines
#
# FOLDER/base is what images are built from where no registry can be reached: a Debian 12 with this
# machine's certificates. FOLDER/sid has Apptainer, which Debian 12 lacks; where one is installed,
# tests use that.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
cache=$(realpath -m "${1:-/var/cache/distlab-engines}")
export DEBIAN_FRONTEND=noninteractive
mkdir -p "$cache"
# Tests also run images as another user.
chmod 755 "$cache"

# A tree is made beside its place and then moved there, so that one half made is never used.
tree() {
    [ -d "$cache/$2" ] && return
    command -v debootstrap >/dev/null || apt-get install -y -qq --no-install-recommends debootstrap >/dev/null
    rm -rf "$cache/$2.part"
    debootstrap --variant=minbase "$1" "$cache/$2.part" >/dev/null
    "$3" "$cache/$2.part"
    mv "$cache/$2.part" "$cache/$2"
}

certificates() {
    # Nothing in a user namespace may copy a device.
    rm -rf "$1"/dev/*
    mkdir -p "$1/etc/ssl/certs"
    cp /etc/ssl/certs/ca-certificates.crt "$1/etc/ssl/certs/"
    cp -r /usr/local/share/ca-certificates "$1/usr/local/share/"
    printf '[global]\ncert = /etc/ssl/certs/ca-certificates.crt\n' >"$1/etc/pip.conf"
}

apptainer_in() {
    # The sid that can be reached may be an old copy, whose signature has run out.
    local apt=(chroot "$1" apt-get -qq -o Acquire::Check-Valid-Until=false -o Dpkg::Use-Pty=0)
    "${apt[@]}" update
    # squashfuse and fuse3: without them each start unpacks the whole image.
    "${apt[@]}" install -y --no-install-recommends apptainer squashfuse fuse3 >/dev/null
    "${apt[@]}" clean
    # Ids that `apptainer build --fakeroot` may give away inside.
    echo root:100000:65536 | tee "$1/etc/subuid" >"$1/etc/subgid"
}

tree bookworm base certificates
installed=$(command -v apptainer || command -v singularity || true)
if [ -z "$installed" ] || [ "$(readlink -f "$installed")" = "$cache/apptainer" ]; then
    tree sid sid apptainer_in
    install -m 755 "$here/apptainer-in-sid.sh" "$cache/apptainer"
    ln -sfn "$cache/apptainer" /usr/local/bin/apptainer
fi
# An image is mounted by whoever runs it. On a machine with udev everybody may; this one may have none.
[ ! -c /dev/fuse ] || chmod a+rw /dev/fuse
# The first call makes the places that another user could not.
apptainer --version
