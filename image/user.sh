#!/bin/sh
# The normal user, by default 1000:1000 (UID, GID), and names for other ids at run time.
set -eu

groupadd --gid "${GID:-1000}" attendee
useradd --uid "${UID:-1000}" --gid "${GID:-1000}" --create-home --shell /bin/bash attendee

# A container may be started as any id, the owner of the mounted workspace. ssh wants a name for
# it, which entrypoint.sh writes where libnss-extrausers looks; that library ignores ids below
# 500, so nobody gets a second name for root there.
sed -i -e 's/^\(passwd\|group\):.*/& extrausers/' /etc/nsswitch.conf
mkdir -p /var/lib/extrausers /shared
touch /var/lib/extrausers/passwd /var/lib/extrausers/group
chmod 1777 /var/lib/extrausers /shared /home/attendee
chmod 666 /var/lib/extrausers/passwd /var/lib/extrausers/group

# Nobody in the container becomes another user.
find / -xdev -type f -perm /6000 -exec chmod a-s {} +
# A program that asks for a capability does not start where all are dropped. The kernel lets ping
# work without; a copy has lost the demand.
cp /usr/bin/ping /usr/bin/ping.plain
mv /usr/bin/ping.plain /usr/bin/ping
