#!/bin/sh
# The command `apptainer` for a machine that has none: the one in the tree of Debian sid beside this
# file, in a user namespace of its own and with this machine's folders at their own places.
#
# Apptainer run by root asks for every capability, and a machine that runs CI may lack one. In a user
# namespace it has them all. chroot would not do: no user namespace can be made inside one.
set -eu
cache=$(dirname "$(readlink -f "$0")")
tree=$cache/sid
PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin

if [ -z "${DISTLAB_SID-}" ]; then
    DISTLAB_SID=$(id -u):$(id -g)
    export DISTLAB_SID
    # Another user can map nobody but himself; that is enough to run an image.
    [ "$DISTLAB_SID" = 0:0 ] || exec unshare --user --map-root-user --mount "$0" "$@"
    # Only a process outside may map all ids, and this one must keep its own id, for signals.
    outside=$(readlink /proc/$$/ns/user)
    ( (
        while [ "$(readlink /proc/$$/ns/user)" = "$outside" ]; do sleep 0.01; done
        for map in uid_map gid_map; do echo 0 0 4294967295 >/proc/$$/$map; done
    ) & )
    exec unshare --user --mount "$0" "$@"
fi

until grep -q . /proc/self/gid_map; do sleep 0.01; done
place() {
    if [ -d "$1" ]; then mkdir -p "$tree$1"; else [ -e "$tree$1" ] || : >"$tree$1"; fi
    mount --rbind "$1" "$tree$1"
}
mount --rbind "$tree" "$tree"
mkdir -p "$tree$cache"
mount --rbind "$cache" "$tree$cache"
for folder in /*; do
    case $folder in
    /bin | /boot | /etc | /lib* | /lost+found | /run | /sbin | /usr | /var) ;;
    *) [ ! -d "$folder" ] || place "$folder" ;;
    esac
done
for file in /etc/group /etc/hosts /etc/passwd /etc/resolv.conf; do place "$file"; done
mount -t tmpfs tmpfs "$tree/run"

here=$PWD
mkdir "$tree/run/outside"
cd "$tree"
pivot_root . run/outside
umount --lazy /run/outside
cd "$here"

user=$DISTLAB_SID
unset DISTLAB_SID
[ "$user" != 0:0 ] || exec /usr/bin/apptainer "$@"
exec unshare --user --map-user="${user%:*}" --map-group="${user#*:}" /usr/bin/apptainer "$@"
