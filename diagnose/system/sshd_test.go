package system

import (
	"strings"
	"testing"

	"salvor/diagnose"
	"salvor/diagnose/config"
)

func removeHostKeys(m machine) {
	for _, kind := range strings.Fields("rsa ecdsa ed25519") {
		m.remove("/etc/ssh/ssh_host_" + kind + "_key")
	}
}

// keysOfTheFirstBoot leaves no host key, and a unit that makes them at the first boot alone, as that of Debian 13.
func keysOfTheFirstBoot(m machine) {
	removeHostKeys(m)
	m.write("/usr/lib/systemd/system/sshd-keygen.service", "[Unit]\nConditionFirstBoot=yes\n[Service]\nExecStart=ssh-keygen -A\n")
}

func init() {
	sshd := func(line string) func(machine) {
		return func(m machine) { m.add("/etc/ssh/sshd_config", line+"\n") }
	}
	blocks := diagnose.BlocksAccess
	addAccessCases("debian-bios", []accessCase{
		{"misspelt keyword", sshd("PermitRootLoginn yes"), "sshd-config-invalid", blocks, "permitrootlogin is near", 8},
		{"bad value", sshd("PermitRootLogin yess"), "sshd-config-invalid", blocks, `permitrootlogin cannot be "yess"`, 8},
		{"bad port", sshd("Port 99999"), "sshd-config-invalid", blocks, "port", 8},
		{"no value", sshd("AllowUsers"), "sshd-config-invalid", blocks, "no value", 8},
		{"near miss: a port that is a comment", sshd("Port #22"), "sshd-config-invalid", nearMiss, "", 0},
		{"an address without a value", sshd("ListenAddress"), "sshd-config-invalid", blocks, "no value", 8},
		{"a host key without a value", sshd("HostKey"), "sshd-config-invalid", blocks, "no value", 8},
		{"a subsystem without a value", sshd("Subsystem"), "sshd-config-invalid", blocks, "no value", 8},
		{"two values", sshd("PermitRootLogin no thanks"), "sshd-config-invalid", blocks, "more than one", 8},
		{"open quotation", sshd(`Banner "/etc/issue`), "sshd-config-invalid", blocks, "quotation", 8},
		{"global in Match", sshd("Match User alice\n  Port 23"), "sshd-config-invalid", blocks, "Match", 9},
		{"bad Match", sshd("Match Usr alice"), "sshd-config-invalid", blocks, "usr", 8},
		{"second sftp", sshd("Subsystem sftp internal-sftp"), "sshd-config-invalid", blocks, "twice", 8},
		{"command without user", sshd("AuthorizedKeysCommand /usr/bin/keys"), "sshd-config-invalid", blocks, "authorizedkeyscommanduser", 8},
		{"broken drop-in", func(m machine) {
			m.write("/etc/ssh/sshd_config.d/50-local.conf", "# ours\nPasswordAuthentication nope\n")
		},
			"sshd-config-invalid", blocks, "/etc/ssh/sshd_config.d/50-local.conf, line 2", 2},
		{"keyword of a later release", func(m machine) {
			m.program("/usr/sbin/sshd", elfFile(elfAMD64, "")+"\x00permitrootlogin\x00authorizedkeysfile\x00x11displayoffset\x00include\x00kbdinteractiveauthentication\x00usepam\x00x11forwarding\x00printmotd\x00acceptenv\x00subsystem\x00")
			m.add("/etc/ssh/sshd_config", "RequiredRSASize 2048\n")
		}, "sshd-config-invalid", blocks, "installed release", 8},
		{"cipher of another release", func(m machine) {
			m.program("/usr/sbin/sshd", elfFile(elfAMD64, "")+"\x00permitrootlogin\x00authorizedkeysfile\x00x11displayoffset\x00include\x00kbdinteractiveauthentication\x00usepam\x00x11forwarding\x00printmotd\x00acceptenv\x00subsystem\x00ciphers\x00aes128-ctr\x00")
			m.add("/etc/ssh/sshd_config", "Ciphers aes128-ctr,arcfour\n")
		}, "sshd-config-invalid", blocks, `"arcfour"`, 8},
		{"near miss: keyword of a vendor", func(m machine) {
			m.program("/usr/sbin/sshd", elfFile(elfAMD64, "")+"\x00permitrootlogin\x00authorizedkeysfile\x00x11displayoffset\x00include\x00kbdinteractiveauthentication\x00usepam\x00x11forwarding\x00printmotd\x00acceptenv\x00subsystem\x00hpndisabled\x00")
			m.add("/etc/ssh/sshd_config", "HPNDisabled no\n")
		}, "sshd-config-invalid", nearMiss, "", 0},
		{"near miss: odd and right", sshd("port=22\n\tPERMITROOTLOGIN \"without-password\" # really\nListenAddress [::]:22\nListenAddress 0.0.0.0\nMaxStartups 10:30:100\n" +
			"LoginGraceTime 1m30s\nClientAliveInterval 5m\nProtocol 2\nUsePrivilegeSeparation sandbox\nInclude /etc/ssh/none/*.conf\nRekeyLimit default none\nMatch all\nPort 22\n" +
			"Match User git,deploy Address 192.0.2.0/24\n  PermitTTY no\n  AllowTcpForwarding local"), "sshd-config-invalid", nearMiss, "", 0},
		{"near miss: a backup is not included", func(m machine) { m.write("/etc/ssh/sshd_config.d/old.conf.bak", "Nonsense\n") }, "sshd-config-invalid", nearMiss, "", 0},
		{"no configuration", func(m machine) { m.remove("/etc/ssh/sshd_config") }, "sshd-config-missing", blocks, "does not exist", 0},

		{"near miss: SUSE's place", func(m machine) {
			m.write("/usr/etc/ssh/sshd_config", string(m.files["etc/ssh/sshd_config"].Data))
			m.remove("/etc/ssh/sshd_config")
		}, "sshd-config-missing", nearMiss, "", 0},

		{"not enabled", func(m machine) { m.remove("/etc/systemd/system/multi-user.target.wants/ssh.service") }, "sshd-not-enabled", blocks, "ssh.service", 0},
		{"not enabled, with an empty machine-id", func(m machine) {
			m.remove("/etc/systemd/system/multi-user.target.wants/ssh.service")
			m.write("/etc/machine-id", "")
		}, "sshd-not-enabled", blocks, "ssh.service", 0},
		{"near miss: socket instead", func(m machine) {
			m.remove("/etc/systemd/system/multi-user.target.wants/ssh.service")
			m.write("/usr/lib/systemd/system/ssh.socket", "[Socket]\nListenStream=22\nAccept=no\n")
			m.link("/etc/systemd/system/sockets.target.wants/ssh.socket", "/lib/systemd/system/ssh.socket")
		}, "sshd-not-enabled", nearMiss, "", 0},
		{"near miss: dropbear instead", func(m machine) {
			m.remove("/etc/systemd/system/multi-user.target.wants/ssh.service")
			m.write("/usr/lib/systemd/system/dropbear.service", "[Service]\n")
			m.link("/etc/systemd/system/multi-user.target.wants/dropbear.service", "/lib/systemd/system/dropbear.service")
		}, "sshd-not-enabled", nearMiss, "", 0},
		{"near miss: first boot", func(m machine) {
			m.remove("/etc/systemd/system/multi-user.target.wants/ssh.service")
			m.write("/etc/machine-id", "uninitialized\n")
		}, "sshd-not-enabled", nearMiss, "", 0},
		{"near miss: never had one", func(m machine) {
			for _, p := range strings.Fields("/usr/sbin/sshd /etc/ssh /usr/lib/systemd/system/ssh.service /etc/systemd/system/multi-user.target.wants/ssh.service /etc/systemd/system/sshd.service") {
				m.remove(p)
			}
		}, "sshd-not-installed", nearMiss, "", 0},
		{"masked", func(m machine) { m.link("/etc/systemd/system/ssh.service", "/dev/null") }, "sshd-masked", blocks, "masked", 0},
		{"near miss: the alias is masked", func(m machine) { m.link("/etc/systemd/system/sshd.service", "/dev/null") }, "sshd-masked", nearMiss, "", 0},
		{"not to be run", func(m machine) { m.write("/etc/ssh/sshd_not_to_be_run", "") }, "sshd-not-enabled", blocks, "sshd_not_to_be_run", 0},
		{"not installed", func(m machine) { m.remove("/usr/sbin/sshd") }, "sshd-not-installed", blocks, "not installed", 0},

		{"no host keys", removeHostKeys, "sshd-host-keys-missing", blocks, "no host key", 0},
		{"near miss: one host key", func(m machine) { m.remove("/etc/ssh/ssh_host_rsa_key"); m.remove("/etc/ssh/ssh_host_ecdsa_key") }, "sshd-host-keys-missing", nearMiss, "", 0},
		{"near miss: made at boot", func(m machine) {
			removeHostKeys(m)
			m.write("/usr/lib/systemd/system/sshd-keygen@.service", "[Service]\nExecStart=/usr/libexec/openssh/sshd-keygen %i\n")
		}, "sshd-host-keys-missing", nearMiss, "", 0},
		{"made at the first boot, which is past", func(m machine) {
			keysOfTheFirstBoot(m)
			m.write("/etc/machine-id", "4bd1b1c0a7b14b2f9b0f7d2f4f1f2a3c\n")
		}, "sshd-host-keys-missing", blocks, "no host key", 0},
		{"near miss: a drop-in makes them at each start", func(m machine) {
			keysOfTheFirstBoot(m)
			m.write("/etc/systemd/system/sshd-keygen.service.d/always.conf", "[Unit]\nConditionFirstBoot=\n")
			m.write("/etc/machine-id", "4bd1b1c0a7b14b2f9b0f7d2f4f1f2a3c\n")
		}, "sshd-host-keys-missing", nearMiss, "", 0},
		{"near miss: made at the first boot, which comes", func(m machine) {
			keysOfTheFirstBoot(m)
			m.write("/etc/machine-id", "uninitialized\n")
		}, "sshd-host-keys-missing", nearMiss, "", 0},
		{"open host keys", func(m machine) {
			for _, kind := range strings.Fields("rsa ecdsa ed25519") {
				m.mode("/etc/ssh/ssh_host_"+kind+"_key", 0o644)
			}
		}, "sshd-host-keys-open", blocks, "others may read", 0},
		{"near miss: group ssh_keys", func(m machine) {
			m.add("/etc/group", "ssh_keys:x:101:\n")
			for _, kind := range strings.Fields("rsa ecdsa ed25519") {
				m.files["etc/ssh/ssh_host_"+kind+"_key"].Sys = &diagnose.Owner{GID: 101}
				m.mode("/etc/ssh/ssh_host_"+kind+"_key", 0o640)
			}
		}, "sshd-host-keys-open", nearMiss, "", 0},
		{"one open host key", func(m machine) { m.mode("/etc/ssh/ssh_host_rsa_key", 0o666) }, "sshd-host-keys-open", diagnose.Degrades, "rsa", 0},
		{"empty host keys", func(m machine) {
			for _, kind := range strings.Fields("rsa ecdsa ed25519") {
				m.write("/etc/ssh/ssh_host_"+kind+"_key", "")
			}
		}, "sshd-host-keys-damaged", blocks, "empty", 0},

		{"near miss: empty ones are replaced", func(m machine) {
			m.write("/etc/ssh/ssh_host_rsa_key", "")
			m.write("/usr/lib/systemd/system/sshd-keygen@.service", "[Service]\nExecStart=/usr/libexec/openssh/sshd-keygen %i\n")
		}, "sshd-host-keys-damaged", nearMiss, "", 0},

		{"no user sshd", func(m machine) { m.edit("/etc/passwd", "sshd:x:104:65534::/run/sshd:/usr/sbin/nologin\n", "") }, "sshd-user-missing", blocks, "user sshd", 0},
		{"near miss: sysusers makes it", func(m machine) {
			m.edit("/etc/passwd", "sshd:x:104:65534::/run/sshd:/usr/sbin/nologin\n", "")
			m.write("/usr/lib/sysusers.d/openssh-server.conf", "u sshd - \"privilege separation\" /run/sshd\n")
		}, "sshd-user-missing", nearMiss, "", 0},
		{"unsafe folder", func(m machine) {
			m.program("/usr/sbin/sshd", elfFile(elfAMD64, "")+"\x00/var/empty/sshd\x00")
			m.folder("/var/empty/sshd", 0o777)
		}, "sshd-folder-unsafe", blocks, "0777", 0},
		{"near miss: safe folder", func(m machine) {
			m.program("/usr/sbin/sshd", elfFile(elfAMD64, "")+"\x00/var/empty/sshd\x00")
			m.folder("/var/empty/sshd", 0o711)
		}, "sshd-folder-unsafe", nearMiss, "", 0},
	})
}

func FuzzAuthorizedKeys(f *testing.F) {
	f.Add(authorizedKey)
	f.Add(`command="echo \"x y\"",no-pty ` + authorizedKey)
	f.Add("ssh-rsa AAAA\n\"\n")
	f.Fuzz(func(t *testing.T, text string) {
		for _, k := range config.ParseAuthorizedKeys(strings.Split(text, "\n")) {
			if k.Valid != (k.Why == "") {
				t.Errorf("%+v", k)
			}
		}
	})
}
