#!/bin/bash
# Becomes a second node of the cluster, in the namespaces that it is started in (network, mount, UTS and PID of their own, below those of
# the first node), and stays: to kill it is to cut the node's power. $1 is the cluster's folder, which both nodes see.
set -eu -o pipefail
dir=$1
zone=gnt.example.test
hostname node2.$zone
mount --make-rprivate /
mount -t sysfs sysfs /sys
ip link set lo up
touch "$dir/two/namespace"
for _ in {1..200}; do ip link set node2 up 2> /dev/null && break || sleep 0.05; done # its wire is brought from outside
ip link add gnt0 type bridge
ip link set node2 master gnt0
ip link set gnt0 up
ip addr add 10.79.0.2/24 dev gnt0
mkdir -p "$dir"/two/{lib,run,log/os}
chmod 755 "$dir/two" "$dir"/two/*
mount --bind "$dir/two/lib" /var/lib/ganeti
mount --bind "$dir/two/log" /var/log/ganeti
mount --bind "$dir/two/run" /run/ganeti
mount -t tmpfs -o mode=755 run /run/sshd
exec /usr/sbin/sshd -D -e -o HostKey="$dir/ssh/id_rsa" -o ListenAddress=10.79.0.2 -o PidFile=none -o UsePAM=no -o StrictModes=no
