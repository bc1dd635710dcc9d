package causes

import (
	"slices"
	"time"
)

func onGRUB(l Layout) bool       { return l.Loader == "grub" }
func onUEFI(l Layout) bool       { return l.UEFI }
func onBIOS(l Layout) bool       { return !l.UEFI }
func onSystemd(l Layout) bool    { return l.Init == "systemd" }
func onExt4(l Layout) bool       { return l.FS == "ext4" }
func onBtrfs(l Layout) bool      { return l.FS == "btrfs" }
func onRAID(l Layout) bool       { return l.Stack == "mdraid-lvm" }
func onPlainExt4(l Layout) bool  { return onExt4(l) && l.Stack == "plain" }
func onEntryFiles(l Layout) bool { return l.Loader == "systemd-boot" }
func onSignedGRUB(l Layout) bool { return l.Signed }
func onSysvinit(l Layout) bool   { return l.Init == "sysvinit" }

// Faults lists all faults. The most frequent causes come first.
func Faults() []Fault {
	return slices.Concat(frequentFaults(), loaderFaults(), startFaults(), storageFaults(), accessFaults(), networkFaults(), initramfsFaults(), machineFaults(), volumeFaults(), kernelFaults(), loginFaults())
}

// frequentFaults are those that most machines have that do not boot or let nobody in.
func frequentFaults() []Fault {
	return []Fault{
		{Name: "fstab-names-a-disk-that-is-gone", Cause: 22, Effect: Blocks, IDs: []string{"fstab-device-missing"},
			Script: `mkdir -p $R/data; echo 'UUID=deadbeef-0000-4000-8000-000000000001 /data ext4 defaults 0 2' >>$R/etc/fstab`},
		{Name: "initramfs-cut-off", Cause: 14, Effect: Blocks, IDs: []string{"initramfs-damaged"},
			Script: `for f in $(find $R/boot -name 'initrd*' -size +2000k); do head -c 2000000 $f >/tmp/short; cat /tmp/short >$f; done`},
		{Name: "sshd-config-with-an-unknown-option", Cause: 48, Effect: Blocks, IDs: []string{"sshd-config-invalid"},
			Script: `echo 'PermitRootLoginn yes' >>$R/etc/ssh/sshd_config`},
		{Name: "grub-config-empty", Cause: 8, Effect: Blocks, IDs: []string{"grub-config-empty", "grub-config-missing"}, On: onGRUB,
			Script: `: >$R/boot/grub/grub.cfg`},
		{Name: "root-argument-names-another-file-system", Cause: 11, Effect: Blocks, IDs: []string{"root-argument-missing"},
			Script: `for f in $(boot_entries); do sed -i 's,root=UUID=[0-9a-f-]*,root=UUID=5a5a5a5a-0000-4222-8333-444455556666,; s,root=/dev/mapper/[a-z0-9-]*,root=/dev/mapper/gone-root,' $f; done; grep -qE 'root=(UUID=5a5a5a5a|/dev/mapper/gone)' $(boot_entries)`},
		{Name: "disk-full", Cause: 28, Effect: Harms, IDs: []string{"disk-full"},
			Script: `i=0; while dd if=/dev/zero of=$R/var/log/fill$i bs=1M count=4000 2>/dev/null; do i=$((i+1)); done; i=0; while [ $i -lt 600 ] && dd if=/dev/zero of=$R/var/log/rest$i bs=4k count=1 2>/dev/null; do i=$((i+1)); done; rm $R/var/log/rest0; sync`},
		{Name: "host-keys-missing", Cause: 50, Effect: Blocks, IDs: []string{"sshd-host-keys-missing"}, Script: `rm $R/etc/ssh/ssh_host_*`},
		{Name: "network-interface-of-another-name", Cause: 55, Effect: Blocks, IDs: []string{"network-interface-missing"},
			Script: `edit $R/etc/network/interfaces 's/enp0s5/eth7/'`},
		{Name: "account-expired", Cause: 47, Effect: Blocks, IDs: []string{"account-expired"},
			Script: `edit $R/etc/shadow '/^root:/s/^\(root:[^:]*:[^:]*:[^:]*:[^:]*:[^:]*:[^:]*:\)[^:]*:/\11:/'`},
		{Name: "kernel-cut-off", Cause: 13, Effect: Blocks, IDs: []string{"kernel-damaged", "kernel-changed"},
			Script: `for f in $(find $R/boot -size +3000k \( -name 'vmlinuz*' -o -name linux \)); do head -c 1000000 $f >/tmp/short; cat /tmp/short >$f; done`},
		{Name: "boot-code-zeroed", Cause: 6, Effect: Blocks, IDs: []string{"mbr-boot-code-missing"}, On: onBIOS,
			Offline: `dd if=/dev/zero of=/dev/sda bs=440 count=1`},
		{Name: "file-system-corrupt", Cause: 25, Effect: Blocks, IDs: []string{"file-system-damaged"}, On: onExt4,
			Offline: `debugfs -w -R 'clri /usr' $ROOT; debugfs -w -R 'clri /var' $ROOT`},
	}
}

// loaderFaults keep firmware and loader from the kernel.
func loaderFaults() []Fault {
	return []Fault{
		{Name: "grub-config-missing", Cause: 8, Effect: Blocks, IDs: []string{"grub-config-missing"}, On: onGRUB, Script: `rm $R/boot/grub/grub.cfg`},
		{Name: "grub-config-cut-off", Cause: 8, Effect: Blocks, IDs: []string{"grub-config-invalid"}, On: onGRUB,
			Script: `n=$(awk '/^menuentry/ { print n; exit } { n += length($0) + 1 }' $R/boot/grub/grub.cfg); [ "$n" -gt 1000 ]; head -c $((n + 40)) $R/boot/grub/grub.cfg >/tmp/cut; cat /tmp/cut >$R/boot/grub/grub.cfg`},
		{Name: "grub-stub-of-another-file-system", Cause: 8, Effect: Blocks, IDs: []string{"grub-stub-search-missing", "grub-search-missing"}, On: onSignedGRUB,
			Script: `for f in $(find $R/boot/efi -name grub.cfg); do edit $f 's/^search.*/search.fs_uuid 5a5a5a5a-0000-4222-8333-444455556666 root/'; done; grep -rq 5a5a5a5a $R/boot/efi`},
		{Name: "core-of-grub-damaged", Cause: 6, Effect: Blocks, IDs: []string{"grub-core-damaged"}, On: onBIOS,
			Offline: `dd if=/dev/urandom of=/dev/sda1 bs=512 count=40`},
		{Name: "esp-zeroed", Cause: 2, Effect: Blocks, IDs: []string{"esp-damaged", "esp-missing"}, On: onUEFI,
			Offline: `dd if=/dev/zero of=/dev/sda1 bs=1M count=1`},
		{Name: "loader-files-missing", Cause: 3, Effect: Blocks, IDs: []string{"efi-loader-missing"}, On: onUEFI,
			Script: `find $R/boot/efi -name '*.efi' -o -name '*.EFI' | xargs rm`},
		{Name: "loader-files-empty", Cause: 3, Effect: Blocks, IDs: []string{"efi-loader-damaged"}, On: onUEFI,
			Script: `for f in $(find $R/boot/efi -name '*.efi' -o -name '*.EFI'); do : >$f; done`},
		{Name: "no-boot-entry", Cause: 1, Effect: Blocks, IDs: []string{"efi-boot-entry-missing"}, On: onUEFI, Script: `rm -r $R/boot/efi/EFI/BOOT`},
		{Name: "esp-full", Cause: 4, Effect: Harms, IDs: []string{"esp-full"}, On: onUEFI, Script: `dd if=/dev/zero of=$R/boot/efi/fill bs=64k count=9999 || true`},
		{Name: "grub-environment-damaged", Cause: 10, Effect: Harms, IDs: []string{"grub-environment-invalid"}, On: onGRUB,
			Script: `edit $R/boot/grub/grub.cfg 's/set default="0"/set default="${saved_entry}"/'; printf x >$R/boot/grub/grubenv`},
		{Name: "grub-menu-waits", Cause: 10, Effect: Blocks, IDs: []string{"grub-menu-waits"}, On: onGRUB, Script: `sed -i 's/set timeout=.*/set timeout=-1/' $R/boot/grub/grub.cfg; grep -q timeout=-1 $R/boot/grub/grub.cfg`},
	}
}

// startFaults keep the kernel and the first programs from their work.
func startFaults() []Fault {
	return []Fault{
		{Name: "kernel-missing", Cause: 13, Effect: Blocks, IDs: []string{"kernel-missing", "boot-entry-broken"},
			Script: `find $R/boot \( -name 'vmlinuz*' -o -name linux -type f \) -exec rm {} +`},
		{Name: "initramfs-missing", Cause: 14, Effect: Blocks, IDs: []string{"initramfs-missing", "boot-entry-broken"},
			Script: `find $R/boot -name 'initrd*' -type f -exec rm {} +`},
		{Name: "modules-missing", Cause: 16, Effect: Blocks, IDs: []string{"modules-missing"}, Script: `mv $R/usr/lib/modules/$(kernel_version) $R/root/modules`},
		{Name: "upgrade-interrupted", Cause: 17, Effect: Harms, IDs: []string{"package-upgrade-interrupted"},
			Script: `edit $R/var/lib/dpkg/status '/^Package: openssh-server$/,/^$/s/^Status: install ok installed/Status: install ok half-configured/'`},
		{Name: "init-missing", Cause: 18, Effect: Blocks, IDs: []string{"init-missing"}, Script: `rm $R/usr/sbin/init`},
		{Name: "init-not-executable", Cause: 18, Effect: Blocks, IDs: []string{"init-not-executable"},
			Script: `if [ "$INIT" = systemd ]; then chmod a-x $R/usr/lib/systemd/systemd; else chmod a-x $R/usr/sbin/init; fi`},
		{Name: "program-loader-missing", Cause: 18, Effect: Blocks, IDs: []string{"init-interpreter-missing"},
			Script: `rm -f $R/usr/lib64/ld-linux-x86-64.so.2 $R/usr/lib/x86_64-linux-gnu/ld-linux-x86-64.so.2`},
		{Name: "library-of-init-missing", Cause: 18, Effect: Blocks, IDs: []string{"init-library-missing"}, Script: `rm $R/usr/lib/x86_64-linux-gnu/libc.so.6`},
		{Name: "link-of-sbin-lost", Cause: 18, Effect: Blocks, IDs: []string{"usr-link-missing", "init-missing"}, Script: `rm $R/sbin`},
		{Name: "hugepages-beyond-memory", Cause: 20, Effect: Blocks, IDs: []string{"hugepages-too-many"},
			Script: `mkdir -p $R/etc/sysctl.d; echo 'vm.nr_hugepages = 999999' >$R/etc/sysctl.d/80-database.conf`},
		{Name: "default-target-rescue", Cause: 40, Effect: Blocks, IDs: []string{"default-target-rescue"}, On: onSystemd,
			Script: `ln -sf /lib/systemd/system/rescue.target $R/etc/systemd/system/default.target`},
		{Name: "default-target-masked", Cause: 40, Effect: Blocks, IDs: []string{"default-target-masked"}, On: onSystemd,
			Script: `ln -sf /dev/null $R/etc/systemd/system/default.target`},
		{Name: "default-target-dangling", Cause: 40, Effect: Blocks, IDs: []string{"default-target-missing"}, On: onSystemd,
			Script: `ln -sf /lib/systemd/system/grafical.target $R/etc/systemd/system/default.target`},
		{Name: "kernel-asked-for-rescue", Cause: 20, Effect: Blocks, IDs: []string{"kernel-argument-rescue"},
			Script: `for f in $(boot_entries); do sed -i 's,console=tty0,& single,' $f; done; grep -q ' single' $(boot_entries)`},
		{Name: "kernel-given-little-memory", Cause: 20, Effect: Blocks, IDs: []string{"kernel-argument-memory"},
			Script: `for f in $(boot_entries); do sed -i 's,console=tty0,& mem=64M,' $f; done; grep -q mem=64M $(boot_entries)`},
	}
}

// storageFaults are those of disks, file systems and what mounts them.
func storageFaults() []Fault {
	return []Fault{
		{Name: "fstab-option-misspelt", Cause: 23, Effect: Blocks, IDs: []string{"fstab-option-invalid", "fstab-line-invalid"}, On: onSystemd,
			Script: `echo 'tmpfs /srv tmpfs defauts 0 0' >>$R/etc/fstab`},
		{Name: "fstab-type-misspelt", Cause: 23, Effect: Blocks, IDs: []string{"fstab-type-unknown", "fstab-line-invalid"}, On: onSystemd,
			Script: `echo 'tmpfs /srv tmpsf defaults 0 0' >>$R/etc/fstab`},
		{Name: "fstab-names-sdz1", Cause: 24, Effect: Blocks, IDs: []string{"fstab-kernel-name", "fstab-device-missing"},
			Script: `mkdir -p $R/data; echo '/dev/sdz1 /data ext4 defaults 0 2' >>$R/etc/fstab`},
		{Name: "inodes-full", Cause: 29, Effect: Harms, IDs: []string{"inodes-full"}, On: onExt4,
			Script: `mkdir $R/var/spool/full; cd $R/var/spool/full; seq 1 400000 | xargs touch 2>/dev/null || true; rm 1; cd /`},
		{Name: "resume-device-gone", Cause: 21, Effect: Harms, IDs: []string{"resume-device-missing"},
			Script: `for f in $(boot_entries); do sed -i 's,console=tty0,& resume=UUID=5a5a5a5a-0000-4222-8333-444455556667,' $f; done; grep -q resume=UUID=5a $(boot_entries)`},
		{Name: "superblock-gone", Cause: 26, Effect: Blocks, IDs: []string{"superblock-missing"}, On: onExt4,
			Offline: `dd if=/dev/urandom of=$ROOT bs=1024 seek=1 count=1`},
		{Name: "partition-table-header-gone", Cause: 27, Effect: Blocks, IDs: []string{"gpt-primary-damaged"},
			Offline: `disassemble; disassemble() { :; }; dd if=/dev/zero of=/dev/sda bs=512 seek=1 count=1`},
		{Name: "member-of-array-erased", Cause: 34, Effect: Harms, IDs: []string{"array-degraded"}, On: onRAID,
			Offline: `disassemble; disassemble() { :; }; mdadm --zero-superblock /dev/sdb2`},
		{Name: "volume-of-crypttab-gone", Cause: 35, Effect: Blocks, IDs: []string{"crypttab-device-missing"}, On: onSystemd,
			Script: `mkdir -p $R/data; echo 'data UUID=deadbeef-0000-4000-8000-000000000003 none luks' >>$R/etc/crypttab; echo '/dev/mapper/data /data ext4 defaults 0 2' >>$R/etc/fstab`},
		{Name: "subvolume-of-fstab-gone", Cause: 38, Effect: Blocks, IDs: []string{"fstab-subvolume-missing"}, On: onBtrfs,
			Script: `edit $R/etc/fstab 's/subvol=@home/subvol=@nope/'`},
		{Name: "subvolume-of-root-gone", Cause: 38, Effect: Blocks, IDs: []string{"root-subvolume-missing"}, On: onBtrfs,
			Script: `edit $R/boot/grub/grub.cfg 's/rootflags=subvol=@/rootflags=subvol=@rolled/'`},
		{Name: "network-mount-without-nofail", Cause: 39, Effect: Harms, IDs: []string{"fstab-network-mount"},
			Script: `mkdir -p $R/srv/share; echo '192.0.2.1:/share /srv/share nfs defaults 0 0' >>$R/etc/fstab`},
		{Name: "errors-recorded", Cause: 31, Effect: Harms, IDs: []string{"file-system-errors-recorded", "file-system-damaged"}, On: onExt4,
			Offline: `debugfs -w -R 'ssv state 2' $ROOT; debugfs -w -R 'ssv error_count 5' $ROOT`},
		{Name: "root-read-only-by-fstab", Cause: 31, Effect: Harms, IDs: []string{"fstab-root-read-only"}, On: onExt4, Script: `edit $R/etc/fstab 's/errors=remount-ro/ro/'`},
		{Name: "boot-partition-full", Cause: 30, Effect: Harms, IDs: []string{"boot-partition-full"}, On: func(l Layout) bool { return l.BootPartition },
			Script: `i=0; while dd if=/dev/zero of=$R/boot/fill$i bs=64k count=9999 2>/dev/null; do i=$((i+1)); done; sync`},
	}
}

// accessFaults keep people from logging in.
func accessFaults() []Fault {
	return []Fault{
		{Name: "passwd-line-broken", Cause: 42, Effect: Blocks, IDs: []string{"passwd-broken", "account-entry-broken"},
			Script: `edit $R/etc/passwd 's,^root:x:0:0:root:,root:x:0:root:,'`},
		{Name: "passwd-empty", Cause: 42, Effect: Blocks, IDs: []string{"passwd-broken"}, Script: `: >$R/etc/passwd`},
		{Name: "shadow-missing", Cause: 42, Effect: Blocks, IDs: []string{"shadow-missing"}, Script: `rm $R/etc/shadow`},
		{Name: "home-of-root-open", Cause: 51, Effect: Blocks, IDs: []string{"ssh-key-permissions", "permissions-open"}, Script: `chmod 777 $R/root`},
		{Name: "keys-owned-by-another", Cause: 51, Effect: Blocks, IDs: []string{"ssh-key-permissions"}, Script: `chown -R 1000:1000 $R/root/.ssh`},
		{Name: "keys-malformed", Cause: 51, Effect: Blocks, IDs: []string{"authorized-keys-malformed"}, Script: `edit $R/root/.ssh/authorized_keys 's/ AAAA[^ ]\{20\}/ /'`},
		{Name: "home-of-root-missing", Cause: 51, Effect: Blocks, IDs: []string{"home-missing"}, Script: `mv $R/root $R/root.old`},
		{Name: "root-not-to-be-entered", Cause: 43, Effect: Harms, IDs: []string{"permissions-lost"}, Script: `chmod 700 $R/ $R/usr $R/etc`},
		{Name: "tmp-for-root-only", Cause: 43, Effect: Harms, IDs: []string{"tmp-unusable", "permissions-lost"}, On: onSysvinit, Script: `chmod 700 $R/tmp`},
		{Name: "sudo-not-setuid", Cause: 43, Effect: Harms, IDs: []string{"sudo-not-setuid"}, Script: `chmod u-s $R/usr/bin/sudo`},
		{Name: "sudoers-broken", Cause: 53, Effect: Harms, IDs: []string{"sudoers-invalid", "sudoers-refused"},
			Script: `echo 'admin ALL=(ALL NOPASSWD: ALL' >$R/etc/sudoers.d/admin; chmod 440 $R/etc/sudoers.d/admin`},
		{Name: "password-to-be-changed", Cause: 47, Effect: Harms, IDs: []string{"password-must-change"},
			Script: `edit $R/etc/shadow '/^root:/s/^\(root:[^:]*\):[^:]*:/\1:0:/'`},
		{Name: "sshd-masked", Cause: 49, Effect: Blocks, IDs: []string{"sshd-masked"}, On: onSystemd, Script: `ln -sf /dev/null $R/etc/systemd/system/ssh.service; rm -f $R/etc/systemd/system/ssh.socket; ln -sf /dev/null $R/etc/systemd/system/sshd.service`},
		{Name: "sshd-not-enabled", Cause: 49, Effect: Blocks, IDs: []string{"sshd-not-enabled"}, On: onSystemd,
			Script: `find $R/etc/systemd/system -name 'ssh*' -type l | xargs rm`},
		{Name: "sshd-not-installed", Cause: 49, Effect: Blocks, IDs: []string{"sshd-not-installed"}, Script: `rm $R/usr/sbin/sshd`},
		{Name: "sshd-config-missing", Cause: 48, Effect: Blocks, IDs: []string{"sshd-config-missing"}, Script: `rm $R/etc/ssh/sshd_config`},
		{Name: "sshd-user-missing", Cause: 48, Effect: Blocks, IDs: []string{"sshd-user-missing"}, Script: `edit $R/etc/passwd '/^sshd:/d'`},
		{Name: "root-denied-by-sshd", Cause: 48, Effect: Blocks, IDs: []string{"sshd-users-denied"}, Script: `echo 'DenyUsers root' >>$R/etc/ssh/sshd_config`},
		{Name: "sshd-listens-on-a-lost-address", Cause: 48, Effect: Blocks, IDs: []string{"sshd-listens-nowhere"}, Network: knownNetwork,
			Script: `echo 'ListenAddress 203.0.113.9' >>$R/etc/ssh/sshd_config`},
		{Name: "host-keys-open", Cause: 50, Effect: Blocks, IDs: []string{"sshd-host-keys-open"}, Script: `chmod 644 $R/etc/ssh/ssh_host_*_key`},
		{Name: "host-keys-empty", Cause: 50, Effect: Blocks, IDs: []string{"sshd-host-keys-damaged"}, Script: `for f in $R/etc/ssh/ssh_host_*; do : >$f; done`},
		{Name: "shell-missing", Cause: 52, Effect: Blocks, IDs: []string{"shell-missing"}, Script: `edit $R/etc/passwd '/^root:/s,:[^:]*$,:/usr/bin/zsh,'`},
		{Name: "nologin-left-over", Cause: 52, Effect: Harms, IDs: []string{"nologin-present"}, Script: `echo 'maintenance' >$R/etc/nologin`},
		{Name: "access-denied-by-pam", Cause: 52, Effect: Blocks, IDs: []string{"access-conf-denies"},
			Script: `echo '-:ALL:ALL' >>$R/etc/security/access.conf; edit $R/etc/pam.d/sshd 's/^.*account *required *pam_access.so.*$/account required pam_access.so/'; grep -q '^account required pam_access' $R/etc/pam.d/sshd`},
		{Name: "pam-module-missing", Cause: 52, Effect: Blocks, IDs: []string{"pam-module-missing"}, Script: `edit $R/etc/pam.d/sshd '1iaccount required pam_oidc.so'`},
	}
}

// knownNetwork is the network of all machines of the corpus, by the address that QEMU gives them.
const knownNetwork = `{"links": [{"id": "lan", "type": "phy", "ethernet_mac_address": "52:54:00:12:34:56"}],
"networks": [{"id": "lan4", "type": "ipv4", "link": "lan", "ip_address": "10.0.2.15", "netmask": "255.255.255.0",
"routes": [{"network": "0.0.0.0", "netmask": "0.0.0.0", "gateway": "10.0.2.2"}]}], "services": []}`

// networkFaults keep the machine from its network.
func networkFaults() []Fault {
	return []Fault{
		{Name: "firewall-without-ssh", Cause: 54, Effect: Blocks, IDs: []string{"firewall-blocks-ssh"}, On: onSystemd,
			Script: `printf '#!/usr/sbin/nft -f\nflush ruleset\ntable inet filter {\n\tchain input {\n\t\ttype filter hook input priority 0; policy drop;\n\t\tiif lo accept\n\t\tct state established,related accept\n\t\ttcp dport { 80, 443 } accept\n\t}\n}\n' >$R/etc/nftables.conf; mkdir -p $R/etc/systemd/system/sysinit.target.wants; ln -sf /lib/systemd/system/nftables.service $R/etc/systemd/system/sysinit.target.wants/nftables.service`},
		{Name: "gateway-outside-of-the-subnet", Cause: 56, Effect: Blocks, IDs: []string{"network-gateway-unreachable"}, Network: knownNetwork,
			Script: `printf 'auto lo\niface lo inet loopback\n\nauto enp0s5\niface enp0s5 inet static\n\taddress 10.0.2.15/24\n\tgateway 203.0.113.1\n' >$R/etc/network/interfaces`},
		{Name: "interfaces-file-broken", Cause: 57, Effect: Blocks, IDs: []string{"network-config-invalid"},
			Script: `printf 'auto lo\niface lo inet loopback\n\nauto enp0s5\niface enp0s5 inet\n\tdhcp\n' >$R/etc/network/interfaces`},
		{Name: "no-network-configured", Cause: 57, Effect: Blocks, IDs: []string{"network-nothing-configured", "network-none-enabled"},
			Script: `printf 'auto lo\niface lo inet loopback\n' >$R/etc/network/interfaces`},
		{Name: "networking-disabled", Cause: 57, Effect: Blocks, IDs: []string{"network-none-enabled"}, On: onSystemd,
			Script: `find $R/etc/systemd/system -name 'networking.service' | xargs rm`},
	}
}

// initramfsFaults are those of what the loader hands over: its entries, and an initramfs that is whole and lacks something.
func initramfsFaults() []Fault {
	const rebuild = `if [ -e $R/usr/bin/dracut ]; then inside dracut --quiet --force --no-hostonly --kver "$(kernel_version)" "/boot/initrd.img-$(kernel_version)"; else inside update-initramfs -u -k "$(kernel_version)"; fi`
	return []Fault{
		{Name: "entries-name-another-kernel", Cause: 9, Effect: Blocks, IDs: []string{"boot-entry-broken", "kernel-missing"}, On: onEntryFiles,
			Script: `for f in $R/boot/efi/loader/entries/*.conf; do edit $f 's,^linux[[:space:]].*,linux /gone/linux,'; done`},
		{Name: "entries-gone", Cause: 9, Effect: Blocks, IDs: []string{"boot-entries-missing"}, On: onEntryFiles, Script: `rm $R/boot/efi/loader/entries/*.conf`},
		{Name: "initramfs-without-drivers-of-disks", Cause: 15, Effect: Blocks, IDs: []string{"initramfs-lacks-driver"},
			Script: `if [ -e $R/usr/bin/dracut ]; then echo 'omit_drivers+=" virtio_blk virtio_scsi sd_mod "' >$R/etc/dracut.conf.d/site.conf; else edit $R/etc/initramfs-tools/initramfs.conf 's/^MODULES=.*/MODULES=list/'; fi; ` + rebuild},
		{Name: "initramfs-without-tools-of-volumes", Cause: 15, Effect: Blocks, IDs: []string{"initramfs-lacks-tool"},
			On:     func(l Layout) bool { return l.Images == "initramfs-tools" && l.Stack != "plain" },
			Script: `mkdir $R/root/hooks; H=$R/usr/share/initramfs-tools/hooks; for h in lvm2 cryptroot; do mv $H/$h $R/root/hooks; done; inside update-initramfs -u -k "$(kernel_version)"; mv $R/root/hooks/* $H; rmdir $R/root/hooks`},
		{Name: "policy-of-selinux-missing", Cause: 41, Effect: Blocks, IDs: []string{"selinux-policy-missing"}, On: onSystemd,
			Script: `mkdir -p $R/etc/selinux; printf 'SELINUX=enforcing
SELINUXTYPE=default
' >$R/etc/selinux/config; for f in $(boot_entries); do sed -i 's,console=tty0,& security=selinux selinux=1,' $f; done; grep -q security=selinux $(boot_entries)`},
		{Name: "panic-at-each-boot", Cause: 19, Effect: Blocks, IDs: []string{"kernel-panic-at-boot", "kernel-crash-recorded"}, On: onSystemd,
			Script: `printf '[Unit]
Before=ssh.service getty.target
[Service]
Type=oneshot
ExecStart=/bin/sh -c "echo c >/proc/sysrq-trigger"
' >$R/etc/systemd/system/sensors.service; ln -s ../sensors.service $R/etc/systemd/system/multi-user.target.wants/sensors.service; for ago in 900 600; do d=$R/var/lib/systemd/pstore/$(( $(date +%s) - ago )); mkdir -p $d; printf 'Panic#1 Part1
<6>[   21.401235] sysrq: Trigger a crash
<0>[   21.401822] Kernel panic - not syncing: sysrq triggered crash
<4>[   21.402105] CPU: 0 PID: 312 Comm: sh Not tainted
<4>[   21.403711] RIP: 0010:sysrq_handle_crash+0x16/0x20
' >$d/dmesg.txt; done`},
		{Name: "machine-id-broken", Cause: 46, Effect: Harms, IDs: []string{"machine-id-invalid"}, On: onSystemd, Script: `echo broken >$R/etc/machine-id`},
		{Name: "swap-of-fstab-gone", Cause: 45, Effect: Harms, IDs: []string{"fstab-device-missing"},
			Script: `echo 'UUID=deadbeef-0000-4000-8000-000000000005 none swap sw 0 0' >>$R/etc/fstab`},
	}
}

// machineFaults are those of the machine and its disks; the system that is installed is whole.
func machineFaults() []Fault {
	return []Fault{
		{Name: "firmware-of-the-other-kind", Cause: 7, Effect: Blocks, IDs: []string{"firmware-mode-differs"}, Hardware: Hardware{OtherFirmware: true}},
		{Name: "clock-of-2001", Cause: 44, Effect: Harms, IDs: []string{"clock-wrong"}, Hardware: Hardware{Clock: time.Date(2001, 1, 1, 0, 0, 0, 0, time.UTC)}},
		{Name: "second-disk-gone", Cause: 37, Effect: Harms, IDs: []string{"array-degraded"}, On: onRAID, Hardware: Hardware{Without: 2}},
		{Name: "sector-of-libc-unreadable", Cause: 36, Effect: Blocks, IDs: []string{"disk-failing"}, On: onPlainExt4, Hardware: Hardware{BadSector: true},
			Offline: `b=$(debugfs -R 'blocks /usr/lib/x86_64-linux-gnu/libc.so.6' $ROOT | cut -d' ' -f2); echo "causes: unreadable $(( $(cat /sys/block/sda/sda2/start) + b * 8 ))"`},
	}
}

// volumeFaults are those of LVM.
func volumeFaults() []Fault {
	return []Fault{
		{Name: "volume-group-lacks-a-disk", Cause: 32, Effect: Blocks, IDs: []string{"volume-group-incomplete"}, On: onRAID,
			Offline: `modprobe loop; dd if=/dev/zero of=/tmp/disk bs=1M count=64; l=$(losetup -f); losetup $l /tmp/disk; lvm vgextend --config activation/udev_sync=0 -q vg0 $l; lvm lvextend --config activation/udev_sync=0 -q -l +8 vg0/root $l; disassemble; disassemble() { :; }; losetup -d $l; rm /tmp/disk`},
		{Name: "filter-of-lvm-hides-the-disks", Cause: 32, Effect: Blocks, IDs: []string{"lvm-filter"}, On: onRAID,
			Script: `edit $R/etc/lvm/lvm.conf 's#^devices {#devices {\n\tfilter = [ "r|.*|" ]#'; inside update-initramfs -u -k "$(kernel_version)"`},
		{Name: "thin-pool-full", Cause: 33, Effect: Harms, IDs: []string{"thin-pool-full"}, On: onRAID,
			Offline: `modprobe dm_thin_pool; C='activation/udev_sync=0 activation/monitoring=0 global/thin_check_executable=""'; lvm lvcreate --config "$C" -q -y -Zn --type thin-pool -L 24M --poolmetadatasize 4M -n pool vg0; lvm lvcreate --config "$C" -q -y -Wn --thin -V 64M -n data vg0/pool; lvm vgmknodes --config "$C" 2>/dev/null || true; dd if=/dev/zero of=/dev/mapper/vg0-data bs=64k count=384 conv=fsync; lvm vgchange --config "$C" -q -an vg0; mdadm --stop /dev/md0; disassemble() { :; }`},
	}
}

// UnplayedCauses are the causes of the catalogue that no fault plays, with the reason.
func UnplayedCauses() map[int]string {
	return map[int]string{
		5:  "the ramdisk is started without its signed loader here",
		12: "it harms nothing; a near miss plays it",
		58: "QEMU has no memory or sensors that fail",
	}
}

// pairedFaults are faults that one machine has at once.
func pairedFaults() [][2]string {
	return [][2]string{
		{"fstab-names-a-disk-that-is-gone", "sshd-config-with-an-unknown-option"},
		{"initramfs-cut-off", "host-keys-missing"},
		{"grub-config-empty", "fstab-names-a-disk-that-is-gone"},
		{"root-argument-names-another-file-system", "network-interface-of-another-name"},
		{"kernel-cut-off", "account-expired"},
		{"init-missing", "sshd-masked"},
		{"boot-code-zeroed", "interfaces-file-broken"},
		{"loader-files-missing", "sshd-config-with-an-unknown-option"},
		{"passwd-line-broken", "network-interface-of-another-name"},
		{"initramfs-cut-off", "member-of-array-erased"},
	}
}

// variant is a case that is not yet on a layout.
type variant struct {
	Case
	on func(Layout) bool
}

// nearMisses look like faults and are none.
func nearMisses() []variant {
	named := func(name, script string, on func(Layout) bool) variant {
		return variant{Case{Name: name, Script: script}, on}
	}
	out := []variant{
		named("missing-disk-with-nofail", `mkdir -p $R/data; echo 'UUID=deadbeef-0000-4000-8000-000000000001 /data ext4 defaults,nofail 0 2' >>$R/etc/fstab`, nil),
		named("missing-disk-noauto", `mkdir -p $R/backup; echo 'LABEL=backup /backup ext4 noauto,user 0 0' >>$R/etc/fstab`, nil),
		named("files-of-windows-on-the-esp", `mkdir -p $R/boot/efi/EFI/Microsoft/Boot; dd if=/dev/urandom of=$R/boot/efi/EFI/Microsoft/Boot/bootmgfw.efi bs=1k count=400; dd if=/dev/urandom of=$R/boot/efi/EFI/Microsoft/Boot/BCD bs=1k count=24`, onUEFI),
		named("old-panic-in-the-log", `printf '2026-10-01T03:00:00 web kernel: [  812.1] Kernel panic - not syncing: Fatal exception\n2026-10-01T03:02:00 web kernel: [    0.0] Linux version 6.1.0\n2026-10-01T03:02:20 web sshd[400]: Server listening on 0.0.0.0 port 22.\n' >>$R/var/log/kern.log; mkdir -p $R/var/lib/systemd/pstore/1; echo 'Panic#1 Part1' >$R/var/lib/systemd/pstore/1/dmesg.txt`, nil),
		named("dirty-journal", ``, nil),
		named("commented-mistakes", `echo '# UUID=deadbeef-0000-4000-8000-000000000001 /data ext4 defauts 0 2' >>$R/etc/fstab; echo '#PermitRootLoginn yes' >>$R/etc/ssh/sshd_config`, nil),
		named("remains-of-an-old-kernel", `printf half >$R/boot/initrd.img-5.10.0-9-amd64.bak; mkdir -p $R/usr/lib/modules/5.10.0-9-amd64/kernel`, nil),
		named("another-account-expired", `echo 'guest:x:1001:1001::/home/guest:/bin/bash' >>$R/etc/passwd; echo 'guest:!:19000:0:99999:7::1:' >>$R/etc/shadow; echo 'guest:x:1001:' >>$R/etc/group; mkdir -p $R/home/guest; chown 1001:1001 $R/home/guest`, nil),
		named("interface-on-hotplug", `printf '\nallow-hotplug enx001122334455\niface enx001122334455 inet dhcp\n' >>$R/etc/network/interfaces`, nil),
		named("share-on-demand", `mkdir -p $R/srv/share; echo '192.0.2.1:/share /srv/share nfs noauto,x-systemd.automount,nofail,_netdev 0 0' >>$R/etc/fstab`, nil),
		named("no-serial-console", `for f in $(boot_entries); do sed -i 's, console=ttyS0,,' $f; done; ! grep -q console=ttyS0 $(boot_entries)`, nil),
	}
	out[4].Cut = true
	return out
}

// healthyVariants are systems as their owners set them up.
func healthyVariants() []variant {
	named := func(name, script string, on func(Layout) bool) variant {
		return variant{Case{Name: name, Script: script}, on}
	}
	return []variant{
		named("root-without-password", `edit $R/etc/shadow '/^root:/s/^root:[^:]*:/root:!:/'`, nil),
		named("sshd-on-another-port", `mkdir -p $R/etc/ssh/sshd_config.d; printf 'Port 2222\nPasswordAuthentication no\n' >$R/etc/ssh/sshd_config.d/10-site.conf`, nil),
		named("static-address", `printf 'auto lo\niface lo inet loopback\n\nauto enp0s5\niface enp0s5 inet static\n\taddress 10.0.2.15/24\n\tgateway 10.0.2.2\n\tdns-nameservers 10.0.2.3\n' >$R/etc/network/interfaces`, nil),
		named("firewall-with-ssh", `printf '#!/usr/sbin/nft -f\nflush ruleset\ntable inet filter {\n\tchain input {\n\t\ttype filter hook input priority 0; policy drop;\n\t\tiif lo accept\n\t\tct state established,related accept\n\t\ttcp dport { 22, 80, 443 } accept\n\t}\n}\n' >$R/etc/nftables.conf; mkdir -p $R/etc/systemd/system/sysinit.target.wants; ln -sf /lib/systemd/system/nftables.service $R/etc/systemd/system/sysinit.target.wants/nftables.service`, onSystemd),
		named("administrator-with-sudo", `echo 'admin:x:1000:1000:Admin,,,:/home/admin:/bin/bash' >>$R/etc/passwd; echo 'admin:*:19000:0:99999:7:::' >>$R/etc/shadow; echo 'admin:x:1000:' >>$R/etc/group; mkdir -p $R/home/admin/.ssh; cp $R/root/.ssh/authorized_keys $R/home/admin/.ssh/; chown -R 1000:1000 $R/home/admin; chmod 700 $R/home/admin/.ssh; echo 'admin ALL=(ALL) NOPASSWD: ALL' >$R/etc/sudoers.d/admin; chmod 440 $R/etc/sudoers.d/admin`, nil),
		named("swap-file", `dd if=/dev/zero of=$R/swapfile bs=1M count=64 2>/dev/null; chmod 600 $R/swapfile; mkswap $R/swapfile >/dev/null; echo '/swapfile none swap sw 0 0' >>$R/etc/fstab`, onExt4),
		named("memory-file-systems", `printf 'tmpfs /tmp tmpfs mode=1777,nosuid,nodev 0 0\nproc /proc proc defaults,hidepid=2 0 0\n' >>$R/etc/fstab`, nil),
		named("settings-of-sysctl-and-modules", `echo 'net.ipv4.ip_forward = 1' >$R/etc/sysctl.d/60-router.conf; echo 'blacklist pcspkr' >$R/etc/modprobe.d/site.conf; echo 'vm.nr_hugepages = 8' >>$R/etc/sysctl.d/60-router.conf`, nil),
	}
}
