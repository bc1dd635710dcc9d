package system

import (
	"io/fs"
	"strings"
	"testing"

	"salvor/diagnose"
	"salvor/diagnose/config"
)

// debianPAM adds Debian's stacks and their modules.
func debianPAM(m machine) {
	for _, module := range strings.Fields("unix deny permit nologin access cap loginuid limits env motd selinux shells systemd") {
		m.write("/usr/lib/x86_64-linux-gnu/security/pam_"+module+".so", elfFile(elfAMD64, ""))
	}
	m.write("/etc/pam.d/common-auth", "# local\nauth\t[success=1 default=ignore]\tpam_unix.so nullok\nauth\trequisite\tpam_deny.so\nauth\trequired\tpam_permit.so\nauth\toptional\tpam_cap.so\n")
	m.write("/etc/pam.d/common-account", "account\t[success=1 new_authtok_reqd=done default=ignore]\tpam_unix.so\naccount\trequisite\tpam_deny.so\naccount\trequired\tpam_permit.so\n")
	m.write("/etc/pam.d/common-session", "session required pam_unix.so\nsession optional pam_systemd.so\n-session optional pam_absent.so\n")
	m.write("/etc/pam.d/common-password", "password [success=1 default=ignore] pam_unix.so obscure yescrypt\npassword requisite pam_pwquality.so\n")
	m.write("/etc/pam.d/sshd", "@include common-auth\naccount    required     pam_nologin.so\n# account  required     pam_access.so\n@include common-account\n"+
		"session [success=ok ignore=ignore module_unknown=ignore default=bad]        pam_gone.so close\nsession    required     pam_loginuid.so\n@include common-session\n"+
		"session    optional     pam_motd.so  motd=/run/motd.dynamic\nsession    required     pam_limits.so\n@include common-password\n")
}

func init() {
	blocks, degrades := diagnose.BlocksAccess, diagnose.Degrades
	pam := func(change func(machine)) func(machine) {
		return func(m machine) {
			debianPAM(m)
			change(m)
		}
	}
	access := func(rules string) func(machine) {
		return pam(func(m machine) {
			m.edit("/etc/pam.d/sshd", "# account  required     pam_access.so", "account  required     pam_access.so")
			m.write("/etc/security/access.conf", rules)
		})
	}
	const module = "/usr/lib/x86_64-linux-gnu/security/pam_"
	addAccessCases("debian-bios", []accessCase{
		{"required module", pam(func(m machine) { m.remove(module + "limits.so") }), "pam-module-missing", blocks, "/etc/pam.d/sshd, line 9", 9},
		{"required module, empty", pam(func(m machine) { m.write(module+"limits.so", "") }), "pam-module-missing", blocks, "/etc/pam.d/sshd, line 9", 9},
		{"library of a required module", pam(func(m machine) {
			m.write(module+"unix.so", elfWithLibrary(elfAMD64, "", "libtirpc.so.3"))
		}), "pam-module-missing", blocks, "libtirpc.so.3", 2},
		{"pam_unix", pam(func(m machine) { m.remove(module + "unix.so") }), "pam-module-missing", blocks, "/etc/pam.d/common-auth, line 2", 2},
		{"near miss: optional, silent and for passwords", pam(func(m machine) { m.remove(module + "motd.so"); m.remove(module + "cap.so") }), "pam-module-missing", nearMiss, "", 0},
		{"misspelt control", pam(func(m machine) { m.edit("/etc/pam.d/sshd", "account    required", "account    requird") }), "pam-config-broken", blocks, `"requird"`, 2},
		{"missing include", pam(func(m machine) { m.remove("/etc/pam.d/common-account") }), "pam-config-broken", blocks, "common-account", 4},
		{"no stack", pam(func(m machine) { m.remove("/etc/pam.d/sshd") }), "pam-config-broken", blocks, "no stack", 0},
		{"near miss: substack and continuation", pam(func(m machine) {
			m.write("/etc/pam.d/more", "auth required \\\n  pam_permit.so # always\nAccount Required pam_permit.so\n")
			m.add("/etc/pam.d/sshd", "auth substack more\naccount include more\n")
		}), "pam-config-broken", nearMiss, "", 0},

		{"nologin", pam(func(m machine) { m.write("/etc/nologin", "maintenance\n") }), "nologin-present", degrades, "/etc/nologin", 0},
		{"nologin, and root does not come", func(m machine) { m.write("/etc/nologin", ""); m.remove("/root/.ssh") }, "nologin-present", blocks, "nobody but root", 0},
		{"near miss: PAM does not ask", pam(func(m machine) {
			m.write("/etc/nologin", "")
			m.edit("/etc/pam.d/sshd", "account    required     pam_nologin.so\n", "")
		}), "nologin-present", nearMiss, "", 0},

		{"all refused", access("# rules\n+ : root : LOCAL cron\n- : ALL : ALL\n"), "access-conf-denies", blocks, "line 3", 3},
		{"near miss: one is allowed", access("+ : alice : ALL\n- : ALL : ALL\n"), "access-conf-denies", nearMiss, "", 0},
		{"near miss: others are refused", access("- : ALL EXCEPT root : tty1\n- : bob : ALL\n"), "access-conf-denies", nearMiss, "", 0},
		{"near miss: not asked", pam(func(m machine) { m.write("/etc/security/access.conf", "- : ALL : ALL\n") }), "access-conf-denies", nearMiss, "", 0},

		{"shell not listed", pam(func(m machine) {
			rootOnly(m)
			m.add("/etc/pam.d/sshd", "account required pam_shells.so\n")
			m.write("/etc/shells", "/bin/sh\n")
		}), "shell-not-listed", blocks, "/bin/bash of root", 0},
		{"shell not listed, and keys are not asked", pam(func(m machine) {
			rootOnly(m)
			m.add("/etc/pam.d/sshd", "auth required pam_shells.so\n")
			m.write("/etc/shells", "/bin/sh\n")
		}), "shell-not-listed", degrades, "/bin/bash of root", 0},
		{"a module of auth, and keys go on", pam(func(m machine) {
			m.edit("/etc/pam.d/common-auth", "# local\n", "auth required pam_tally2.so deny=5\n")
		}), "pam-module-missing", degrades, "logins by key go on", 1},
		{"a module of auth, and nobody has a key", pam(func(m machine) {
			m.edit("/etc/pam.d/common-auth", "# local\n", "auth required pam_tally2.so deny=5\n")
			m.remove("/root/.ssh")
			m.remove("/home/alice/.ssh")
		}), "pam-module-missing", blocks, "pam_tally2.so", 1},
		{"a module of auth and account", pam(func(m machine) {
			m.edit("/etc/pam.d/common-auth", "# local\n", "auth required pam_tally2.so deny=5\n")
			m.add("/etc/pam.d/common-account", "account required pam_tally2.so\n")
		}), "pam-module-missing", blocks, "pam_tally2.so", 1},
		{"a module of account", pam(func(m machine) {
			m.add("/etc/pam.d/sshd", "account required pam_tally2.so\n")
		}), "pam-module-missing", blocks, "pam_tally2.so", 11},
		{"a control of auth, and keys go on", pam(func(m machine) {
			m.edit("/etc/pam.d/common-auth", "auth\trequisite", "auth\trequesite")
		}), "pam-config-broken", degrades, "requesite", 3},
		{"near miss: nobody asks", pam(func(m machine) { m.write("/etc/shells", "/bin/sh\n") }), "shell-not-listed", nearMiss, "", 0},

		{"bad line", func(m machine) { m.writeMode("/etc/sudoers.d/ops", "# ours\nalice ALL=(ALL) NOPASSWD ALL\n", 0o440) }, "sudoers-invalid", degrades, "/etc/sudoers.d/ops, line 2", 2},
		{"bad line and an old sudo", func(m machine) {
			m.remove("/root/.ssh")
			m.add("/var/lib/dpkg/status", "Package: sudo\nStatus: install ok installed\nVersion: 1.8.27-1+deb10u6\n\n")
			m.writeMode("/etc/sudoers.d/ops", "alice ALL\n", 0o440)
		}, "sudoers-invalid", blocks, "equals sign", 1},
		{"near miss: much syntax", func(m machine) {
			m.writeMode("/etc/sudoers.d/ops", "Defaults:alice !requiretty\nUser_Alias ADM = alice, %sudo : OPS = bob\nCmnd_Alias SVC = /usr/bin/systemctl restart *, \\\n   /bin/ls\n"+
				"ADM ALL = (root : adm) NOPASSWD: SETENV: SVC, !/bin/su # comment\n#1000 ALL=ALL\n%wheel,+net ALL=NOPASSWD:ALL\nalice ALL=(ALL) sudoedit /etc/motd\n"+
				"alice, bob web, db = ALL\n\"a b\" ALL=ALL\nalice ALL=ALL : web=(bob) /bin/x\nalice ALL=TIMEOUT=5m /bin/x -a b=c\n#includedir /etc/none\n", 0o440)
			m.writeMode("/etc/sudoers.d/README.txt", "no rule at all\n", 0o644)
		}, "sudoers-invalid", nearMiss, "", 0},
		{"writable", func(m machine) { m.mode("/etc/sudoers", 0o666); m.remove("/root/.ssh") }, "sudoers-refused", blocks, "0666", 0},
		{"of another owner", func(m machine) { m.owner("/etc/sudoers", 1000, 1000) }, "sudoers-refused", degrades, "user id 1000", 0},
		{"near miss: readable", func(m machine) { m.mode("/etc/sudoers", 0o644) }, "sudoers-refused", nearMiss, "", 0},
		{"setuid lost", func(m machine) { m.mode("/usr/bin/sudo", 0o755); m.remove("/root/.ssh") }, "sudo-not-setuid", blocks, "setuid", 0},
		{"near miss: su without it", func(m machine) { m.mode("/usr/bin/su", 0o755) }, "sudo-not-setuid", nearMiss, "", 0},

		{"/etc closed", func(m machine) { m.mode("/etc", 0o700) }, "permissions-lost", degrades, "/etc has the mode 0700", 0},
		{"/ closed, and root does not come", func(m machine) {
			m.installed.folder("/", 0o700, diagnose.Owner{})
			m.remove("/root/.ssh")
		}, "permissions-lost", blocks, "/ has the mode 0700", 0},
		{"/ closed", func(m machine) { m.installed.folder("/", 0o700, diagnose.Owner{}) }, "permissions-lost", degrades, "/ has the mode 0700", 0},
		{"near miss: /home listed by root only", func(m machine) { m.mode("/home", 0o711) }, "permissions-lost", nearMiss, "", 0},
		{"chmod -R 777 /etc", func(m machine) {
			for name, f := range m.files {
				if strings.HasPrefix(name+"/", "etc/") && f.Mode&fs.ModeSymlink == 0 {
					m.mode(name, 0o777)
				}
			}
		}, "permissions-open", blocks, "/etc", 0},
		{"near miss: /var/tmp", func(m machine) { m.folder("/var/tmp", 0o777|fs.ModeSticky) }, "permissions-open", nearMiss, "", 0},
	})
	closed := func(m machine) { m.installed.folder("/", 0o700, diagnose.Owner{}) }
	addAccessCases("ubuntu-netplan", []accessCase{{"/ closed", closed, "permissions-lost", blocks, "netplan does not configure the network", 0}})
	addAccessCases("rhel-lvm", []accessCase{
		{"/ closed", closed, "permissions-lost", blocks, "NetworkManager does not configure the network", 0},
		{"/etc closed", func(m machine) { m.mode("/etc", 0o700) }, "permissions-lost", degrades, "/etc has the mode 0700", 0},
	})
	sysv := func(change func(machine)) func(machine) {
		return func(m machine) {
			m.remove("/usr/sbin/init")
			m.remove("/usr/lib/systemd")
			m.remove("/etc/systemd")
			m.program("/usr/sbin/init", "\x7fELF")
			m.write("/etc/inittab", "id:2:initdefault:\nsi::sysinit:/etc/init.d/rcS\n1:2345:respawn:/sbin/getty 38400 tty1\n")
			for _, name := range strings.Fields("ssh networking") {
				m.program("/etc/init.d/"+name, "#!/bin/sh\n")
			}
			m.link("/etc/rcS.d/S10networking", "../init.d/networking")
			m.link("/etc/rc2.d/S01ssh", "../init.d/ssh")
			change(m)
		}
	}
	// The init and its interpreter are looked at by rules of other stages, so these cases are run without the other rules.
	sysvCases = []accessCase{
		{"sysvinit: sshd not enabled", sysv(func(m machine) { m.remove("/etc/rc2.d/S01ssh"); m.folder("/etc/rc2.d", 0o755) }), "sshd-not-enabled", blocks, "sshd", 0},
		{"sysvinit: no network", sysv(func(m machine) { m.remove("/etc/rcS.d") }), "network-none-enabled", blocks, "networking", 0},
		{"/tmp closed", sysv(func(m machine) { m.mode("/tmp", 0o755) }), "tmp-unusable", degrades, "0755", 0},
		{"near miss: sysvinit", sysv(func(machine) {}), "tmp-unusable", nearMiss, "", 0},
	}
	for _, tc := range sysvCases {
		ruleCases = append(ruleCases, ruleCase{name: tc.name, layout: "debian-bios", id: tc.id, severity: tc.want})
	}
}

var sysvCases []accessCase

func TestSysvinit(t *testing.T) {
	for _, tc := range sysvCases {
		t.Run(tc.name, func(t *testing.T) {
			m := machine{debianBIOS()}
			tc.change(m)
			findings, gaps := diagnose.Run(accessRules(), m.system())
			if len(gaps) > 0 {
				t.Error(gaps)
			}
			checkAccessCase(t, tc, findings)
		})
	}
}

func FuzzStacksAndSudoers(f *testing.F) {
	f.Add("auth [success=1 default=ignore] pam_unix.so\n@include a\n-session required\n")
	f.Add("alice ALL=(ALL) NOPASSWD: ALL, !/bin/su\nCmnd_Alias X = /bin/a\\\n,/b\n#includedir /etc/x\n")
	f.Fuzz(func(t *testing.T, text string) {
		lines := strings.Split(text, "\n")
		if n := len(parsePAM(lines, "/etc/pam.d/a")); n > len(lines) {
			t.Errorf("%d lines of %d", n, len(lines))
		}
		if problems, includes := config.ParseSudoers(lines); len(problems)+len(includes) > len(lines) {
			t.Errorf("%d problems of %d lines", len(problems), len(lines))
		}
		in := newInstalled()
		in.writeAll(map[string]string{"/etc/pam.d/a": text, "/etc/pam.d/sshd": "@include a\n@include sshd\n" + text, "/etc/sudoers": text, "/etc/security/access.conf": text})
		tree := diagnose.NewTree(in.files)
		if stack, _ := pamStack(tree, "sshd"); len(stack) > 5100 {
			t.Errorf("%d lines", len(stack))
		}
		readSudoers(tree)
		accessDenial(tree, readLogins(in.system()), &pamLine{})
	})
}
