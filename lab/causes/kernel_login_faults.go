package causes

func onInitramfsTools(l Layout) bool { return l.Images == "initramfs-tools" }
func onLUKS(l Layout) bool           { return l.Stack == "luks" }

// kernelFaults keep a kernel from its disks, or harm what it starts from. They and loginFaults stand behind all others, because the place of a fault
// decides whether its case ends by a power cut.
func kernelFaults() []Fault {
	// A second kernel is a copy of the installed one under a newer version. No udev runs here, and GRUB's tools want the links that it makes.
	const secondKernel = `V=$(kernel_version); N=99.1.0-amd64; inside cp -al /usr/lib/modules/$V /usr/lib/modules/$N; for f in $R/boot/*-$V; do cp -p $f ${f%-$V}-$N; done; ` +
		`mkdir -p /dev/disk/by-uuid; for d in $ROOT /dev/sda1 /dev/sda2 /dev/sda3; do if id=$(blkid -p -s UUID -o value $d); then ln -sf $d /dev/disk/by-uuid/$id; fi; done; inside update-grub; ` +
		`[ "$(grep -o 'vmlinuz-[^ ]*' $R/boot/grub/grub.cfg | head -n 1)" = vmlinuz-$N ]; grep -q "initrd.img-$N" $R/boot/grub/grub.cfg; grep -q "vmlinuz-$V" $R/boot/grub/grub.cfg; `
	// The loader of entry files starts a copy of the initramfs on the ESP.
	const rebuild = `V=$(kernel_version); cp $R/boot/initrd.img-$V /tmp/before; inside update-initramfs -u -k "$V"; if cmp -s /tmp/before $R/boot/initrd.img-$V; then false; fi; rm /tmp/before; ` +
		`if [ "$LOADER" = systemd-boot ]; then inside kernel-install add "$V" /boot/vmlinuz-"$V" /boot/initrd.img-"$V"; F=$(find $R/boot/efi -name 'initrd*' -type f); [ -n "$F" ]; for f in $F; do cmp $f $R/boot/initrd.img-$V; done; fi`
	return []Fault{
		{Name: "newest-of-two-kernels-cut-off", Cause: 13, Effect: Blocks, IDs: []string{"kernel-damaged", "kernel-changed"}, On: onGRUB,
			Script: secondKernel + `head -c 1000000 $R/boot/vmlinuz-$N >/tmp/short; cat /tmp/short >$R/boot/vmlinuz-$N`},
		{Name: "newest-of-two-initramfs-cut-off", Cause: 14, Effect: Blocks, IDs: []string{"initramfs-damaged"}, On: onGRUB,
			Script: secondKernel + `head -c 2000000 $R/boot/initrd.img-$N >/tmp/short; cat /tmp/short >$R/boot/initrd.img-$N`},
		{Name: "driver-of-disks-forbidden", Cause: 20, Effect: Blocks, IDs: []string{"root-driver-blocked"}, On: onInitramfsTools,
			Script: `printf 'install virtio_blk /bin/false\ninstall virtio_scsi /bin/false\n' >$R/etc/modprobe.d/hardening.conf; ` + rebuild},
		{Name: "partition-table-backup-gone", Cause: 27, Effect: Harms, IDs: []string{"gpt-backup-damaged"},
			Offline: `disassemble; disassemble() { :; }; dd if=/dev/zero of=/dev/sda bs=512 seek=$(( $(cat /sys/block/sda/size) - 33 )) count=33`},
		{Name: "container-of-crypttab-gone", Cause: 35, Effect: Blocks, IDs: []string{"crypttab-device-missing"}, On: onLUKS,
			Script: `edit $R/etc/crypttab 's/UUID=[0-9a-f-]*/UUID=deadbeef-0000-4000-8000-000000000007/'; ` + rebuild},
		{Name: "esp-mounted-as-ext4", Cause: 23, Effect: Blocks, IDs: []string{"fstab-type-wrong", "fstab-type-unknown", "fstab-line-invalid"}, On: onUEFI,
			Script: `edit $R/etc/fstab 's,/boot/efi vfat umask=0077 ,/boot/efi ext4 defaults ,'`},
	}
}

// loginFaults keep people from logging in, or from what they may do then.
func loginFaults() []Fault {
	return []Fault{
		{Name: "sudoers-writable-by-everybody", Cause: 53, Effect: Harms, IDs: []string{"sudoers-refused", "sudoers-invalid"}, Script: `chmod 666 $R/etc/sudoers`},
		{Name: "root-missing-in-shadow", Cause: 42, Effect: Blocks, IDs: []string{"shadow-entry-missing"},
			Script: `grep -q '^root:x:' $R/etc/passwd; edit $R/etc/shadow '/^root:/d'`},
		{Name: "accounts-from-a-missing-service", Cause: 42, Effect: Blocks, IDs: []string{"nsswitch-module-missing"},
			Script: `[ -z "$(find $R/usr/lib -name 'libnss_sss*')" ]; edit $R/etc/nsswitch.conf 's/^passwd:.*/passwd:         sss/'`},
		{Name: "sshd-allows-another-account-only", Cause: 48, Effect: Blocks, IDs: []string{"sshd-users-denied"},
			Script: `mkdir -p $R/etc/ssh/sshd_config.d; echo 'AllowUsers deploy' >$R/etc/ssh/sshd_config.d/20-access.conf; grep -q '^Include /etc/ssh/sshd_config.d/' $R/etc/ssh/sshd_config`},
		{Name: "sshd-not-to-be-run", Cause: 49, Effect: Blocks, IDs: []string{"sshd-not-enabled"}, Script: `: >$R/etc/ssh/sshd_not_to_be_run`},
		{Name: "authorized-keys-writable-by-everybody", Cause: 51, Effect: Blocks, IDs: []string{"ssh-key-permissions"}, Script: `chmod 666 $R/root/.ssh/authorized_keys`},
		{Name: "folder-of-keys-open", Cause: 51, Effect: Blocks, IDs: []string{"ssh-key-permissions"}, Script: `chmod 777 $R/root/.ssh`},
		{Name: "network-of-a-replaced-card", Cause: 55, Effect: Blocks, IDs: []string{"network-mac-changed", "network-interface-missing"}, On: onSystemd,
			Script: `printf 'auto lo\niface lo inet loopback\n' >$R/etc/network/interfaces; mkdir -p $R/etc/systemd/network; printf '[Match]\nMACAddress=00:16:3e:5a:21:07\n\n[Network]\nDHCP=yes\n' >$R/etc/systemd/network/10-lan.network; grep -q '^systemd-network:' $R/etc/passwd; U=/lib/systemd/system; E=$R/etc/systemd/system; mkdir -p $E/multi-user.target.wants $E/sockets.target.wants; ln -s $U/systemd-networkd.service $E/multi-user.target.wants/systemd-networkd.service; ln -s $U/systemd-networkd.socket $E/sockets.target.wants/systemd-networkd.socket; ln -s $U/systemd-networkd.service $E/dbus-org.freedesktop.network1.service`},
		{Name: "password-expired-years-ago", Cause: 47, Effect: Blocks, IDs: []string{"account-expired", "password-must-change"},
			Script: `edit $R/etc/shadow '/^root:/s/^\(root:[^:]*\):[^:]*:[^:]*:[^:]*:[^:]*:[^:]*:/\1:17000:0:30:7:7:/'; grep -q '^root:[^:]*:17000:0:30:7:7:' $R/etc/shadow`},
		{Name: "etc-writable-by-everybody", Cause: 43, Effect: Harms, IDs: []string{"permissions-open"}, Script: `chmod 777 $R/etc`},
	}
}
