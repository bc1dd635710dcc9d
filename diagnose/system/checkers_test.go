package system

import (
	"slices"
	"strings"
	"testing"

	"salvor/diagnose"
)

// fakeAsker answers what a table says, by the first words of a command.
type fakeAsker map[string]diagnose.Answer

func (f fakeAsker) Ask(q diagnose.Question) diagnose.Answer {
	for words, a := range f {
		if strings.HasPrefix(strings.Join(q.Command, " "), words) {
			return a
		}
	}
	return diagnose.Answer{}
}

// checkedSystem is a healthy system with all checkers and what they check.
func checkedSystem(asker diagnose.Asker) *diagnose.System {
	in := debianBIOS()
	addCheckers(in)
	s := in.system()
	s.Asker = asker
	return s
}

func addCheckers(in *installed) {
	in.writeAll(map[string]string{
		"/usr/sbin/visudo": "x", "/usr/sbin/nft": "x", "/usr/bin/grub-script-check": "x", "/usr/bin/findmnt": "x", "/usr/bin/systemd-analyze": "x",
		"/etc/nftables.conf": "#!/usr/sbin/nft -f\nflush ruleset\ntable inet a {\n}\n", "/etc/netplan/1.yaml": "network:\n  version: 2\n", "/etc/sudoers": "root ALL=(ALL:ALL) ALL\n",
		"/usr/lib/systemd/system/nftables.service": "[Service]\nExecStart=/usr/sbin/nft -f /etc/nftables.conf\n",
	})
	for _, name := range []string{"/usr/sbin/netplan", "/usr/libexec/netplan/generate", "/usr/lib/systemd/system-generators/netplan"} {
		in.writeMode(name, "#!/bin/sh\n", 0o755)
	}
	in.link("/etc/systemd/system/sysinit.target.wants/nftables.service", "/lib/systemd/system/nftables.service")
}

func init() {
	for _, c := range []struct {
		id, command, said, harmless string
		severity                    diagnose.Severity
	}{
		{"sshd-check-failed", "/usr/sbin/sshd -t", "unsupported option", "bad addr or host: web (Name or service not known)", diagnose.BlocksAccess},
		{"sudoers-check-failed", "/usr/sbin/visudo", "/etc/sudoers:1:24: syntax error", "", diagnose.Degrades},
		{"nftables-check-failed", "/usr/sbin/nft", "/etc/nftables.conf:2:28-31: Error: syntax error", "Error: Could not process rule: Operation not permitted", diagnose.Degrades},
		{"netplan-check-failed", "/usr/libexec/netplan/generate", "/etc/netplan/1.yaml:2:1: Invalid YAML", "Permission denied", diagnose.BlocksAccess},
		{"grub-check-failed", "/usr/bin/grub-script-check", "Syntax error at line 2", "error: out of memory.", diagnose.BlocksBoot},
		{"fstab-check-failed", "/usr/bin/findmnt", "findmnt: /etc/fstab: parse error at line 2 -- ignored", "[E] unreachable on boot required source", diagnose.Degrades},
		{"unit-check-failed", "/usr/bin/systemd-analyze", "ssh.service: Service has no ExecStart=. Refusing.", "Unknown key name 'Y', ignoring.", diagnose.Degrades},
		{"init-load-failed", "/lib64/ld-linux-x86-64.so.2 --list /sbin/init", "file too short", "cannot allocate memory", diagnose.BlocksBoot},
		{"sshd-load-failed", "/lib64/ld-linux-x86-64.so.2 --list /usr/sbin/sshd", "file too short", "cannot allocate memory", diagnose.BlocksAccess},
		{"shell-load-failed", "/lib64/ld-linux-x86-64.so.2 --list /bin/bash", "file too short", "cannot allocate memory", diagnose.Degrades},
	} {
		ask := func(said string) func(*testing.T, *installed) {
			return func(_ *testing.T, in *installed) {
				addCheckers(in)
				in.Asker = fakeAsker{c.command: {Exit: 1, Output: said}}
			}
		}
		ruleCases = append(ruleCases,
			ruleCase{"the checker refuses", "debian-bios", c.id, c.severity, ask(c.said)},
			ruleCase{"the checker complains of its sandbox", "debian-bios", c.id, nearMiss, ask(c.harmless)})
	}
}

// TestCheckersAccuse: an answer that names a fault is a finding with the words of the checker, and an answer about the sandbox is none.
func TestCheckersAccuse(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		command, said string
		exit          int
		want          string // id of the only finding that the answers add; empty: none
	}{
		{"/usr/sbin/sshd -t", "/etc/ssh/sshd_config line 1: unsupported option \"maybe\".", 255, "sshd-check-failed"},
		{"/usr/sbin/sshd -T -C user=root", "/etc/ssh/sshd_config line 1: unsupported option \"maybe\".", 255, "sshd-check-failed"},
		{"/usr/sbin/sshd -t", "/etc/ssh/sshd_config line 3: bad addr or host: web (Temporary failure in name resolution)", 255, ""},
		{"/usr/sbin/sshd -t", "/etc/ssh/sshd_config line 3: Deprecated option Protocol", 0, ""},
		{"/usr/sbin/sshd -t", "Segmentation fault", 139, ""},
		{"/usr/sbin/visudo", "/etc/sudoers:1:24: syntax error\nroot ALL=(ALL:ALL) ALL\n     ^", 1, "sudoers-check-failed"},
		{"/usr/sbin/nft", "/etc/nftables.conf:2:28-31: Error: syntax error, unexpected hook", 1, "nftables-check-failed"},
		{"/usr/sbin/nft", "/etc/nftables.conf:2:1-14: Error: Could not process rule: Operation not permitted", 1, ""},
		{"/usr/libexec/netplan/generate", "/etc/netplan/1.yaml:2:17: Error in network definition: invalid IPv4 address '10.0.0.300'", 1, "netplan-check-failed"},
		{"/usr/bin/grub-script-check", "error: syntax error.\nerror: Incorrect command.\nSyntax error at line 2", 1, "grub-check-failed"},
		{"/usr/bin/grub-script-check", "error: out of memory.", 1, ""},
		{"/usr/bin/findmnt", "findmnt: /etc/fstab: parse error at line 2 -- ignored", 1, "fstab-check-failed"},
		{"/usr/bin/grub-script-check", "/usr/bin/grub-script-check: error while loading shared libraries: libgone.so.1: cannot open shared object file: No such file or directory", 127, ""},
		{"/usr/sbin/visudo", "Error loading shared library libgone.so.1: No such file or directory (needed by /usr/sbin/visudo)", 127, ""},
		{"/usr/libexec/netplan/generate", "/usr/libexec/netplan/generate: /lib/libc.so.6: version `GLIBC_2.38' not found (required by /usr/libexec/netplan/generate)", 1, ""},
		{"/usr/bin/findmnt", "/data\n   [E] unreachable on boot required source: UUID=1\n0 parse errors, 1 error", 1, ""},
		{"/usr/bin/systemd-analyze", "ssh.service: Service has no ExecStart=, ExecStop=, or SuccessAction=. Refusing.", 1, "unit-check-failed"},
		{"/usr/bin/systemd-analyze", "/lib/systemd/system/x.service:4: Unknown key name 'Y' in section 'Service', ignoring.", 1, ""},
		{"/lib64/ld-linux-x86-64.so.2 --list /sbin/init", "/sbin/init: error while loading shared libraries: /lib/libcap.so.2: file too short", 127, "init-load-failed"},
		{"/lib64/ld-linux-x86-64.so.2 --list /usr/sbin/sshd", "/usr/sbin/sshd: error while loading shared libraries: libwrap.so.0: cannot open shared object file", 127, "sshd-load-failed"},
		{"/lib64/ld-linux-x86-64.so.2 --list /bin/bash", "/bin/bash: /lib/libc.so.6: version `GLIBC_2.38' not found", 1, "shell-load-failed"},
	} {
		before, _ := diagnose.Run(Rules(), checkedSystem(nil))
		s := checkedSystem(fakeAsker{c.command: {Exit: c.exit, Output: c.said}})
		found, _ := diagnose.Run(Rules(), s)
		var added []diagnose.Finding
		for _, f := range found {
			if !containsFinding(before, f.ID) {
				added = append(added, f)
			}
		}
		if c.want == "" && len(added) > 0 || c.want != "" && (len(added) != 1 || added[0].ID != c.want) {
			t.Errorf("%s says %q: want %q, got %+v", c.command, c.said, c.want, added)
			continue
		}
		if first, _, _ := strings.Cut(c.said, "\n"); c.want != "" && added[0].Evidence[0].Text != first {
			t.Errorf("%s: want the words %q, got %q", c.command, first, added[0].Evidence[0].Text)
		}
		for _, f := range before {
			if !containsFinding(found, f.ID) {
				t.Errorf("%s says %q: the answer has taken away the finding %s", c.command, c.said, f.ID)
			}
		}
		if len(s.Asked) == 0 {
			t.Errorf("%s: nothing was asked", c.command)
		}
	}
}

func containsFinding(all []diagnose.Finding, id string) bool {
	return slices.ContainsFunc(all, func(f diagnose.Finding) bool { return f.ID == id })
}

// TestCheckerSupportsARule: where a rule has found the fault, the words of the checker are more evidence of that finding, and no second finding.
func TestCheckerSupportsARule(t *testing.T) {
	t.Parallel()
	in := debianBIOS()
	in.add("/etc/ssh/sshd_config", "PermitRotLogin no\n")
	s := in.system()
	s.Asker = fakeAsker{"/usr/sbin/sshd -t": {Exit: 255, Output: "/etc/ssh/sshd_config: line 9: Bad configuration option: PermitRotLogin"}}
	found, _ := diagnose.Run(Rules(), s)
	i := slices.IndexFunc(found, func(f diagnose.Finding) bool { return f.ID == "sshd-config-invalid" })
	if i < 0 || containsFinding(found, "sshd-check-failed") || !slices.ContainsFunc(found[i].Evidence, func(e diagnose.Evidence) bool { return e.Kind == diagnose.FromTool && *e.Exit == 255 }) {
		t.Errorf("want sshd-config-invalid with the words of sshd, got %+v", found)
	}
}

// TestLostUserOfSSHD: what sshd misses is the fault of the file of accounts, and no fault at all where the next start makes the user.
func TestLostUserOfSSHD(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, cause string
		change      func(machine)
	}{
		{"no file of accounts", "passwd-broken", func(m machine) { m.remove("/etc/passwd") }},
		{"no line", "sshd-user-missing", func(m machine) { m.edit("/etc/passwd", "sshd:x:104:65534::/run/sshd:/usr/sbin/nologin\n", "") }},
		{"no line, and systemd-sysusers makes it", "", func(m machine) {
			m.edit("/etc/passwd", "sshd:x:104:65534::/run/sshd:/usr/sbin/nologin\n", "")
			m.write("/usr/lib/sysusers.d/openssh-server.conf", "u sshd - - /run/sshd\n")
		}},
	} {
		in := debianBIOS()
		c.change(machine{in})
		s := in.system()
		s.Asker = fakeAsker{"/usr/sbin/sshd -t": {Exit: 255, Output: "Privilege separation user sshd does not exist"}}
		found, _ := diagnose.Run(Rules(), s)
		report := diagnose.Report{Findings: found}
		report.Judge()
		if report.Verdict.Finding != c.cause || containsFinding(found, "sshd-check-failed") {
			t.Errorf("%s: the cause is %q, want %q, and no finding of the checker; got %+v", c.name, report.Verdict.Finding, c.cause, found)
		}
	}
}

// TestAnswersQuoteNoOtherFile: a checker of a hostile system names a file, whose line a report must not show.
func TestAnswersQuoteNoOtherFile(t *testing.T) {
	t.Parallel()
	s := checkedSystem(fakeAsker{"/usr/sbin/sshd -t": {Exit: 255, Output: "/etc/shadow line 1: no\n/etc/ssh/../shadow:1: no\n/root/.profile:1: no"}})
	found, _ := diagnose.Run(Rules(), s)
	for _, f := range found {
		for _, e := range f.Evidence {
			if f.ID == "sshd-check-failed" && e.Kind == diagnose.FromFile {
				t.Errorf("it quotes %s:%d: %s", e.Path, e.Line, e.Text)
			}
		}
	}
}
