package causes

// MendedFaults are faults whose repairs are tried on a real machine. The catalogue of causes does not have these kinds. No score counts the faults,
// because their author has read the rules.
func MendedFaults() []Fault {
	const units = `E=$R/etc/systemd/system; `
	return []Fault{
		{Name: "root-without-its-folders", Effect: Blocks, IDs: []string{"root-folder-missing"}, Script: `rmdir $R/proc $R/sys`},
		{Name: "empty-mount-over-sshd-config", Effect: Blocks, IDs: []string{"fstab-hides-system"}, Script: `echo 'tmpfs /etc/ssh tmpfs defaults 0 0' >>$R/etc/fstab`},
		{Name: "shell-of-scripts-gone", Effect: Blocks, IDs: []string{"sh-missing"}, Script: `rm $R/usr/bin/sh`},
		{Name: "drop-in-hides-homes-from-sshd", Effect: Blocks, IDs: []string{"sshd-unit-invalid"},
			Script: units + `mkdir -p $E/ssh.service.d; printf '[Service]\nProtectHome=yes\n' >$E/ssh.service.d/hardening.conf`},
		{Name: "no-service-may-set-addresses", Effect: Blocks, IDs: []string{"manager-setting-invalid"},
			Script: `mkdir -p $R/etc/systemd/system.conf.d; printf '[Manager]\nCapabilityBoundingSet=~CAP_NET_ADMIN\n' >$R/etc/systemd/system.conf.d/50-hardening.conf`},
		{Name: "network-waits-for-a-lost-unit", Effect: Blocks, IDs: []string{"network-unit-invalid"},
			Script: units + `mkdir -p $E/networking.service.d; printf '[Unit]\nBindsTo=vpn.service\n' >$E/networking.service.d/vpn.conf`},
		{Name: "unit-restarts-each-start", Effect: Blocks, IDs: []string{"shutdown-at-boot"},
			Script: units + `printf '[Service]\nType=oneshot\nExecStart=/usr/bin/systemctl --no-block reboot\n' >$E/once.service; mkdir -p $E/multi-user.target.wants; ln -s ../once.service $E/multi-user.target.wants/once.service`},
		{Name: "unit-waits-for-a-lost-device", Effect: Blocks, IDs: []string{"unit-waits-at-boot"},
			Script: units + `printf '[Unit]\nDefaultDependencies=no\nBefore=sysinit.target\n[Service]\nType=oneshot\nRemainAfterExit=yes\nExecStart=/bin/sh -c "until [ -b /dev/disk/by-label/DATA ]; do sleep 2; done"\n' >$E/wait.service; mkdir -p $E/sysinit.target.wants; ln -s ../wait.service $E/sysinit.target.wants/wait.service`},
		{Name: "fstab-gone", Effect: Harms, IDs: []string{"fstab-missing"}, Script: `rm $R/etc/fstab`},
		{Name: "too-few-threads", Effect: Blocks, IDs: []string{"kernel-limit-starves"}, Script: `mkdir -p $R/etc/sysctl.d; echo 'kernel.threads-max = 20' >$R/etc/sysctl.d/90-limits.conf`},
		{Name: "library-before-all-others-broken", Effect: Blocks, IDs: []string{"preload-library-broken"},
			Script: `cp $R/usr/lib/x86_64-linux-gnu/libpam.so.0 $R/usr/local/lib/libmonitor.so; sed -i 's/libaudit\.so\.1/libgonit.so.1/g' $R/usr/local/lib/libmonitor.so; grep -q libgonit $R/usr/local/lib/libmonitor.so; echo /usr/local/lib/libmonitor.so >$R/etc/ld.so.preload`},
		{Name: "module-of-grub-gone", Effect: Blocks, IDs: []string{"grub-module-missing"}, Script: `rm $R/boot/grub/i386-pc/normal.mod`},
		{Name: "driver-of-network-forbidden", Effect: Harms, IDs: []string{"network-driver-blocked"},
			Script: `for m in virtio_net e1000 e1000e; do echo "install $m /bin/false"; done >$R/etc/modprobe.d/hardening.conf`},
	}
}
