package machine

import (
	"strings"
	"testing"

	"salvor/diagnose"
)

// kernelBegin is what each boot's kernel writes first.
const kernelBegin = "[    0.000000] Linux version 6.1.0-27-amd64 (debian-kernel@lists.debian.org)\n"

// TestConsoleFindings has for each rule a console that it is about, and texts that only look like it.
func TestConsoleFindings(t *testing.T) {
	made := map[string]bool{}
	for _, tc := range []struct{ name, text, want string }{
		{"nothing", "", ""},
		{"a good boot", kernelBegin + "[  OK  ] Reached target multi-user.target - Multi-User System.\nweb-7 login: ", ""},
		{"Secure Boot", "BdsDxe: loading Boot0001 \"debian\"\nerror: bad shim signature.\n", "console-secure-boot-refused"},
		{"firmware", "BdsDxe: failed to load Boot0001 \"UEFI Misc Device\"\nBdsDxe: No bootable option or device was found.\n", "console-no-boot-device"},
		{"BIOS", "SeaBIOS (version 1.16.2-debian)\nBooting from Hard Disk...\nNo bootable device.\n", "console-no-boot-device"},
		{"GRUB", "error: no such device: 3a1d5d2e-6c0b.\nEntering rescue mode...\ngrub rescue> ", "console-loader-prompt"},
		{"initramfs cut", kernelBegin + "[    1.2] Initramfs unpacking failed: junk in compressed archive\n", "console-initramfs-damaged"},
		{"no root", kernelBegin + "ALERT!  UUID=deadbeef does not exist.  Dropping to a shell!\n(initramfs) ", "console-root-missing console-initramfs-prompt"},
		{"dracut", kernelBegin + "[  190.1] dracut-initqueue[301]: Warning: dracut-initqueue: timeout, still waiting for following initqueue hooks:\n", "console-root-missing"},
		{"no root for the kernel", kernelBegin + "[    2.4] Kernel panic - not syncing: VFS: Unable to mount root fs on unknown-block(0,0)\n", "console-root-missing"},
		{"no init", kernelBegin + "[    3.4] Kernel panic - not syncing: No working init found.  Try passing init= option\n", "console-init-missing"},
		{"a driver", kernelBegin + "[    3.4] Kernel panic - not syncing: Fatal exception in interrupt\n", "console-kernel-panic"},
		{"memory", kernelBegin + "[   30.4] Out of memory: Killed process 412 (dbus-daemon)\n", "console-out-of-memory"},
		{"machine check", kernelBegin + "[   30.4] mce: [Hardware Error]: CPU 2: Machine Check: 0 Bank 5\n", "console-hardware-error"},
		{"fsck", kernelBegin + "/dev/sda1: UNEXPECTED INCONSISTENCY; RUN fsck MANUALLY.\n", "console-file-system-damaged"},
		{"a disk", kernelBegin + "[   30.4] I/O error, dev sda, sector 2048 op 0x0:(READ)\n", "console-disk-errors"},
		{"fstab", kernelBegin + "[\x1b[0;1;31m TIME \x1b[0m] Timed out waiting for device \x1b[0;1;39m/dev/disk/by-uuid/deadbeef\x1b[0m.\n[DEPEND] Dependency failed for /data.\nYou are in emergency mode.\n",
			"console-emergency-mode console-mount-failed"},
		{"a full disk", kernelBegin + "[   30.4] systemd[1]: Failed to write: No space left on device\n", "console-disk-full"},
		{"sshd", kernelBegin + "[FAILED] Failed to start ssh.service - OpenBSD Secure Shell server.\n", "console-sshd-failed"},

		{"a panic before a good boot", kernelBegin + "[    3.4] Kernel panic - not syncing: Fatal exception\n" + kernelBegin + "web-7 login: ", ""},
		{"and a panic after one", kernelBegin + "web-7 login: \n[ 9000.1] Kernel panic - not syncing: Fatal exception\n", "console-kernel-panic"},
		{"GRUB found no theme and went on", "GNU GRUB  version 2.06\nerror: file `/boot/grub/theme.txt' not found.\n" + kernelBegin + "web-7 login: ", ""},
		{"words of a program", kernelBegin + "[    5.0] app[1]: kernel bug at startup, see (initramfs) and grub> in the manual\n", ""},
		{"Multi-User was reached and the kernel restarts", kernelBegin + "[  OK  ] Reached target Multi-User System.\n" + kernelBegin + "(initramfs) \n", "console-initramfs-prompt"},
		{"a memory control group", kernelBegin + "[   30.4] Memory cgroup out of memory: Killed process 9 (java)\n", ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			found := ConsoleFindings(tc.text)
			if got := idsOf(found); got != tc.want {
				t.Errorf("found %q, want %q", got, tc.want)
			}
			for _, f := range found {
				made[f.ID] = true
			}
		})
	}
	for _, r := range consoleRules {
		if !made[r.id] {
			t.Errorf("%s: no console makes it", r.id)
		}
	}
}

// TestConsoleBehindALogin: what comes behind the login of a boot did not hinder it, but for a panic.
func TestConsoleBehindALogin(t *testing.T) {
	const timeout = "[ TIME ] Timed out waiting for device /dev/disk/by-uuid/deadbeef.\n[DEPEND] Dependency failed for /data.\n"
	for _, tc := range []struct {
		name, text string
		want       diagnose.Severity
	}{
		{"no login", kernelBegin + timeout, diagnose.BlocksBoot},
		{"a device with nofail", kernelBegin + "web-7 login: \n" + timeout, diagnose.Degrades},
		{"the kernel writes on the prompt's line", kernelBegin + "web-7 login: [   35.1] IPv6: eth0: link becomes ready\n" + timeout, diagnose.Degrades},
		{"the next boot", kernelBegin + "web-7 login: \n" + kernelBegin + timeout, diagnose.BlocksBoot},
		{"a panic", kernelBegin + "web-7 login: \n[ 9000.1] Kernel panic - not syncing: Fatal exception\n", diagnose.BlocksBoot},
	} {
		found := ConsoleFindings(tc.text)
		if len(found) != 1 || found[0].Severity != tc.want {
			t.Errorf("%s: %+v", tc.name, found)
		}
	}
}

// TestStaysAtLogin: a login prompt counts if it is one of the newest boot, and nothing contradicts that people can log in.
func TestStaysAtLogin(t *testing.T) {
	const login = kernelBegin + "[  OK  ] Reached target multi-user.target - Multi-User System.\nweb-7 login: "
	for _, tc := range []struct {
		name, text string
		want       bool
	}{
		{"nothing", "", false},
		{"no login", kernelBegin, false},
		{"a login", login, true},
		{"a prompt that is written again, without the boot", "web-7 login: ", true},
		{"a session behind it", login + "ann\r\nPassword: \r\nann@web-7:~$ uptime\r\n", true},
		{"the next boot", login + "\n" + kernelBegin, false},
		{"a panic", login + "\n[ 9000.1] Kernel panic - not syncing: Fatal exception\n", false},
		{"emergency mode", login + "\nYou are in emergency mode.\n", false},
		{"a disk that cannot be read", login + "\n[   30.4] I/O error, dev sda, sector 2048 op 0x0:(READ)\n", false},
		{"a lockup", login + "\n[ 9000.1] watchdog: BUG: soft lockup - CPU#0 stuck for 22s! [app:7]\n", false},
		{"a stall", login + "\n[ 9000.1] rcu: INFO: rcu_sched self-detected stall on CPU\n", false},
		{"a hung task", login + "\n[ 9000.1] INFO: task jbd2/sda1-8:242 blocked for more than 120 seconds.\n", false},
		{"an oops", login + "\n[ 9000.1] Oops: 0002 [#1] SMP\n", false},
		{"a restart", login + "\n[ 9000.1] reboot: Restarting system\n", false},
		{"a shutdown", login + "\n[  OK  ] Reached target poweroff.target - System Power Off.\n", false},
		{"a lockup that passed", login + "\n[ 9000.1] watchdog: BUG: soft lockup - CPU#0 stuck for 22s! [app:7]\nweb-7 login: ", true},
		{"sshd that failed before the prompt", kernelBegin + "[FAILED] Failed to start ssh.service - OpenBSD Secure Shell server.\nweb-7 login: ", false},
		{"sshd that failed in the boot before", kernelBegin + "[FAILED] Failed to start ssh.service - OpenBSD Secure Shell server.\n" + login, true},
	} {
		if got := StaysAtLogin(tc.text); got != tc.want {
			t.Errorf("%s: StaysAtLogin is %v, want %v; console:\n%s", tc.name, got, tc.want, tc.text)
		}
	}
}

// TestHostileConsole: escape sequences, secrets and length do not get into a report.
func TestHostileConsole(t *testing.T) {
	line := "Kernel panic - not syncing: \x1b]0;title\x07\x1b[2Jpassword=hunter2 \x9b31m\x00" + strings.Repeat("x", 1<<20)
	found := ConsoleFindings(strings.Repeat("a\r\n", 1<<18) + kernelBegin + "[    1.0] " + strings.Repeat("\x1b[31m", 100) + line[:2000])
	if len(found) != 1 || len(found[0].Evidence) != 1 {
		t.Fatalf("%+v", found)
	}
	text := found[0].Evidence[0].Text
	if strings.ContainsAny(text, "\x1b\x07\x00\r") || strings.Contains(text, "hunter2") || len(text) > 400 {
		t.Errorf("%q", text)
	}
	if many := ConsoleFindings(kernelBegin + strings.Repeat("Kernel panic - not syncing: x\n", 1000)); len(many[0].Evidence) != maxConsoleEvidence {
		t.Errorf("%d lines of evidence", len(many[0].Evidence))
	}
}

// TestConsoleIsASymptom: what lies on the disks is the cause, and what the console shows follows from it.
func TestConsoleIsASymptom(t *testing.T) {
	console := ConsoleFindings(kernelBegin + "(initramfs) \n")
	disk := diagnose.Finding{ID: "fstab-device-missing", Stage: diagnose.Initramfs, Severity: diagnose.BlocksBoot, Confidence: 0.6, Evidence: []diagnose.Evidence{{Kind: diagnose.FromFile}}}
	if _, verdict := diagnose.Judge(append(console, disk)); verdict.Finding != disk.ID || len(verdict.Consequences) != 1 {
		t.Errorf("%+v", verdict)
	}
	later := disk
	later.Stage = diagnose.Target
	if _, verdict := diagnose.Judge(append(console, later)); verdict.Finding != disk.ID {
		t.Errorf("%+v", verdict)
	}
	if _, verdict := diagnose.Judge(console); verdict.Finding != "console-initramfs-prompt" {
		t.Errorf("%+v", verdict)
	}
}

func FuzzConsole(f *testing.F) {
	f.Add(kernelBegin + "\x1b[31m(initramfs) \n")
	f.Fuzz(func(t *testing.T, text string) {
		for _, found := range ConsoleFindings(text) {
			for _, e := range found.Evidence {
				if strings.ContainsAny(e.Text, "\x1b\n") {
					t.Errorf("%q", e.Text)
				}
			}
		}
	})
}
