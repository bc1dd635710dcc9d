package diagnose

import (
	"path"
	"regexp"
	"slices"
	"strings"
)

// showFields shows the harmless fields of a line of a file whose format is known; false: the format is not known.
func showFields(place, line string) (string, bool) {
	mark := line[:len(line)-len(strings.TrimLeft(line, "#; \t"))]
	body := line[len(mark):]
	switch {
	case slices.ContainsFunc(secretFiles, func(p string) bool { ok, _ := path.Match(p, place); return ok }):
		return maskWholeLine(mark, body), true
	case slices.Contains(passwordFiles, place):
		if fields := strings.Split(body, ":"); len(fields) > 1 && strings.Trim(fields[1], "!*x") != "" {
			fields[1] = Masked
			return mark + strings.Join(fields, ":"), true
		}
	case strings.HasSuffix(place, "/fstab") || strings.HasSuffix(place, ".mount"):
		if fields := strings.Fields(body); strings.HasSuffix(place, "/fstab") && len(fields) >= 3 && (mark == "" || strings.HasPrefix(fields[1], "/")) {
			return mark + showFstab(fields), true
		}
		if options, ok := strings.CutPrefix(body, "Options="); ok {
			return mark + "Options=" + showOptions(options, mountOptions), true
		}
	case strings.HasSuffix(place, "/crypttab"):
		if fields := strings.Fields(body); len(fields) >= 2 {
			return mark + showCrypttab(fields), true
		}
	case kernelLine.MatchString(body) || path.Base(place) == "cmdline":
		return mark + showKernelArguments(body), true
	}
	return "", false
}

// passwordFiles hold a secret in the second field of each line.
var passwordFiles = []string{"/etc/passwd", "/etc/passwd-", "/etc/group", "/etc/shadow", "/etc/shadow-", "/etc/gshadow", "/etc/gshadow-"}

// secretFiles hold secrets by position and not by name. Of their lines, only what is commented out in words is shown.
var secretFiles = []string{
	"/etc/ppp/*-secrets", "/etc/ppp/*.secrets", "/etc/*.secrets", "/etc/ipsec.d/*.secrets", "/etc/davfs2/secrets", "/etc/passwd-s3fs", "/etc/*/.htpasswd", "/etc/*/htpasswd*",
	"/etc/*.htpasswd", "/root/.netrc", "/home/*/.netrc", "/root/.pgpass", "/home/*/.pgpass", "/root/.passwd-s3fs", "/home/*/.passwd-s3fs", "/root/.my.cnf",
	"/home/*/.my.cnf", "/root/.davfs2/secrets", "/home/*/.davfs2/secrets", "/etc/samba/*passwd*", "/etc/postfix/sasl*", "/etc/exim4/passwd*", "/etc/openvpn/*auth*",
	"/etc/krb5.keytab", "/root/.git-credentials", "/home/*/.git-credentials", "/etc/tgt/conf.d/*", "/etc/ceph/*.keyring", "/etc/ceph/*.secret", "/etc/nvme/*", "/root/.docker/config.json",
	"/home/*/.docker/config.json", "/etc/sasldb2", "/etc/tinc/*/rsa_key.priv", "/root/.aws/credentials", "/home/*/.aws/credentials", "/etc/cifs-credentials*", "/root/.smbcredentials*",
	"/home/*/.smbcredentials*", "/etc/samba/credentials*",
}

// maskWholeLine leaves the first word of a line of a secret file, if it is the name of a setting or an account, and masks the rest.
func maskWholeLine(mark, body string) string {
	if body == "" {
		return mark
	}
	if name := firstName.FindString(body); name != "" && name != body {
		return mark + name + Masked
	}
	return mark + Masked
}

// firstName is a name in front of a colon or an equals sign.
var firstName = regexp.MustCompile(`^[a-z_][a-z0-9_.-]{0,31}\s*[:=]\s*`)

// userInfo is what stands before the host in the source of a mount.
var userInfo = regexp.MustCompile(`^((?:[\w.+-]+#)?(?:[\w.+-]+:)?//)?([^@]*)@`)

// showFstab shows the fields of a line of fstab: source, place, type, options, and two numbers. A field that is none of them is masked, such as the rest of a
// password with a blank.
func showFstab(fields []string) string {
	out := slices.Clone(fields)
	if strings.Contains(out[0], ":") || strings.HasPrefix(out[0], "//") {
		out[0] = userInfo.ReplaceAllStringFunc(out[0], func(found string) string {
			groups := userInfo.FindStringSubmatch(found)
			if groups[1] == "" && !strings.Contains(groups[2], ":") { // bob@host:/folder of sshfs
				return found
			}
			if isAccount.MatchString(groups[2]) {
				return found
			}
			return groups[1] + Masked + "@"
		})
	}
	if len(out) > 3 {
		out[3] = showOptions(out[3], mountOptions)
	}
	for i := 4; i < len(out); i++ {
		if !shortNumber.MatchString(out[i]) && out[i] != Masked {
			if strings.HasPrefix(out[i], "#") {
				return strings.Join(out[:i], " ") + " " + Excerpt(strings.Join(out[i:], " "))
			}
			out[i] = Masked
		}
	}
	return strings.Join(out, " ")
}

var (
	isAccount   = regexp.MustCompile(`^[a-z_][a-z_-]{0,15}$`)
	shortNumber = regexp.MustCompile(`^[0-9]{1,3}$`)
)

// showCrypttab shows the fields of a line of crypttab: name, device, the key where it is the path of a file, and options.
func showCrypttab(fields []string) string {
	out := slices.Clone(fields)
	for i := 2; i < len(out); i++ {
		switch {
		case i == 2 && (keyPath.MatchString(out[i]) || out[i] == "none" || out[i] == "-"), out[i] == Masked:
		case i == 3:
			out[i] = showOptions(out[i], cryptOptions)
		default:
			out[i] = Masked
		}
	}
	return strings.Join(out, " ")
}

// keyPath is the path of a key, with the device that it lies on. A key in base64 may begin with a slash too, so that its first part must be a folder at the root.
var keyPath = regexp.MustCompile(`^/(?:etc|root|boot|run|dev|usr|var|home|media|mnt|srv|opt|lib|tmp|keys?|crypto_keyfile\.bin|keyfile)(?:/[\w.@+-]+)*(?::[\w=/.-]+)?$`)

// showOptions shows a list of options: each that has no value by its name, and a value if the option is a known one. Behind a value that is masked, a word is
// shown if it is a known option, because a password may hold commas.
func showOptions(list string, known func(name string) bool) string {
	options := strings.Split(list, ",")
	inSecret := false
	for i, option := range options {
		name, value, hasValue := strings.Cut(option, "=")
		switch {
		case hasValue && value == Masked:
			inSecret = true
		case hasValue && known(name) && !secretValue.MatchString(value):
			inSecret = false
		case hasValue && strings.Contains(placedOptions, " "+name+" ") && keyPath.MatchString(value):
			inSecret = false
		case hasValue && optionName.MatchString(name):
			options[i], inSecret = name+"="+Masked, true
		case hasValue, option != "" && !optionName.MatchString(option), inSecret && !slices.Contains(bareOptions, option):
			options[i] = Masked
		}
	}
	return strings.Join(options, ",")
}

// secretValue is a value that holds a secret although its option is harmless: user%password, a PIN in a URI, user:password@host.
var secretValue = regexp.MustCompile(`%|(?i)pin-value|pin=|@.*:|:.*@`)

var optionName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_.-]{0,39}$`)

// placedOptions are options that name a file.
const placedOptions = " credentials cred credfile passwd_file keyfile key-file secretfile header keyring tls_cert tls_ca tls_key conf ca cert noauth_file config x-mount.mkdir loop upperdir lowerdir workdir "

// bareOptions are options without a value that are shown behind a secret.
var bareOptions = strings.Fields(`rw ro defaults auto noauto exec noexec suid nosuid dev nodev sync async user nouser users owner group atime noatime relatime norelatime strictatime nodiratime lazytime
	nolazytime _netdev nofail bind rbind soft hard intr nointr tcp udp bg fg nolock lock noac ac cto nocto sec vers discard nodiscard acl noacl user_xattr quota usrquota grpquota noperm perm
	nounix serverino noserverino mfsymlinks sfu guest multiuser seal nobrl allow_other allow_root default_permissions reconnect x-systemd.automount x-gvfs-show luks plain swap tmp readonly
	no-read-workqueue no-write-workqueue initramfs nokey noearly loud quiet check verify same-cpu-crypt`)

// mountOptions tells whether the value of a mount option is harmless. A user's name is not: user=bob%password, and an access key in place of a name.
func mountOptions(name string) bool {
	return slices.Contains(knownMountOptions, name) || strings.HasPrefix(name, "x-systemd.") || strings.HasPrefix(name, "x-initrd.")
}

var knownMountOptions = strings.Fields(`uid gid forceuid forcegid umask dmask fmask mode dir_mode file_mode size nr_inodes nr_blocks subvol subvolid compress compress-force commit data errors barrier
	journal_checksum jqfmt usrjquota grpjquota sb stripe resuid resgid min_batch_time max_batch_time inode_readahead_blks journal_ioprio logbufs logbsize logdev rtdev sunit swidth allocsize
	vers nfsvers minorversion sec proto mountproto port mountport mountvers rsize wsize timeo retrans retry acregmin acregmax acdirmin acdirmax actimeo namlen lookupcache local_lock nconnect
	max_connect fsc cache addr clientaddr mountaddr ip iocharset codepage nls utf8 shortname tz time_offset check conv type fstype pri offset sizelimit discard space_cache ssd thread_pool
	max_inline metadata_ratio degraded device domain dom workgroup prefixpath username user cruid backupuid backupgid echo_interval snapshot max_credits context fscontext defcontext rootcontext
	huge mpol gid hidepid ptmxmode iversion dax lazytime xino index redirect_dir metacopy volatile nfs_export background_gc active_logs url use_path_request_style uidmap gidmap trans version msize access
	posixacl wfdno caps mds_namespace fs mon_addr name recover_session read_from_replica ServerAliveInterval ServerAliveCountMax Port IdentityFile max_read max_write blksize comment`)

// cryptOptions tells whether the value of an option of crypttab is harmless.
func cryptOptions(name string) bool { return slices.Contains(knownCryptOptions, name) }

var knownCryptOptions = strings.Fields(`cipher size sector-size hash offset skip keyfile-size keyfile-offset keyfile-timeout key-slot tries timeout tmp luks tcrypt-veracrypt x-systemd.device-timeout
	x-initrd.attach fido2-device fido2-rp fido2-cid tpm2-device tpm2-pcrs tpm2-signature tpm2-pin token-timeout password-echo password-cache try-empty-password headless check checkargs type
	keyscript precheck header`)

// kernelLine is a line with the arguments of a kernel.
var kernelLine = regexp.MustCompile(`(?i)^(?:linux(?:16|efi)?|options|append|kernel|kernelopts|module2?|multiboot2?|(?:export\s+)?GRUB_CMDLINE_LINUX\w*|cmdline|kernel_?params|args)(?:\s|\s*[=:])`)

// kernelWord is an argument, as far as it has no blank.
var kernelWord = regexp.MustCompile(`[^\s"']+`)

// showKernelArguments shows the names of arguments, and the values of known ones.
func showKernelArguments(line string) string {
	head := kernelLine.FindString(line)
	return head + kernelWord.ReplaceAllStringFunc(line[len(head):], func(word string) string {
		name, value, hasValue := strings.Cut(word, "=")
		switch {
		case !hasValue && strings.ContainsAny(word, "@%") && !strings.HasPrefix(word, "/") && !strings.HasPrefix(word, "("):
			return Masked
		case !hasValue || value == "" || value == Masked || kernelNumber.MatchString(value):
			return word
		case slices.Contains(kernelNames, name) || slices.ContainsFunc(kernelPrefixes, func(p string) bool { return strings.HasPrefix(name, p) }):
			if secretValue.MatchString(value) {
				return name + "=" + Masked
			}
			return word
		case name == "rd.luks.key" && keyPath.MatchString(value):
			return word
		}
		return name + "=" + Masked
	})
}

// kernelNumber is a value that is too short for a secret, or one of the words of switches.
var kernelNumber = regexp.MustCompile(`^(?:[0-9]{1,3}|0x[0-9a-f]{1,8}|on|off|yes|no|auto|force|[0-9]+[KMGkmg])$`)

var kernelNames = strings.Fields(`root rootflags rootfstype rootdelay rootwait ro rw resume resume_offset init rdinit initrd console quiet splash loglevel crashkernel BOOT_IMAGE boot mem net.ifnames
	biosdevname ip ipv6.disable nameserver bootdev BOOTIF vlan bond bridge ifname hostname nomodeset mitigations intel_iommu amd_iommu iommu pci pcie_aspm acpi apic noapic nosmp maxcpus isolcpus nohz_full rcu_nocbs
	hugepages hugepagesz default_hugepagesz transparent_hugepage elevator scsi_mod.use_blk_mq apparmor security selinux enforcing lsm audit audit_backlog_limit cgroup_enable cgroup_memory swapaccount
	panic oops softlockup_panic nmi_watchdog watchdog earlyprintk earlycon log_buf_len printk.devkmsg debug single cryptdevice cryptopts vga video fbcon consoleblank keymap vconsole.keymap
	vconsole.font locale.LANG LANG lang fsck.mode fsck.repair fastboot zfs bootfs root_trim break modprobe.blacklist module_blacklist noresume nvme_core.multipath nvme_core.io_timeout nvme_core.default_ps_max_latency_us
	efi efi_pstore clocksource tsc lockdown overlayroot cloud-init network-config ds machine_id fips preempt kvm-intel.nested kvm.nested ostree GRUB_CMDLINE_LINUX --class --id set`)

var kernelPrefixes = []string{"systemd.", "rd.lvm", "rd.md", "rd.dm", "rd.luks.uuid", "rd.luks.name", "rd.luks.options", "rd.driver.", "rd.break", "initramfs.", "rd.shell", "rd.debug", "rd.retry", "rd.timeout", "rd.neednet",
	"rd.net.", "rd.multipath", "rd.udev.", "rd.systemd", "rd.auto", "rd.fstab", "luks.uuid", "luks.name", "zswap.", "dyndbg", "usbcore.", "i915.", "amdgpu.", "nouveau.", "ipv6.", "pcie_", "nvme.", "drm."}
