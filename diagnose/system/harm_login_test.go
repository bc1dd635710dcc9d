package system

import (
	"strings"
	"testing"
)

// sshSituations are about a sshd that somebody limited.
func sshSituations() []Situation {
	const file = "/etc/ssh/sshd_config"
	add := func(text string) func(*testing.T, machine) {
		return func(_ *testing.T, m machine) { m.add(file, text) }
	}
	return []Situation{
		{Name: "sshd listens in the network of the administrators", layout: "debian-bios", Finds: []string{"sshd-listens-nowhere"}, Touches: []string{file},
			Loses: map[string]string{"sshd-listens-nowhere": "all addresses"}, Why: "sshd would listen on the internet too",
			change: func(_ *testing.T, m machine) {
				m.add(file, "ListenAddress 10.9.9.9\n")
				m.write("/etc/network/interfaces", "auto lo\niface lo inet loopback\nauto enp1s0\niface enp1s0 inet static\n  address 192.0.2.7/24\n  gateway 192.0.2.1\n")
			}},
		{Name: "AllowUsers names nobody of the machine", layout: "debian-bios", Finds: []string{"sshd-users-denied"}, Touches: []string{file},
			Loses: map[string]string{"sshd-users-denied": "alice"}, Why: "accounts come in that somebody kept out", change: add("AllowUsers deploy\n")},
		{Name: "AllowUsers of a network, and Match", layout: "debian-bios", Why: "the limits are meant", change: add("AllowUsers alice@10.0.0.0/8 root@10.0.0.0/8\nMatch Address *,!10.0.0.0/8\n  PermitRootLogin no\n")},
		{Name: "DenyUsers names everybody", layout: "debian-bios", Finds: []string{"sshd-users-denied"}, Why: "somebody refused these very accounts", change: add("DenyUsers *\n")},
		{Name: "a limit with a wrong value", layout: "debian-bios", Finds: []string{"sshd-config-invalid"}, Touches: []string{file},
			Loses: map[string]string{"sshd-config-invalid": "PasswordAuthentication"}, Why: "without the line, sshd takes passwords", change: add("PasswordAuthentication nope\n")},
		{Name: "a limit with a wrong name", layout: "debian-bios", Finds: []string{"sshd-config-invalid"}, Touches: []string{file},
			Loses: map[string]string{"sshd-config-invalid": "AllowUser"}, Why: "without the line, each account comes in", change: add("AllowUser alice\n")},
		{Name: "a block of Match that sshd refuses", layout: "debian-bios", Finds: []string{"sshd-config-invalid"}, Touches: []string{file},
			Loses: map[string]string{"sshd-config-invalid": "Match"}, Why: "without the block, its accounts are not limited", change: add("Match Usr bob\n  ForceCommand internal-sftp\n")},
		{Name: "a file with limits and many wrong lines", layout: "debian-bios", Finds: []string{"sshd-config-invalid"},
			Touches: []string{"removes /etc/ssh/sshd_config.d/50-site.conf", "/etc/ssh/sshd_config.d/50-site.conf.salvor-disabled"},
			Loses:   map[string]string{"sshd-config-invalid": "AllowUsers"}, Why: "the whole file is set aside, its right lines too",
			change: func(_ *testing.T, m machine) {
				m.write("/etc/ssh/sshd_config.d/50-site.conf", "PasswordAuthentication no\nAllowUsers alice root\n"+strings.Repeat("Subsystem sftp\n", 12))
			}},
		{Name: "a file of keys that root owns", layout: "debian-bios", Finds: []string{"ssh-key-permissions"}, Touches: []string{"/home/alice/.ssh/authorized_keys"},
			Loses: map[string]string{"ssh-key-permissions": "alice may change"}, Why: "somebody may have kept the account from adding keys",
			change: func(_ *testing.T, m machine) {
				m.remove("/root/.ssh")
				m.owner("/home/alice/.ssh/authorized_keys", 0, 0)
			}},
		{Name: "the configuration of sshd lies in a shared folder", layout: "debian-bios", Finds: []string{"sshd-config-invalid"}, Touches: []string{"/srv/config/sshd_config"},
			Why: "the plan names the file that changes, and not the link", change: func(_ *testing.T, m machine) {
				m.write("/srv/config/sshd_config", string(m.files[strings.TrimPrefix(file, "/")].Data)+"Subsystem sftp /usr/lib/openssh/sftp-server\n")
				m.link(file, "/srv/config/sshd_config")
			}},
		{Name: "a harmless line that sshd refuses", layout: "debian-bios", Finds: []string{"sshd-config-invalid"}, Touches: []string{file}, Why: "no limit depends on a second Subsystem", change: add("Subsystem sftp /usr/lib/openssh/sftp-server\n")},
		{Name: "a file of configuration management", layout: "debian-bios", Finds: []string{"sshd-config-invalid"}, Touches: []string{file}, Why: "one line changes, and the head of the file stays",
			change: func(_ *testing.T, m machine) {
				m.write(file, "# This file is managed by Puppet\n"+string(m.files[strings.TrimPrefix(file, "/")].Data)+"Subsystem sftp /usr/lib/openssh/sftp-server\n")
			}},
		{Name: "the configuration of sshd is lost", layout: "debian-bios", Finds: []string{"sshd-config-missing"}, Touches: []string{file},
			Loses: map[string]string{"sshd-config-missing": "the lost file"}, Why: "the limits of the lost file are not in the package's",
			change: func(_ *testing.T, m machine) {
				m.write("/usr/share/openssh/sshd_config", string(m.files[strings.TrimPrefix(file, "/")].Data))
				m.remove(file)
			}},
		{Name: "sshd is masked on purpose", layout: "debian-bios", Finds: []string{"sshd-masked"}, Touches: []string{"removes /etc/systemd/system/ssh.service", "/etc/systemd/system/multi-user.target.wants/ssh.service"},
			Loses: map[string]string{"sshd-masked": "on purpose"}, Why: "a mask is always somebody's",
			change: func(_ *testing.T, m machine) { m.link("/etc/systemd/system/ssh.service", "/dev/null") }},
		{Name: "sshd is not to be run", layout: "debian-bios", Finds: []string{"sshd-not-enabled"}, Touches: []string{"removes /etc/ssh/sshd_not_to_be_run"},
			Loses: map[string]string{"sshd-not-enabled": "on purpose"}, Why: "somebody made the file", change: func(_ *testing.T, m machine) { m.write("/etc/ssh/sshd_not_to_be_run", "") }},
		{Name: "host keys are damaged", layout: "debian-bios", Finds: []string{"sshd-host-keys-damaged"},
			Touches: []string{"/etc/ssh/ssh_host_rsa_key", "/etc/ssh/ssh_host_ecdsa_key", "/etc/ssh/ssh_host_ed25519_key", "/etc/ssh/ssh_host_rsa_key.salvor-disabled",
				"/etc/ssh/ssh_host_ecdsa_key.salvor-disabled", "/etc/ssh/ssh_host_ed25519_key.salvor-disabled", "runs /usr/bin/ssh-keygen"},
			Loses: map[string]string{"sshd-host-keys-damaged": "know the former"}, Why: "clients refuse a machine whose key has changed",
			change: func(_ *testing.T, m machine) {
				for _, kind := range []string{"rsa", "ecdsa", "ed25519"} {
					m.write("/etc/ssh/ssh_host_"+kind+"_key", "")
				}
			}},
		{Name: "an agent holds the host keys", layout: "debian-bios", Why: "the private keys never lie on the disk, and new ones would change the host's identity",
			change: func(_ *testing.T, m machine) {
				m.add(file, "HostKeyAgent /run/hsm/agent.sock\nHostKey /etc/ssh/ssh_host_ed25519_key.pub\n")
				for _, kind := range []string{"rsa", "ecdsa", "ed25519"} {
					m.remove("/etc/ssh/ssh_host_" + kind + "_key")
				}
			}},
		{Name: "host keys come from a store of secrets at each boot", layout: "debian-bios", Why: "the folder is made and filled at each boot",
			change: func(_ *testing.T, m machine) { m.add(file, "HostKey /run/keys/ssh_host_ed25519_key\n") }},
		{Name: "keys that belong to another account", layout: "debian-bios", Finds: []string{"ssh-key-permissions"}, Why: "the other account may have written the keys",
			change: func(_ *testing.T, m machine) {
				m.remove("/root/.ssh")
				m.owner("/home/alice/.ssh/authorized_keys", 1001, 1001)
			}},
		{Name: "a home that a group writes", layout: "debian-bios", Finds: []string{"ssh-key-permissions"}, Touches: []string{"/home/alice"},
			Loses: map[string]string{"ssh-key-permissions": "web"}, Why: "the group of a web site can no longer write there",
			change: func(_ *testing.T, m machine) {
				m.add("/etc/group", "web:x:2000:alice,bob,carol\n")
				m.mode("/home/alice", 0o775)
				m.owner("/home/alice", 1000, 2000)
			}},
	}
}

// accountSituations are about accounts that somebody closed.
func accountSituations() []Situation {
	day := func(fields string) func(*testing.T, machine) {
		return func(_ *testing.T, m machine) {
			m.edit("/etc/shadow", aliceShadow, "alice:"+aliceHash+":"+fields+"\n")
		}
	}
	alone := func(change func(*testing.T, machine)) func(*testing.T, machine) {
		return func(t *testing.T, m machine) {
			m.remove("/root/.ssh")
			change(t, m)
		}
	}
	pam := func(change func(machine)) func(*testing.T, machine) {
		return func(_ *testing.T, m machine) {
			debianPAM(m)
			change(m)
		}
	}
	const shadow = "/etc/shadow"
	return []Situation{
		{Name: "an employee left", layout: "debian-bios", Finds: []string{"account-expired"}, Why: "a day on which an account ends is always somebody's, and others log in", change: day("19700:0:99999:7::20000:")},
		{Name: "the only account ended", layout: "debian-bios", Finds: []string{"account-expired"}, Touches: []string{shadow}, Loses: map[string]string{"account-expired": "alice"}, Why: "somebody may have closed the account",
			change: alone(day("19700:0:99999:7::20000:"))},
		{Name: "an account is locked by its day", layout: "debian-bios", Finds: []string{"account-expired"}, Why: "usermod --expiredate 1 locks an account", change: alone(day("19700:0:99999:7::1:"))},
		{Name: "a first password is to be changed", layout: "debian-bios", Finds: []string{"password-must-change"}, Why: "others know the password, and others log in", change: day("0:0:99999:7:::")},
		{Name: "the password of the only account is to be changed", layout: "debian-bios", Finds: []string{"password-must-change"}, Touches: []string{shadow}, Loses: map[string]string{"password-must-change": "alice"},
			Why: "others may know the password", change: alone(day("0:0:99999:7:::"))},
		{Name: "the password of root is locked", layout: "debian-bios", Why: "root logs in by its key", change: func(_ *testing.T, m machine) { m.edit(shadow, "root:*:", "root:!:") }},
		{Name: "a password is locked", layout: "debian-bios", Why: "the account logs in by its key", change: func(_ *testing.T, m machine) { m.edit(shadow, "alice:$y$", "alice:!$y$") }},
		{Name: "an account has no entry in /etc/shadow", layout: "debian-bios", Finds: []string{"shadow-entry-missing"}, Why: "the account's keys would let it in again, and others log in",
			change: func(_ *testing.T, m machine) { m.edit(shadow, aliceShadow, "") }},
		{Name: "the shell of a limited account is lost", layout: "debian-bios", Finds: []string{"shell-missing"}, Why: "the account would get a shell for all commands",
			change: func(_ *testing.T, m machine) {
				m.edit("/etc/passwd", ":/home/alice:/bin/bash", ":/home/alice:/usr/bin/scponly")
			}},
		{Name: "an account has no device as its shell", layout: "debian-bios", Finds: []string{"shell-missing"}, Why: "somebody locked the account by its shell",
			change: func(_ *testing.T, m machine) {
				m.edit("/etc/passwd", ":/home/alice:/bin/bash", ":/home/alice:/dev/null")
			}},
		{Name: "a home lies in a pool of ZFS", layout: "debian-bios", Why: "ZFS mounts nothing at a folder that is not empty",
			change: func(_ *testing.T, m machine) {
				m.remove("/home/alice")
				m.addDisk("zfs_member", "1234567890", nil)
			}},
		{Name: "a home is mounted by a unit", layout: "debian-bios", Why: "the home lies on a disk that the examination did not mount",
			change: func(_ *testing.T, m machine) {
				m.remove("/home/alice")
				m.write("/etc/systemd/system/home-alice.mount", "[Mount]\nWhat=/dev/disk/by-label/alice\nWhere=/home/alice\n")
			}},
		{Name: "an administrator keeps people out", layout: "debian-bios", Finds: []string{"nologin-present"}, Touches: []string{"removes /etc/nologin"}, Loses: map[string]string{"nologin-present": "on purpose"},
			Why: "somebody made the file", change: pam(func(m machine) { m.write("/etc/nologin", "The database is being moved. Ask ops.\n") })},
		{Name: "access.conf refuses everybody", layout: "debian-bios", Finds: []string{"access-conf-denies"}, Touches: []string{"/etc/security/access.conf"}, Loses: map[string]string{"access-conf-denies": "root alice"},
			Why: "accounts come in that somebody kept out", change: pam(func(m machine) {
				m.edit("/etc/pam.d/sshd", "# account  required     pam_access.so", "account  required     pam_access.so")
				m.write("/etc/security/access.conf", "- : ALL : ALL\n")
			})},
		{Name: "the module of a second factor is lost", layout: "debian-bios", Finds: []string{"pam-module-missing"}, Why: "without the line, nobody asks for the second factor",
			change: pam(func(m machine) {
				m.edit("/etc/pam.d/common-auth", "# local\n", "auth required pam_google_authenticator.so\n")
			})},
		{Name: "the module of a rule of access is lost", layout: "debian-bios", Finds: []string{"pam-module-missing"}, Touches: []string{"/etc/pam.d/sshd"}, Loses: map[string]string{"pam-module-missing": "pam_tally2.so"},
			Why: "the module kept accounts out", change: pam(func(m machine) { m.add("/etc/pam.d/sshd", "account required pam_tally2.so\n") })},
		{Name: "a broken entry whose backup is older", layout: "debian-bios", Finds: []string{"account-entry-broken"}, Touches: []string{shadow}, Loses: map[string]string{"account-entry-broken": "new password or a lock"},
			Why: "the backup lacks the last change, such as a lock", change: func(_ *testing.T, m machine) {
				m.writeMode(shadow+"-", string(m.files["etc/shadow"].Data), 0o640)
				m.edit(shadow, aliceShadow, "alice:!"+aliceHash+":19700\n")
			}},
		{Name: "the shadow file is lost", layout: "debian-bios", Finds: []string{"shadow-missing"}, Touches: []string{shadow}, Loses: map[string]string{"shadow-missing": "new password or a lock"},
			Why: "the backup lacks the last change, such as a lock", change: func(_ *testing.T, m machine) {
				m.writeMode(shadow+"-", string(m.files["etc/shadow"].Data), 0o640)
				m.remove(shadow)
			}},
		{Name: "a file of sudoers belongs to another account", layout: "debian-bios", Finds: []string{"sudoers-refused"}, Why: "the other account may have given itself all rights there",
			change: func(_ *testing.T, m machine) {
				m.writeMode("/etc/sudoers.d/bob", "bob ALL=(ALL) NOPASSWD: ALL\n", 0o440)
				m.owner("/etc/sudoers.d/bob", 1001, 1001)
			}},
		{Name: "everybody may write a file of sudoers", layout: "debian-bios", Finds: []string{"sudoers-refused"}, Touches: []string{"/etc/sudoers.d/ops"}, Loses: map[string]string{"sudoers-refused": "whoever could write"},
			Why: "what somebody has written there becomes right", change: func(_ *testing.T, m machine) { m.writeMode("/etc/sudoers.d/ops", "alice ALL=(ALL) ALL\n", 0o666) }},
		{Name: "a shell that somebody took from the list", layout: "debian-bios", Finds: []string{"shell-not-listed"}, Touches: []string{"/etc/shells"}, Loses: map[string]string{"shell-not-listed": "/bin/bash"},
			Why: "each account with the shell comes in", change: pam(func(m machine) {
				m.add("/etc/pam.d/sshd", "account required pam_shells.so\n")
				m.write("/etc/shells", "/bin/sh\n")
			})},
		{Name: "a password that is too old by a rule", layout: "debian-bios", Finds: []string{"account-expired"}, Touches: []string{shadow}, Loses: map[string]string{"account-expired": "no longer expires"},
			Why: "a rule of the site lets passwords expire", change: alone(day("19000:0:90:7:0::"))},
		{Name: "a line of sudoers that sudo refuses", layout: "debian-bios", Finds: []string{"sudoers-invalid"}, Touches: []string{"/etc/sudoers.d/ops"}, Loses: map[string]string{"sudoers-invalid": "forbid"},
			Why: "the line may have forbidden something", change: func(_ *testing.T, m machine) {
				m.writeMode("/etc/sudoers.d/ops", "alice ALL=(ALL) ALL\nalice ALL=(ALL) NOPASSWD !/bin/su\n", 0o440)
			}},
	}
}
