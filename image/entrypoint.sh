#!/bin/sh
# Gives the user a name when the container was started as an id that the image does not know
# (compose's WORKSHOP_UID, or `docker run --user`): ssh refuses to work for somebody without one.
set -eu
uid=$(id -u)
gid=$(id -g)
if ! getent passwd "$uid" >/dev/null; then
    echo "owner:x:$uid:$gid:owner of the workspace:$HOME:/bin/bash" >>/var/lib/extrausers/passwd
fi
if ! getent group "$gid" >/dev/null; then
    echo "owner:x:$gid:" >>/var/lib/extrausers/group
fi
exec "$@"
