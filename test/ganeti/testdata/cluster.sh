#!/bin/bash
# Makes a Ganeti cluster of one node in the namespaces that it is started in (network, mount, UTS and PID of their
# own). $1 is an empty folder that everything is kept in;
set -eu -o pipefail
dir=$1
zone=gnt.example.test
mkdir -p "$dir"/{lib,run,log,srv,shared,etc,ssh,isos}
chmod 755 "$dir" "$dir"/*
chmod 700 "$dir/ssh"

hostname node1.$zone
mount --make-rprivate /
mount -t sysfs sysfs /sys # of these namespaces: Ganeti looks for its bridge there
ip link set lo up
ip link add gnt0 type bridge
ip link set gnt0 up
ip addr add 10.79.0.1/24 dev gnt0
cat > "$dir/hosts" <<HOSTS
127.0.0.1 localhost
10.79.0.1 node1.$zone node1
10.79.0.100 cluster.$zone cluster
10.79.0.2 node2.$zone node2
10.79.0.10 web.$zone
10.79.0.11 db.$zone
HOSTS
mount --bind "$dir/hosts" /etc/hosts
mkdir -p /var/lib/ganeti /var/log/ganeti /run/ganeti
mount --bind "$dir/lib" /var/lib/ganeti
mount --bind "$dir/log" /var/log/ganeti
mount --bind "$dir/run" /run/ganeti
cp -a /etc/ganeti/. "$dir/etc/" 2>/dev/null || true
printf "%s\n" "$dir/srv" "$dir/shared" > "$dir/etc/file-storage-paths"
mkdir -p /etc/ganeti /srv
mount --bind "$dir/etc" /etc/ganeti
mkdir -p "$dir/home"
mount --bind "$dir/home" /srv
mkdir -p "$HOME/.ssh" /run/sshd
mount --bind "$dir/ssh" "$HOME/.ssh"
ssh-keygen -q -t rsa -N '' -f "$HOME/.ssh/id_rsa"
cp "$HOME/.ssh/id_rsa.pub" "$HOME/.ssh/authorized_keys"
mkdir -p /var/log/ganeti/os

# An operating system that installs nothing: disks are none of this test's business.
os=/srv/ganeti/os/noop
mkdir -p $os
for script in create export import rename verify; do
	printf '#!/bin/sh\nexit 0\n' > $os/$script
	chmod +x $os/$script
done
echo 20 > $os/ganeti_api_version
echo default > $os/variants.list
echo "none none" > $os/parameters.list

# QEMU without KVM; its command line and its guest's serial console are kept for the test to read.
cat > "$dir/qemu" <<'QEMU'
#!/bin/bash
args=()
for word in "$@"; do
	case $word in
	-enable-kvm | -disable-kvm) ;;
	unix:*.serial,*) args+=("$word,logfile=$(dirname "$0")/serial.log,logappend=on") ;;
	*) args+=("${word/accel=kvm/accel=tcg}") ;;
	esac
done
echo "${args[*]}" >> "$(dirname "$0")/qemu.log"
exec /usr/bin/qemu-system-x86_64 "${args[@]}"
QEMU
chmod +x "$dir/qemu"

gnt-cluster init --enabled-hypervisors=kvm --enabled-disk-templates=diskless,file,sharedfile --file-storage-dir="$dir/srv" --shared-file-storage-dir="$dir/shared" \
	-H "kvm:kernel_path=,initrd_path=,kvm_path=$dir/qemu,kvm_flag=disabled,vnc_bind_address=,serial_console=True,disk_aio=threads" \
	--no-etc-hosts --no-ssh-init --master-netdev=gnt0 --nic-parameters link=gnt0 cluster.$zone
mkdir -p /var/lib/ganeti/rapi
echo 'salvor s3cret write' > /var/lib/ganeti/rapi/users
chmod 644 /var/lib/ganeti/rapi/users
