#!/bin/bash
# debian-disk.sh IMAGE ARCHIVE ADDRESS/LENGTH KEY: makes the raw disk of a machine with a Debian 12 of its own: GRUB for BIOS, systemd,
# OpenSSH. Root logs in with the public key in the file KEY. IMAGE.host-key gets the system's own public key. ARCHIVE is a tar file with
# the Debian, which is made if it is missing.
set -euo pipefail
image=$1 archive=$2 address=$3 key=$4
work=$(mktemp -d "${TMPDIR:-/tmp}/salvor-debian.XXXXXX")
root=$work/root
loop=
finish() {
	status=$?
	trap - EXIT
	umount -R "$root" 2>/dev/null || true
	[ -z "$loop" ] || losetup -d "$loop"
	rm -rf "$work"
	[ "$status" = 0 ] || rm -f "$image"
	exit "$status"
}
trap finish EXIT
trap 'exit 130' INT TERM

# Sectors: GRUB's own partition, then the file system.
core=2048 start=4096 size=$((1200 * 2048))
truncate -s $(((start + size + 2048) * 512)) "$image"
sfdisk -q "$image" <<END
label: gpt
start=$core, size=2048, type=21686148-6449-6E6F-744E-656564454649
start=$start, size=$size, type=0FC63DAF-8483-4772-8E79-3D69D8477DE4
END
loop=$(losetup -f --show -o $((start * 512)) --sizelimit $((size * 512)) "$image")
mke2fs -q -t ext4 -L root "$loop"
uuid=$(blkid -p -s UUID -o value "$loop")
mkdir "$root"
mount "$loop" "$root"
include=systemd-sysv,udev,ifupdown,openssh-server,linux-image-cloud-amd64,grub-pc,e2fsprogs,zstd
if [ ! -e "$archive" ]; then
	mmdebstrap --quiet --variant=minbase --include="$include" bookworm "$work/debian.tar"
	cp "$work/debian.tar" "$archive.new.$$" # it may lie on another file system
	mv "$archive.new.$$" "$archive"
fi
tar -C "$root" -xf "$archive"
echo "UUID=$uuid / ext4 errors=remount-ro 0 1" >"$root/etc/fstab"
echo debian >"$root/etc/hostname"
printf 'auto lo\niface lo inet loopback\n\nallow-hotplug enp0s3\niface enp0s3 inet static\n\taddress %s\n' "$address" >"$root/etc/network/interfaces"
install -D -m 600 "$key" "$root/root/.ssh/authorized_keys"
printf 'GRUB_TIMEOUT=0\nGRUB_TERMINAL=console\nGRUB_CMDLINE_LINUX=console=ttyS0\n' >>"$root/etc/default/grub"

# The programs that install GRUB look for the partition as a device of the kernel, which a loop device may not give. So grub-probe is told
# what it would find, and the two pieces of GRUB are put in place here.
cat >"$root/run/grub-probe" <<END
#!/bin/sh
case "\$*" in
*--target=device*) echo /dev/vda2 ;;
*--target=fs_uuid*) echo $uuid ;;
*--target=partmap*) echo gpt ;;
*--target=compatibility_hint*) echo hd0,gpt2 ;;
*--target=hints_string*) echo --hint=hd0,gpt2 ;;
*--target=fs*) echo ext2 ;;
esac
END
chmod 755 "$root/run/grub-probe"
mount --bind "$root/run/grub-probe" "$root/usr/sbin/grub-probe"
mount -t proc proc "$root/proc"
inside() { chroot "$root" /usr/bin/env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin LC_ALL=C "$@"; }
grub=/boot/grub/i386-pc
mkdir -p "$root$grub"
cp "$root"/usr/lib/grub/i386-pc/{*.mod,*.lst,boot.img} "$root$grub/"
mkdir -p "$root/dev/disk/by-uuid"
touch "$root/dev/disk/by-uuid/$uuid"
inside grub-mkimage -O i386-pc -p '(,gpt2)/boot/grub' -o "$grub/core.img" biosdisk part_gpt ext2
inside grub-editenv /boot/grub/grubenv create
inside env GRUB_DISABLE_OS_PROBER=true grub-mkconfig -o /boot/grub/grub.cfg 2>"$work/log" || { cat "$work/log" >&2; exit 1; }
grep -q "root=UUID=$uuid" "$root/boot/grub/grub.cfg" || { echo "debian-disk: grub.cfg names no root" >&2; exit 1; }
rm -r "$root/dev/disk"
cp "$root$grub/boot.img" "$root$grub/core.img" "$work/"
cut -d' ' -f1,2 "$root/etc/ssh/ssh_host_ed25519_key.pub" >"$image.host-key"
umount "$root/usr/sbin/grub-probe" "$root/proc"
rm -f "$root/run/grub-probe"
umount "$root"

# little VALUE BYTES: a number with its lowest byte first.
little() { local i; for ((i = 0; i < $2; i++)); do printf "\\x$(printf %02x $((($1 >> (8 * i)) & 255)))"; done; }
# patch FILE OFFSET: puts what it reads into a file.
patch() { dd of="$1" bs=1 seek="$2" conv=notrunc status=none; }
sectors=$((($(stat -c %s "$work/core.img") + 511) / 512))
little $core 8 | patch "$work/boot.img" $((0x5c))      # where the rest of GRUB is
printf '\x90\x90' | patch "$work/boot.img" $((0x66))    # the BIOS names the right disk
{ little $((core + 1)) 8; little $((sectors - 1)) 2; little $((0x820)) 2; } | patch "$work/core.img" $((0x1f4)) # the sectors after its first
dd if="$work/boot.img" of="$image" bs=440 count=1 conv=notrunc status=none
dd if="$work/core.img" of="$image" bs=512 seek=$core conv=notrunc status=none
