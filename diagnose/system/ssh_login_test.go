package system

import (
	"encoding/base64"
	"encoding/binary"
	"strings"
	"testing"

	"salvor/diagnose"
)

// rsaKey is a line of authorized_keys with an RSA key of a size.
func rsaKey(bits int) string {
	modulus := make([]byte, bits/8+1)
	modulus[1] = 0x80
	var blob []byte
	for _, part := range []string{"ssh-rsa", "\x01\x00\x01", string(modulus)} {
		blob = binary.BigEndian.AppendUint32(blob, uint32(len(part)))
		blob = append(blob, part...)
	}
	return "ssh-rsa " + base64.StdEncoding.EncodeToString(blob) + " bob@desk\n"
}

func init() {
	blocks := diagnose.BlocksAccess
	const rootKeys, aliceKeys, dropIn = "/root/.ssh/authorized_keys", "/home/alice/.ssh/authorized_keys", "/etc/ssh/sshd_config.d/10-hardening.conf"
	const noPasswords = "PasswordAuthentication no\nKbdInteractiveAuthentication no\n"
	settings := func(text string) func(machine) {
		return func(m machine) { m.write(dropIn, text) }
	}
	bothKeys := func(change func(key string) string, text string) func(machine) {
		return func(m machine) {
			m.write(rootKeys, change(authorizedKey))
			m.write(aliceKeys, change(authorizedKey))
			m.write(dropIn, text)
		}
	}
	option := func(text string) func(string) string {
		return func(key string) string { return text + " " + key }
	}
	libwrap := func(change func(machine)) func(machine) {
		return func(m machine) {
			m.program("/usr/sbin/sshd", elfWithLibrary(elfAMD64, "/lib64/ld-linux-x86-64.so.2", "libwrap.so.0"))
			m.write("/usr/lib/x86_64-linux-gnu/libwrap.so.0", elfFile(elfAMD64, ""))
			change(m)
		}
	}
	hosts := func(allow, deny string) func(machine) {
		return libwrap(func(m machine) {
			m.write("/etc/hosts.allow", "# comment\n"+allow)
			m.write("/etc/hosts.deny", "# comment\n"+deny)
		})
	}
	const id = "ssh-login-impossible"
	addAccessCases("debian-bios", []accessCase{
		{"keys elsewhere", settings("AuthorizedKeysFile /etc/ssh/keys/%u\n" + noPasswords), id, blocks, "it has no key in /etc/ssh/keys/", 1},
		{"no keys files", settings("AuthorizedKeysFile none\n" + noPasswords), id, blocks, "it has no key in none", 1},
		{"keys are off", settings("PubkeyAuthentication no\n" + noPasswords), id, blocks, "keys are off", 1},
		{"algorithms without the keys' type", settings("PubkeyAcceptedAlgorithms rsa-sha2-512,rsa-sha2-256\n" + noPasswords), id, blocks, "ssh-ed25519", 1},
		{"algorithms by their old name", settings("PubkeyAcceptedKeyTypes ssh-rsa,ecdsa-sha2-*\n" + noPasswords), id, blocks, "ssh-ed25519", 1},
		{"algorithms less the keys' type", settings("PubkeyAcceptedAlgorithms -ssh-ed25519*\n" + noPasswords), id, blocks, "ssh-ed25519", 1},
		{"keys that are over", bothKeys(option(`expiry-time="20250101"`), noPasswords), id, blocks, "expiry-time 20250101 is over", 0},
		{"keys that are over, with an hour", bothKeys(option(`restrict,pty,expiry-time="202501011200Z"`), noPasswords), id, blocks, "is over", 0},
		{"an expiry that nobody can read", bothKeys(option(`expiry-time="soon"`), noPasswords), id, blocks, "is over", 0},
		{"keys from the machine itself", bothKeys(option(`from="127.0.0.1,::1"`), noPasswords), id, blocks, "option from", 0},
		{"keys for one command", bothKeys(option(`command="/usr/bin/rsync --server"`), noPasswords), id, blocks, "one command", 0},
		{"a short RSA key", bothKeys(func(string) string { return rsaKey(2048) }, "RequiredRSASize 3072\n"+noPasswords), id, blocks, "2048 bits", 1},
		{"a list of revoked keys that is gone", settings("RevokedKeys /etc/ssh/revoked\n" + noPasswords), "ssh-keys-refused", blocks, "/etc/ssh/revoked", 1},
		{"passwords off by a drop-in, and no keys", func(m machine) {
			m.remove("/root/.ssh")
			m.remove("/home/alice/.ssh")
			m.write("/etc/ssh/sshd_config.d/50-cloud-init.conf", "PasswordAuthentication no\n")
			m.add("/etc/ssh/sshd_config", "\nPasswordAuthentication yes\nPermitRootLogin yes\n")
		}, id, blocks, "passwords are off", 1},
		{"sftp for all", settings("ChrootDirectory /srv/sftp/%u\nForceCommand internal-sftp\nAllowTcpForwarding no\n"), id, blocks, "ForceCommand runs internal-sftp", 2},
		{"a command that is gone", settings("ForceCommand /usr/local/bin/menu\n"), id, blocks, "/usr/local/bin/menu", 1},
		{"a root folder that is gone", settings("ChrootDirectory /srv/jail\n"), id, blocks, "/srv", 1},
		{"no sessions", settings("MaxSessions 0\n"), id, blocks, "MaxSessions", 1},
		{"methods that nobody meets", settings("AuthenticationMethods publickey,password\nPasswordAuthentication no\n"), id, blocks, "AuthenticationMethods", 1},
		{"only root, whose password is for the console", func(m machine) {
			rootOnly(m)
			m.remove(rootKeys)
			m.edit("/etc/shadow", "root:*:", "root:"+aliceHash+":")
		}, id, blocks, "PermitRootLogin", 0},

		{"near miss: algorithms with the keys' type", settings("PubkeyAcceptedAlgorithms ssh-ed25519,rsa-sha2-512\n" + noPasswords), id, nearMiss, "", 0},
		{"near miss: algorithms more", settings("PubkeyAcceptedAlgorithms +ssh-rsa\n" + noPasswords), id, nearMiss, "", 0},
		{"near miss: algorithms first", settings("PubkeyAcceptedAlgorithms ^rsa-sha2-512\n" + noPasswords), id, nearMiss, "", 0},
		{"near miss: RSA by SHA-2", bothKeys(func(string) string { return rsaKey(3072) }, "PubkeyAcceptedAlgorithms rsa-sha2-*\n"+noPasswords), id, nearMiss, "", 0},
		{"near miss: keys that end later", bothKeys(option(`expiry-time="20991231"`), noPasswords), id, nearMiss, "", 0},
		{"near miss: an option in quotes", bothKeys(option(`environment="X=command=,expiry-time=20200101"`), noPasswords), id, nearMiss, "", 0},
		{"near miss: keys from a network", bothKeys(option(`from="192.0.2.0/24,!192.0.2.7"`), noPasswords), id, nearMiss, "", 0},
		{"near miss: one of two keys is over", bothKeys(func(key string) string { return `expiry-time="20250101" ` + key + key }, noPasswords), id, nearMiss, "", 0},
		{"near miss: sftp for a group", settings("Match Group sftp-only\nChrootDirectory /srv/sftp/%u\nForceCommand internal-sftp\n"), id, nearMiss, "", 0},
		{"near miss: a command that passes shells on", func(m machine) {
			m.program("/usr/local/bin/audit-shell", "#!/bin/sh\nexec $SSH_ORIGINAL_COMMAND\n")
			m.write(dropIn, "ForceCommand /usr/local/bin/audit-shell\n")
		}, id, nearMiss, "", 0},
		{"near miss: a key and then what PAM asks", settings("AuthenticationMethods publickey,keyboard-interactive\nKbdInteractiveAuthentication yes\n"), id, nearMiss, "", 0},
		{"near miss: any method", settings("AuthenticationMethods any\n"), id, nearMiss, "", 0},
		{"near miss: a later line", settings("PasswordAuthentication yes\nPasswordAuthentication no\n"), id, nearMiss, "", 0},

		{"hosts.deny", hosts("", "ALL: ALL\n"), "hosts-deny-blocks-ssh", blocks, "/etc/hosts.deny, line 2", 2},
		{"hosts.deny, by name", hosts("", "sshd : ALL\n"), "hosts-deny-blocks-ssh", blocks, "/etc/hosts.deny, line 2", 2},
		{"hosts.deny, but for another program", hosts("", "ALL EXCEPT vsftpd: ALL\n"), "hosts-deny-blocks-ssh", blocks, "line 2", 2},
		{"hosts.allow with other programs", hosts("vsftpd: ALL\nsshd: LOCAL, 127.0.0.1 [::1]\n", "ALL: ALL\n"), "hosts-deny-blocks-ssh", blocks, "/etc/hosts.deny", 2},
		{"hosts.deny is cut short in a comment", hosts("", "# nothing is ref"), "hosts-deny-blocks-ssh", blocks, "/etc/hosts.deny, line 2 refuses all connections to sshd, because libwrap cannot read", 2},
		{"hosts.deny ends with a line that goes on", hosts("", "# nothing \\\n"), "hosts-deny-blocks-ssh", blocks, "no newline", 2},
		{"hosts.deny with a long comment", hosts("", "# "+strings.Repeat("x", 2045)+"\n"), "hosts-deny-blocks-ssh", blocks, "2046 bytes", 2},
		{"near miss: a comment of 2,046 bytes", hosts("", "# "+strings.Repeat("x", 2044)+"\n"), "hosts-deny-blocks-ssh", nearMiss, "", 0},
		{"near miss: hosts.allow is cut short", hosts("# nobody is ref", ""), "hosts-deny-blocks-ssh", nearMiss, "", 0},
		{"near miss: hosts.allow lets everybody in before hosts.deny ends early", hosts("sshd: ALL\n", "# nothing"), "hosts-deny-blocks-ssh", nearMiss, "", 0},
		{"hosts.allow is cut short before what it lets in", hosts("sshd: 192.0.2.0/24", "ALL: ALL\n"), "hosts-deny-blocks-ssh", blocks, "/etc/hosts.deny, line 2", 2},
		{"hosts.allow that denies", hosts("sshd: ALL: deny\n", ""), "hosts-deny-blocks-ssh", blocks, "/etc/hosts.allow, line 2", 2},
		{"near miss: hosts.allow with sshd", hosts("sshd: ALL EXCEPT 192.0.2.66\n", "ALL: PARANOID\nALL: ALL\n"), "hosts-deny-blocks-ssh", nearMiss, "", 0},
		{"near miss: hosts.allow with a network", hosts("ALL: [2001:db8::]/32, 192.0.2.\n", "ALL: ALL\n"), "hosts-deny-blocks-ssh", nearMiss, "", 0},
		{"near miss: hosts.deny of another program", hosts("", "vsftpd: ALL\n"), "hosts-deny-blocks-ssh", nearMiss, "", 0},
		{"near miss: hosts.deny but for sshd", hosts("", "ALL EXCEPT sshd: ALL\n"), "hosts-deny-blocks-ssh", nearMiss, "", 0},
		{"near miss: hosts.deny with hosts that fail2ban bans", hosts("", "sshd: 198.51.100.7\n"), "hosts-deny-blocks-ssh", nearMiss, "", 0},
		{"near miss: sshd does not ask", func(m machine) { m.write("/etc/hosts.deny", "ALL: ALL\n") }, "hosts-deny-blocks-ssh", nearMiss, "", 0},
	})
}

// TestLoginHelp: where keys are there and a setting refuses them, nobody is told to add a key.
func TestLoginHelp(t *testing.T) {
	m := machine{freshLayout("debian-bios")}
	m.edit("/etc/ssh/sshd_config", "UsePAM yes", "UsePAM no")
	m.edit("/etc/shadow", "root:*:", "root:!:")
	m.edit("/etc/shadow", "alice:"+aliceHash, "alice:!")
	findings, _ := diagnose.Run(accessRules(), m.system())
	for _, f := range findings {
		if f.ID != "login-impossible" {
			continue
		}
		if !strings.Contains(f.ByHand, "Correct the settings") || !strings.Contains(f.Evidence[len(f.Evidence)-1].Text, "usepam no") {
			t.Errorf("%q, %+v", f.ByHand, f.Evidence)
		}
		return
	}
	t.Errorf("no login-impossible among %+v", findings)
}
