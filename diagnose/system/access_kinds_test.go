package system

import (
	"strings"
	"testing"
	"time"

	"salvor/diagnose"
	"salvor/diagnose/config"
)

// sshdOptions lets the unit of sshd take options of /etc/default/ssh, as Debian's does, and sets them.
func sshdOptions(m machine, options string) {
	m.edit("/usr/lib/systemd/system/ssh.service", "ExecStart=/usr/sbin/sshd -D\n", "EnvironmentFile=-/etc/default/ssh\nExecStart=/usr/sbin/sshd -D $SSHD_OPTS\n")
	m.write("/etc/default/ssh", "# Options to pass to sshd\nSSHD_OPTS=\""+options+"\"\n")
}

// bySocket lets systemd listen in the place of sshd.
func bySocket(m machine, dropIn string) {
	m.remove("/etc/systemd/system/multi-user.target.wants/ssh.service")
	m.write("/usr/lib/systemd/system/ssh.socket", "[Socket]\nListenStream=22\nAccept=no\n")
	m.link("/etc/systemd/system/sockets.target.wants/ssh.socket", "/usr/lib/systemd/system/ssh.socket")
	m.write("/etc/systemd/system/ssh.socket.d/port.conf", dropIn)
}

// sessionProgram gives sshd the session program of OpenSSH 9.8.
func sessionProgram(m machine) {
	m.program("/usr/sbin/sshd", elfFile(elfAMD64, "/lib64/ld-linux-x86-64.so.2")+"\x00/usr/lib/openssh/sshd-session\x00")
	m.program("/usr/lib/openssh/sshd-session", elfFile(elfAMD64, "/lib64/ld-linux-x86-64.so.2"))
}

// nologinAtBoot makes the boot write /run/nologin, and the unit that removes the file.
func nologinAtBoot(m machine) {
	debianPAM(m)
	m.write("/usr/lib/tmpfiles.d/systemd-nologin.conf", "# see pam_nologin(8)\nF! /run/nologin 0644 - - - \"System is booting up.\"\n")
	m.write("/usr/lib/systemd/system/systemd-user-sessions.service", "[Service]\nType=oneshot\nExecStart=/usr/lib/systemd/systemd-logind start\n")
}

func tmpfiles(lines string) func(machine) {
	return func(m machine) { m.write("/etc/tmpfiles.d/local.conf", lines) }
}

func init() {
	blocks, degrades := diagnose.BlocksAccess, diagnose.Degrades
	options := func(text string) func(machine) { return func(m machine) { sshdOptions(m, text) } }
	pam := func(change func(machine)) func(machine) {
		return func(m machine) {
			debianPAM(m)
			for _, module := range strings.Fields("exec succeed_if") {
				m.write("/usr/lib/x86_64-linux-gnu/security/pam_"+module+".so", elfFile(elfAMD64, ""))
			}
			change(m)
		}
	}
	alone := func(change func(machine)) func(machine) { // root has no key: alice alone logs in
		return func(m machine) {
			m.remove("/root/.ssh")
			change(m)
		}
	}
	bashrc := func(text string) func(machine) { return func(m machine) { m.write("/home/alice/.bashrc", text) } }
	both := func(text string) func(machine) { // the start file of a login reads that of a command
		return alone(func(m machine) {
			m.write("/home/alice/.profile", "if [ -n \"$BASH_VERSION\" ]; then\n    . \"$HOME/.bashrc\"\nfi\n")
			m.write("/home/alice/.bashrc", text)
		})
	}
	const id = "ssh-login-impossible"
	addAccessCases("debian-bios", []accessCase{
		// The command line of sshd
		{"an option of the loopback interface", options("-o ListenAddress=127.0.0.1"), "sshd-listens-nowhere", blocks, "/etc/default/ssh, line 2", 2},
		{"an option without a blank", options("-4 -oListenAddress=localhost"), "sshd-listens-nowhere", blocks, "/etc/default/ssh, line 2", 2},
		{"an option in the unit", func(m machine) {
			m.write("/etc/systemd/system/ssh.service.d/50-x.conf", "[Service]\nExecStart=\nExecStart=/usr/sbin/sshd -D -o ListenAddress=[::1]:22\n")
		}, "sshd-listens-nowhere", blocks, "50-x.conf, line 3", 3},
		{"a variable of the unit", func(m machine) {
			m.write("/etc/systemd/system/ssh.service.d/50-x.conf", "[Service]\nEnvironment=\"OPTIONS=-o MaxSessions=0\"\nExecStart=\nExecStart=/usr/sbin/sshd -D $OPTIONS\n")
		}, id, blocks, "MaxSessions 0", 2},
		{"an option that sshd does not know", options("-o PermitRootLoginn=yes"), "sshd-config-invalid", blocks, "permitrootlogin is near", 2},
		{"an option wins over the file", func(m machine) {
			sshdOptions(m, "-o AllowUsers=deploy")
			m.add("/etc/ssh/sshd_config", "PermitRootLogin yes\n")
		}, "sshd-users-denied", blocks, "/etc/default/ssh, line 2", 2},
		{"a port that the firewall drops", func(m machine) {
			sshdOptions(m, "-p 2222")
			m.add("/etc/ssh/sshd_config", "Port 22\n")
			nftInput(m, "    tcp dport 22 accept\n")
		}, "firewall-blocks-ssh", blocks, "port 2222", 0},
		{"another file of the configuration", func(m machine) {
			sshdOptions(m, "-f /etc/ssh/other_config")
			m.write("/etc/ssh/other_config", "UsePAM yes\nDenyUsers *\n")
		}, "sshd-users-denied", blocks, "/etc/ssh/other_config, line 2", 2},
		{"near miss: options that change nothing", options("-4 -u0 -o LogLevel=VERBOSE -E /var/log/sshd"), "sshd-config-invalid", nearMiss, "", 0},
		{"near miss: options that the unit does not read", func(m machine) {
			m.write("/etc/default/ssh", "SSHD_OPTS=\"-o ListenAddress=127.0.0.1\"\n")
		}, "sshd-listens-nowhere", nearMiss, "", 0},
		{"near miss: options in a comment", func(m machine) {
			sshdOptions(m, "")
			m.add("/etc/default/ssh", "#SSHD_OPTS=\"-o ListenAddress=127.0.0.1\"\n")
		}, "sshd-listens-nowhere", nearMiss, "", 0},

		// Programs, keys and sockets of sshd
		{"no session program", func(m machine) {
			sessionProgram(m)
			m.remove("/usr/lib/openssh/sshd-session")
		}, "sshd-library-missing", blocks, "/usr/lib/openssh/sshd-session", 0},
		{"a session program that nobody may run", func(m machine) {
			sessionProgram(m)
			m.mode("/usr/lib/openssh/sshd-session", 0o644)
		}, "sshd-library-missing", blocks, "nobody may run", 0},
		{"near miss: a session program", sessionProgram, "sshd-library-missing", nearMiss, "", 0},
		{"near miss: another session program", func(m machine) {
			sessionProgram(m)
			m.remove("/usr/lib/openssh/sshd-session")
			m.program("/usr/local/lib/sshd-session", elfFile(elfAMD64, "/lib64/ld-linux-x86-64.so.2"))
			m.add("/etc/ssh/sshd_config", "SshdSessionPath /usr/local/lib/sshd-session\n")
		}, "sshd-library-missing", nearMiss, "", 0},
		{"line ends of Windows", func(m machine) {
			for _, kind := range strings.Fields("rsa ecdsa ed25519") {
				m.write("/etc/ssh/ssh_host_"+kind+"_key", strings.ReplaceAll(hostKey, "\n", "\r\n"))
			}
		}, "sshd-host-keys-damaged", blocks, "carriage returns", 0},
		{"opened at each boot", tmpfiles("z /etc/ssh/ssh_host_*_key 0644 root root -\n"), "sshd-host-keys-open", blocks, "ignores the host key", 0},
		{"near miss: closed at each boot", func(m machine) {
			m.mode("/etc/ssh/ssh_host_rsa_key", 0o644)
			tmpfiles("z /etc/ssh/ssh_host_*_key 0600 root root -\n")(m)
		}, "sshd-host-keys-open", nearMiss, "", 0},
		{"a socket without an address", func(m machine) { bySocket(m, "[Socket]\nListenStream=\n") }, "sshd-unit-invalid", blocks, "ssh.socket", 2},
		{"a socket without a service", func(m machine) {
			bySocket(m, "[Socket]\n")
			m.remove("/usr/lib/systemd/system/ssh.service")
		}, "sshd-unit-invalid", blocks, "ssh.service, which does not exist", 0},
		{"a socket of a masked service", func(m machine) {
			bySocket(m, "[Socket]\n")
			m.link("/etc/systemd/system/ssh.service", "/dev/null")
		}, "sshd-masked", blocks, "ssh.service is masked", 0},
		{"near miss: a socket of another port", func(m machine) { bySocket(m, "[Socket]\nListenStream=\nListenStream=2222\n") }, "sshd-unit-invalid", nearMiss, "", 0},
		{"near miss: a deaf socket beside the service", func(m machine) {
			bySocket(m, "[Socket]\nListenStream=\n")
			m.link("/etc/systemd/system/multi-user.target.wants/ssh.service", "/usr/lib/systemd/system/ssh.service")
		}, "sshd-unit-invalid", nearMiss, "", 0},

		// The keys after a boot
		{"a list of revoked keys that is gone, and passwords", alone(func(m machine) { m.add("/etc/ssh/sshd_config", "RevokedKeys /etc/ssh/revoked\n") }),
			"ssh-keys-refused", blocks, "takes every key for revoked", 8},
		{"an empty folder over all homes", alone(func(m machine) {
			m.folder("/srv/home", 0o755)
			m.add("/etc/fstab", "/srv/home /home none bind 0 0\n")
		}), "ssh-keys-refused", blocks, "shows /srv/home at /home", 0},
		{"memory over a home, and passwords", alone(func(m machine) { m.add("/etc/fstab", "tmpfs /home/alice tmpfs mode=0700,uid=1000 0 0\n") }),
			"ssh-keys-refused", blocks, "mounts an empty tmpfs", 0},
		{"near miss: a list of revoked keys", func(m machine) {
			m.write("/etc/ssh/revoked", "")
			m.add("/etc/ssh/sshd_config", "RevokedKeys /etc/ssh/revoked\n")
		}, "ssh-keys-refused", nearMiss, "", 0},
		{"near miss: a folder with the homes over all homes", alone(func(m machine) {
			owner := diagnose.Owner{UID: 1000, GID: 1000}
			m.folder("/srv/home", 0o755)
			m.installed.folder("/srv/home/alice", 0o700, owner)
			m.installed.folder("/srv/home/alice/.ssh", 0o700, owner)
			m.write("/srv/home/alice/.ssh/authorized_keys", authorizedKey)
			m.owner("/srv/home/alice/.ssh/authorized_keys", 1000, 1000)
			m.add("/etc/fstab", "/srv/home /home none bind 0 0\n")
		}), "ssh-keys-refused", nearMiss, "", 0},
		{"a mode of each boot", alone(tmpfiles("# shared\nz /home/alice 0777 - - -\n")), "ssh-key-permissions", blocks, "/etc/tmpfiles.d/local.conf, line 2", 2},
		{"an owner of each boot", alone(tmpfiles("Z /home/alice/.ssh - daemon - -\n")), "ssh-key-permissions", blocks, "/etc/tmpfiles.d/local.conf, line 1", 1},
		{"a list of rights of each boot", alone(tmpfiles("a+ /home/alice/.ssh - - - - u:daemon:rwx\n")), "ssh-key-permissions", nearMiss, "", 0},
		{"a list of rights of a shared group", alone(func(m machine) {
			m.edit("/etc/group", "alice:x:1000:", "alice:x:1000:daemon")
			tmpfiles("a+ /home/alice/.ssh - - - - u:daemon:rwx\n")(m)
		}), "ssh-key-permissions", blocks, "may be written by others", 1},
		{"keys that each boot removes", alone(tmpfiles("D /home/alice/.ssh 0700 alice alice -\n")), "ssh-key-permissions", blocks, "is removed at each boot", 1},
		{"near miss: a mode that each boot mends", alone(func(m machine) {
			m.mode("/home/alice", 0o777)
			tmpfiles("d /home/alice 0700 alice alice -\n")(m)
		}), "ssh-key-permissions", nearMiss, "", 0},
		{"near miss: a mode for new folders only, and a file that another replaces", alone(func(m machine) {
			tmpfiles("d /home/alice :0777 :daemon :daemon -\n")(m)
			m.write("/usr/lib/tmpfiles.d/x.conf", "z /home/alice 0777 - - -\n")
			m.link("/etc/tmpfiles.d/x.conf", "/dev/null")
		}), "ssh-key-permissions", nearMiss, "", 0},
		{"near miss: homes that each boot opens", alone(func(m machine) {
			m.mode("/home", 0o700)
			m.write("/usr/lib/tmpfiles.d/home.conf", "Q /home 0755 - - -\n")
		}), "permissions-lost", nearMiss, "", 0},

		// PAM
		{"a masked unit leaves the file of the boot", alone(func(m machine) {
			nologinAtBoot(m)
			m.link("/etc/systemd/system/systemd-user-sessions.service", "/dev/null")
		}), "nologin-present", blocks, "systemd-user-sessions.service is masked", 0},
		{"a lost unit leaves the file of the boot", alone(func(m machine) {
			nologinAtBoot(m)
			m.remove("/usr/lib/systemd/system/systemd-user-sessions.service")
		}), "nologin-present", blocks, "does not exist", 0},
		{"root logs in", func(m machine) {
			nologinAtBoot(m)
			m.link("/etc/systemd/system/systemd-user-sessions.service", "/dev/null")
		}, "nologin-present", degrades, "", 0},
		{"near miss: the unit removes the file of the boot", alone(nologinAtBoot), "nologin-present", nearMiss, "", 0},
		{"near miss: no boot makes the file", alone(func(m machine) {
			nologinAtBoot(m)
			m.link("/etc/systemd/system/systemd-user-sessions.service", "/dev/null")
			m.link("/etc/tmpfiles.d/systemd-nologin.conf", "/dev/null")
		}), "nologin-present", nearMiss, "", 0},
		{"a session needs a program that is gone", pam(func(m machine) {
			m.add("/etc/pam.d/sshd", "session required pam_exec.so seteuid /usr/local/sbin/notify\n")
		}), id, blocks, "/usr/local/sbin/notify, which does not exist", 0},
		{"near miss: a session asks for a program that is gone", pam(func(m machine) {
			m.add("/etc/pam.d/sshd", "session optional pam_exec.so seteuid /usr/local/sbin/notify\n")
		}), id, nearMiss, "", 0},
		{"near miss: the end of a session needs a program that is gone", pam(func(m machine) {
			m.add("/etc/pam.d/sshd", "session required pam_exec.so type=close_session /usr/local/sbin/notify\n")
		}), id, nearMiss, "", 0},
		{"near miss: a session needs a program", pam(func(m machine) {
			m.program("/usr/local/sbin/notify", "#!/bin/sh\n")
			m.add("/etc/pam.d/sshd", "session required pam_exec.so /usr/local/sbin/notify ssh\n")
		}), id, nearMiss, "", 0},
		{"no module says yes", pam(func(m machine) { m.write("/etc/pam.d/common-account", "") }), id, blocks, "the file /etc/pam.d/common-account has no line", 0},
		{"a jump over the end", pam(func(m machine) {
			m.write("/etc/pam.d/common-account", "account [success=2 default=ignore] pam_unix.so\naccount requisite pam_deny.so\n")
		}), id, blocks, "it jumps over 2 lines", 0},
		{"near miss: no stack of sshd's own, and that for unknown services", pam(func(m machine) {
			m.edit("/etc/pam.d/sshd", "account    required     pam_nologin.so\n", "")
			m.write("/etc/pam.d/common-account", "")
			m.write("/etc/pam.d/other", "account required pam_permit.so\n")
		}), id, nearMiss, "", 0},
		{"near miss: a session that no module must allow", pam(func(m machine) {
			m.add("/etc/pam.d/sshd", "session [default=1] pam_permit.so\nsession required pam_deny.so\n")
		}), id, nearMiss, "", 0},
		{"more open files than the kernel allows", alone(pam(func(m machine) {
			m.write("/etc/security/limits.d/90-x.conf", "* soft nofile 2147483647\n* hard nofile 2147483647\n")
		})),
			id, blocks, "the kernel allows 1048576", 0},
		{"more open files than a lower limit", alone(pam(func(m machine) {
			m.write("/etc/security/limits.d/90-x.conf", "alice - nofile 100000\n")
			m.write("/etc/sysctl.d/90-x.conf", "fs.nr_open = 65536\n")
		})), id, blocks, "the kernel allows 65536", 0},
		{"near miss: as many open files as the kernel allows", alone(pam(func(m machine) {
			m.write("/etc/security/limits.d/90-x.conf", "* hard nofile 1048576\nalice soft nofile 2147483647\n")
		})),
			id, nearMiss, "", 0},
		{"near miss: more open files, and systemd raises the limit", alone(pam(func(m machine) {
			m.write("/etc/security/limits.d/90-x.conf", "* - nofile 2000000\n")
			m.add("/usr/lib/systemd/systemd", "\x00Couldn't write fs.nr_open as %i, halving it.\x00")
		})), id, nearMiss, "", 0},
		{"near miss: more open files by a higher limit", alone(pam(func(m machine) {
			m.write("/etc/security/limits.d/90-x.conf", "* - nofile 2000000\n")
			m.write("/etc/sysctl.d/90-x.conf", "fs.nr_open = 4194304\n")
		})), id, nearMiss, "", 0},

		// The clock after a boot
		{"an account that ends before the clock of the boot", alone(func(m machine) {
			m.edit("/etc/shadow", aliceShadow, strings.Replace(aliceShadow, ":7:::", ":7::25567:", 1))
			m.write("/usr/lib/clock-epoch", "")
			m.files["usr/lib/clock-epoch"].ModTime = time.Date(2045, 6, 1, 0, 0, 0, 0, time.UTC)
		}), "account-expired", blocks, "/usr/lib/clock-epoch", 0},
		{"near miss: an account that ends after the clock of the boot", alone(func(m machine) {
			m.edit("/etc/shadow", aliceShadow, strings.Replace(aliceShadow, ":7:::", ":7::25567:", 1))
			m.write("/usr/lib/clock-epoch", "")
			m.files["usr/lib/clock-epoch"].ModTime = time.Date(2024, 6, 1, 0, 0, 0, 0, time.UTC)
		}), "account-expired", nearMiss, "", 0},

		// Start files of shells
		{"ends by a program that is gone", both("command -v direnv >/dev/null || exit 0\n# alice\n"), "shell-missing", blocks, "/home/alice/.bashrc, line 1", 1},
		{"ends without a condition", both("# alice\nexport EDITOR=vi\nexit\n"), "shell-missing", blocks, "/home/alice/.bashrc, line 3", 3},
		{"ends by a file that is gone", both("[ -f /opt/env.sh ] || exit 1\n"), "shell-missing", blocks, "/home/alice/.bashrc, line 1", 1},
		{"ends for all accounts", func(m machine) {
			m.write("/etc/profile", "if [ -f /etc/bash.bashrc ]; then\n  . /etc/bash.bashrc\nfi\n")
			m.write("/etc/bash.bashrc", "umask 077\nlogout\n")
		}, "shell-missing", blocks, "/etc/bash.bashrc, line 2", 2},
		{"ends at terminals", alone(func(m machine) { m.write("/home/alice/.profile", "exit\n") }), "shell-missing", degrades, "each session at a terminal", 1},
		{"ends commands", alone(bashrc("exec /usr/local/bin/gone\n")), "shell-missing", degrades, "each command", 1},
		{"near miss: ends at terminals behind the usual test", alone(bashrc("case $- in\n    *i*) ;;\n      *) return;;\nesac\nexit\n")), "shell-missing", nearMiss, "", 0},
		{"near miss: a program that is there", both("command -v bash >/dev/null || exit 0\ntype cd >/dev/null || exit\n[ -f /etc/passwd ] || exit 1\n[ ! -f /etc/passwd ] && exit 1\n"), "shell-missing", nearMiss, "", 0},
		{"near miss: ends in a function, a block and behind a return", both("leave() {\n  exit 1\n}\nif [ \"$TERM\" = dumb ]; then\n  exit\nfi\nexit\n"), "shell-missing", nearMiss, "", 0},
		{"near miss: a text that says exit", both("alias x='exit'\ncat <<END\nexit\nEND\n# exit\necho exit\ntrap 'exit 1' TERM\n[ -z \"$PS1\" ] && return\n"), "shell-missing", nearMiss, "", 0},
		{"near miss: a program that another folder may have", both("export PATH=\"/opt/tools/bin:$PATH\"\ncommand -v direnv >/dev/null || exit 0\n"), "shell-missing", nearMiss, "", 0},
		{"near miss: a program that another file may define", both(". /opt/env.sh\ncommand -v direnv >/dev/null || exit 0\n"), "shell-missing", nearMiss, "", 0},
		{"near miss: another program takes the place of the shell", both("exec bash --norc\n"), "shell-missing", nearMiss, "", 0},
	})
}

// The options of sshd come before its files, and the option -p takes the place of their ports.
func TestSSHDOptions(t *testing.T) {
	m := machine{freshLayout("debian-bios")}
	sshdOptions(m, "-p 2222 -p2223 -o 'Banner /etc/issue'")
	m.add("/etc/ssh/sshd_config", "Port 22\nBanner none\n")
	c := config.ReadSSHDConfig(m.system().Files)
	ports := c.Ports()
	if len(ports) != 2 || ports[0] != 2222 || ports[1] != 2223 {
		t.Errorf("Ports() = %v, want 2222 and 2223", ports)
	}
	if banner := c.First("banner", ""); banner != "/etc/issue" {
		t.Errorf("the banner is %q, want that of the option", banner)
	}
}
