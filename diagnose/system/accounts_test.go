package system

import (
	"slices"
	"strings"
	"testing"

	"salvor/diagnose"
	"salvor/diagnose/config"
)

func init() {
	blocks, degrades, info := diagnose.BlocksAccess, diagnose.Degrades, diagnose.Info
	const rootKeys, aliceKeys = "/root/.ssh/authorized_keys", "/home/alice/.ssh/authorized_keys"
	// onlyRoot applies a change where root is the only account.
	onlyRoot := func(change func(machine)) func(machine) {
		return func(m machine) {
			rootOnly(m)
			change(m)
		}
	}
	shadow := func(line string) func(machine) {
		return func(m machine) { m.edit("/etc/shadow", "root:*:19700:0:99999:7:::", line) }
	}
	addAccessCases("rhel-lvm", []accessCase{
		{"group may write", func(m machine) { m.mode("/home/alice", 0o775) }, "ssh-key-permissions", degrades, "0775", 0},
	})
	addAccessCases("debian-bios", []accessCase{
		{"home of root open", onlyRoot(func(m machine) { m.mode("/root", 0o777) }), "ssh-key-permissions", blocks, "/root may be written by others: its mode is 0777", 0},
		{"file open", onlyRoot(func(m machine) { m.mode(rootKeys, 0o666) }), "ssh-key-permissions", blocks, "0666", 0},
		{"of another owner", onlyRoot(func(m machine) { m.owner("/root/.ssh", 1234, 0) }), "ssh-key-permissions", blocks, "user id 1234", 0},
		{"near miss: Debian's private groups", func(m machine) { m.mode("/home/alice", 0o775); m.mode(aliceKeys, 0o664) }, "ssh-key-permissions", nearMiss, "", 0},
		{"a group with others", func(m machine) {
			m.mode("/home/alice", 0o775)
			m.edit("/etc/group", "alice:x:1000:", "alice:x:1000:bob")
		}, "ssh-key-permissions", degrades, "0775", 0},
		{"of one of two", func(m machine) { m.mode("/home/alice", 0o777) }, "ssh-key-permissions", degrades, "alice", 0},
		{"unreadable", func(m machine) { m.owner(aliceKeys, 0, 0) }, "ssh-key-permissions", degrades, "cannot be read by alice", 0},
		{"near miss: no StrictModes", func(m machine) { m.mode("/root", 0o777); m.add("/etc/ssh/sshd_config", "StrictModes no\n") }, "ssh-key-permissions", nearMiss, "", 0},
		{"near miss: / above the home", func(m machine) { m.mode("/home", 0o777) }, "ssh-key-permissions", nearMiss, "", 0},
		{"near miss: keys elsewhere", func(m machine) {
			m.add("/etc/ssh/sshd_config", "AuthorizedKeysFile /etc/ssh/keys/%u\n")
			m.write("/etc/ssh/keys/root", authorizedKey)
			m.write("/etc/ssh/keys/alice", authorizedKey)
			m.mode("/root", 0o777)
		}, "ssh-key-permissions", nearMiss, "", 0},

		{"cut key", onlyRoot(func(m machine) { m.write(rootKeys, "# key\n"+authorizedKey[:50]+"\n"+authorizedKey[50:]) }), "authorized-keys-malformed", blocks, rootKeys + ", line 2", 2},
		{"no type", onlyRoot(func(m machine) { m.write(rootKeys, strings.Fields(authorizedKey)[1]+"\n") }), "authorized-keys-malformed", blocks, "line 1", 1},
		{"another type", onlyRoot(func(m machine) { m.write(rootKeys, strings.Replace(authorizedKey, "ssh-ed25519", "ssh-rsa", 1)) }), "authorized-keys-malformed", blocks, "another type", 1},
		{"one bad of two", func(m machine) { m.add(rootKeys, "nonsense\n") }, "authorized-keys-malformed", info, "line 2", 2},
		{"near miss: options", func(m machine) {
			m.write(rootKeys, "from=\"192.0.2.0/24\",environment=\"A=b c\" "+authorizedKey+"\n\n# comment\n")
		}, "authorized-keys-malformed", nearMiss, "", 0},

		{"home missing", func(m machine) { m.remove("/home/alice") }, "home-missing", info, "/home/alice", 0},
		{"home of the only one missing", func(m machine) {
			m.remove("/home/alice")
			m.add("/etc/ssh/sshd_config", "PermitRootLogin no\nPasswordAuthentication no\n")
		}, "home-missing", blocks, "/home/alice", 0},
		{"near miss: home in fstab", func(m machine) {
			m.remove("/home")
			m.add("/etc/fstab", "nas:/home /home nfs defaults,_netdev,nofail 0 0\n")
		}, "home-missing", nearMiss, "", 0},

		{"no root", func(m machine) { m.edit("/etc/passwd", "root:x:0:0:root:/root:/bin/bash\n", "") }, "passwd-broken", blocks, "root", 0},
		{"empty passwd", func(m machine) { m.write("/etc/passwd", "") }, "passwd-broken", blocks, "root", 0},
		{"near miss: two with the id 0", func(m machine) {
			m.add("/etc/passwd", "toor:x:0:0:root:/root:/bin/bash\n")
			m.add("/etc/shadow", "toor:*:19700:0:99999:7:::\n")
		}, "passwd-broken", nearMiss, "", 0},
		{"field missing", func(m machine) { m.edit("/etc/passwd", "alice:x:1000:1000:", "alice:x:1000:") }, "account-entry-broken", degrades, "/etc/passwd, line 4", 4},
		{"shadow field missing", onlyRoot(shadow("root:*:19700:0:99999:7::")), "account-entry-broken", blocks, "/etc/shadow, line 1", 1},
		{"hash in the place of a name", func(m machine) { m.add("/etc/shadow", aliceHash+":19700:0\n") }, "account-entry-broken", degrades, "line 5", 5},
		{"group broken", func(m machine) { m.add("/etc/group", "broken\n") }, "account-entry-broken", degrades, "/etc/group", 6},
		{"near miss: NIS and comments", func(m machine) { m.add("/etc/passwd", "\n# ours\n+::::::\n"); m.add("/etc/group", "+:::\n") }, "account-entry-broken", nearMiss, "", 0},
		{"no shadow", func(m machine) { m.remove("/etc/shadow") }, "shadow-missing", blocks, "/etc/shadow", 0},
		{"near miss: hashes in passwd", func(m machine) {
			m.write("/etc/passwd", strings.ReplaceAll(string(m.files["etc/passwd"].Data), ":x:", ":"+aliceHash+":"))
			m.remove("/etc/shadow")
		}, "shadow-missing", nearMiss, "", 0},
		{"entry missing", onlyRoot(shadow("")), "shadow-entry-missing", blocks, "root", 0},
		{"near miss: of a service", func(m machine) { m.edit("/etc/shadow", "daemon:*:19700:0:99999:7:::\n", "") }, "shadow-entry-missing", nearMiss, "", 0},

		{"misspelt service", func(m machine) { m.edit("/etc/nsswitch.conf", "passwd: files", "passwd: fiels") }, "nsswitch-module-missing", blocks, `"fiels"`, 1},
		{"near miss: one of two", func(m machine) {
			m.edit("/etc/nsswitch.conf", "passwd: files", "passwd: files [NOTFOUND=return] systemd")
		}, "nsswitch-module-missing", nearMiss, "", 0},

		{"account expired", onlyRoot(shadow("root:*:19700:0:99999:7::1:")), "account-expired", blocks, "1970-01-02", 1},
		{"password inactive", onlyRoot(shadow("root:" + aliceHash + ":15000:0:90:7:30::")), "account-expired", blocks, "root cannot log in", 1},
		{"one of two expired", func(m machine) { m.edit("/etc/shadow", aliceShadow, "alice:"+aliceHash+":19700:0:99999:7::20000:\n") }, "account-expired", info, "alice", 4},
		{"near miss: expires later", onlyRoot(shadow("root:*:19700:0:99999:7::40000:")), "account-expired", nearMiss, "", 0},
		{"password to be changed", onlyRoot(shadow("root:*:0:0:99999:7:::")), "password-must-change", blocks, "next login", 1},
		{"password too old", onlyRoot(shadow("root:*:15000:0:90:7:::")), "password-must-change", blocks, "expired on 2011", 1},
		{"near miss: never aged", onlyRoot(shadow("root:*::0:::::")), "password-must-change", nearMiss, "", 0},
		{"unknown hash", func(m machine) {
			rootOnly(m)
			m.remove("/root/.ssh")
			m.add("/etc/ssh/sshd_config", "PermitRootLogin yes\n")
			m.edit("/etc/shadow", "root:*:", "root:"+aliceHash+":")
			m.write("/usr/lib/x86_64-linux-gnu/libcrypt.so.1", "\x7fELF crypt_r")
		}, "password-hash-unknown", blocks, "root", 1},
		{"near miss: libxcrypt", func(m machine) { m.write("/usr/lib/x86_64-linux-gnu/libcrypt.so.1", "\x7fELF crypt_r crypt_gensalt") }, "password-hash-unknown", nearMiss, "", 0},
		{"shell missing", onlyRoot(func(m machine) { m.edit("/etc/passwd", "/root:/bin/bash", "/root:/bin/nosuch") }), "shell-missing", blocks, "/bin/nosuch of root", 1},
		{"shell of one of two", func(m machine) { m.edit("/etc/passwd", "/home/alice:/bin/bash", "/home/alice:/usr/bin/zsh") }, "shell-missing", degrades, "zsh", 4},
		{"near miss: no shell named", onlyRoot(func(m machine) { m.edit("/etc/passwd", "/root:/bin/bash", "/root:") }), "shell-missing", nearMiss, "", 0},

		{"nobody", onlyRoot(func(m machine) { m.remove(rootKeys) }), "login-impossible", blocks, "No account", 0},
		{"locked and no PAM", onlyRoot(func(m machine) {
			m.edit("/etc/ssh/sshd_config", "UsePAM yes", "UsePAM no")
			m.edit("/etc/shadow", "root:*:", "root:!:")
		}), "login-impossible", blocks, "No account", 0},
		{"near miss: root locked, as on clouds", func(m machine) { m.edit("/etc/shadow", "root:*:", "root:!:"); m.remove(rootKeys) }, "login-impossible", nearMiss, "", 0},
		{"near miss: a directory service", onlyRoot(func(m machine) {
			m.remove(rootKeys)
			m.edit("/etc/nsswitch.conf", "passwd: files", "passwd: files sss")
			m.write("/usr/lib/x86_64-linux-gnu/libnss_sss.so.2", "")
			enableUnit(m, "sssd.service")
		}), "login-impossible", nearMiss, "", 0},
		{"a directory service that does not start", onlyRoot(func(m machine) {
			m.remove(rootKeys)
			m.edit("/etc/nsswitch.conf", "passwd: files", "passwd: files sss")
			m.write("/usr/lib/x86_64-linux-gnu/libnss_sss.so.2", "")
		}), "login-impossible", blocks, "No account", 0},
		{"near miss: homes are elsewhere", func(m machine) {
			m.remove("/root/.ssh")
			m.remove("/home")
			m.edit("/etc/shadow", aliceHash, "!")
			m.add("/etc/fstab", "nas:/home /home nfs defaults,_netdev,nofail 0 0\n")
		}, "login-impossible", nearMiss, "", 0},
		{"near miss: cloud-init comes", onlyRoot(func(m machine) { m.remove(rootKeys); m.program("/usr/bin/cloud-init", "#!/usr/bin/python3\n") }), "login-impossible", nearMiss, "", 0},

		{"not among AllowUsers", func(m machine) { m.add("/etc/ssh/sshd_config", "AllowUsers bob deploy@192.0.2.1\n") }, "sshd-users-denied", blocks, "line 8", 8},
		{"root refused", onlyRoot(func(m machine) { m.add("/etc/ssh/sshd_config", "PermitRootLogin no\n") }), "sshd-users-denied", blocks, "permitrootlogin", 8},
		{"near miss: one is allowed", func(m machine) { m.add("/etc/ssh/sshd_config", "AllowGroups adm su?o\nPermitRootLogin no\n") }, "sshd-users-denied", nearMiss, "", 0},
	})
}

func FuzzAccounts(f *testing.F) {
	f.Add("root:x:0:0:root:/root:/bin/bash\nalice:" + aliceHash + ":1:2:3:4:5:6:\n")
	f.Add("a:::\n::::::::\nb:!:99999999999:0:-1:7::1:\n")
	f.Fuzz(func(t *testing.T, text string) {
		lines := strings.Split(text, "\n")
		accounts, broken := config.ParsePasswd(lines)
		entries, brokenToo := config.ParseShadow(lines)
		_, _ = config.ParseGroups(lines)
		if len(accounts)+len(broken) > len(lines) || len(entries)+len(brokenToo) > len(lines) {
			t.Errorf("%d lines became %d and %d entries", len(lines), len(accounts)+len(broken), len(entries)+len(brokenToo))
		}
		for _, e := range entries {
			e.Expired(20_000)
			e.MustChange(20_000)
		}
		for _, e := range brokenEvidence(config.ShadowPath, append(broken, brokenToo...)) {
			if strings.Contains(e.Text, "$") {
				t.Errorf("it shows %q", e.Text)
			}
		}
	})
}

// TestForeignKeyPaths: a repair changes no path that another account owns, or to which a link leads out of the home.
func TestForeignKeyPaths(t *testing.T) {
	t.Parallel()
	const aliceKeys = "/home/alice/.ssh/authorized_keys"
	linkTo := func(m machine, folder string, owner uint32) { // the folder of the keys is a link
		m.remove("/home/alice/.ssh")
		m.link("/home/alice/.ssh", folder)
		m.write(folder+"/authorized_keys", authorizedKey)
		m.mode(folder+"/authorized_keys", 0o666)
		m.owner(folder+"/authorized_keys", owner, owner)
	}
	for name, tc := range map[string]struct {
		change func(m machine)
		repair bool
		byHand string
	}{
		"mode in the home": {func(m machine) { m.mode("/home/alice/.ssh", 0o777) }, true, "chmod"},
		"unreadable":       {func(m machine) { m.owner(aliceKeys, 0, 0) }, true, "chown"},
		"hard link": {func(m machine) {
			m.owner(aliceKeys, 0, 0)
			m.files[aliceKeys[1:]].Sys = &diagnose.Owner{Links: 2}
		}, false, aliceKeys + " has another name"},
		"of another user": {func(m machine) { m.owner("/home/alice/.ssh", 1001, 1001) }, false, "/home/alice/.ssh belongs to another user id"},
		"home of another": {func(m machine) { m.owner("/home/alice", 1001, 1001) }, false, "/home/alice belongs"},
		"link to a home":  {func(m machine) { linkTo(m, "/home/bob/.ssh", 1001) }, false, "/home/bob/.ssh/authorized_keys lies outside of the home of alice"},
		"link to root's":  {func(m machine) { linkTo(m, "/srv/keys", 0) }, false, "/srv/keys/authorized_keys lies outside of the home of alice"},
		"like a home":     {func(m machine) { linkTo(m, "/home/alice2/.ssh", 0) }, false, "lies outside of the home of alice"},
		"home is all": {func(m machine) {
			m.edit("/etc/passwd", ":/home/alice:", ":/:")
			m.remove("/home/alice/.ssh")
			m.write("/.ssh/authorized_keys", authorizedKey)
			m.mode("/.ssh/authorized_keys", 0o666)
		}, false, "lies outside"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := machine{separateLayout("debian-bios")}
			tc.change(m)
			found := findKeyTroubles(m.system())
			i := slices.IndexFunc(found, func(f diagnose.Finding) bool { return f.ID == "ssh-key-permissions" })
			if i < 0 {
				t.Fatalf("findings %+v", found)
			}
			if f := found[i]; (f.Repair != nil) != tc.repair || !strings.Contains(f.ByHand, tc.byHand) {
				t.Errorf("repair %+v, by hand %q", f.Repair, f.ByHand)
			}
		})
	}
}
