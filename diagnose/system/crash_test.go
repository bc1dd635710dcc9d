package system

import (
	"fmt"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"salvor/diagnose"
)

// crashLog is the end of the log of a kernel that dies after so many seconds, as pstore writes it.
func crashLog(seconds float64, reason, code string) string {
	return fmt.Sprintf("Panic#1 Part1\n<4>[%12.6f] Call Trace:\n<4>[%12.6f] RIP: 0010:%s+0x1f/0x40 [mpt3sas]\n<0>[%12.6f] Kernel panic - not syncing: %s\n"+
		"<0>[%12.6f] ---[ end Kernel panic - not syncing: %s ]---\n", seconds, seconds, code, seconds, reason, seconds, reason)
}

// crashedAt has the firmware hold a crash of so many minutes before now.
func crashedAt(in *installed, minutes int, text string) {
	in.Firmware.Crashes = append(in.Firmware.Crashes, diagnose.CrashRecord{At: in.Now.Add(time.Duration(-minutes) * time.Minute), Text: text})
}

// kernelLog is the log of a boot as rsyslog writes it.
func kernelLog(lines ...string) string {
	out := "Nov 26 11:00:01 web-7 kernel: [    0.000000] Linux version 6.1.0-27-amd64 (debian-kernel@lists.debian.org)\n"
	for _, line := range lines {
		out += "Nov 26 11:00:09 web-7 kernel: " + line + "\n"
	}
	return out
}

func init() {
	type change = func(*testing.T, *installed)
	crashes := func(text ...string) change {
		return func(_ *testing.T, in *installed) {
			for i, t := range text {
				crashedAt(in, 60-10*i, t)
			}
		}
	}
	logged := func(text string, more ...func(*installed)) change {
		return func(_ *testing.T, in *installed) {
			in.write("/var/log/kern.log", text)
			for _, m := range more {
				m(in)
			}
		}
	}
	storedAt := func(in *installed, name, text string, minutes int) {
		in.files[strings.TrimPrefix(name, "/")] = &fstest.MapFile{Data: []byte(text), Mode: 0o600, Sys: &diagnose.Owner{}, ModTime: in.Now.Add(time.Duration(-minutes) * time.Minute)}
	}
	noSwap := func(in *installed) { in.add("/etc/fstab", "UUID="+deadUUID+" none swap sw,nofail 0 0\n") }
	small := func(in *installed) { in.Memory = 512 * mib }
	died := crashLog(4.2, "Fatal exception in interrupt", "mpt3sas_base_attach")
	const killed = "[   12.500000] Out of memory: Killed process 412 (dbus-daemon) total-vm:1234kB, anon-rss:800kB"
	ruleCases = append(ruleCases, []ruleCase{
		{"twice in the firmware's variables", "debian-uefi", "kernel-panic-at-boot", diagnose.BlocksBoot, crashes(died, died)},
		{"moved by systemd-pstore, and again", "debian-bios", "kernel-panic-at-boot", diagnose.BlocksBoot, func(_ *testing.T, in *installed) {
			storedAt(in, "/var/lib/systemd/pstore/1764150000/dmesg.txt", died, 60)
			storedAt(in, "/var/lib/systemd/pstore/4bd1b1c0a7b14b2f9b0f7d2f4f1f2a3c/1764151000/dmesg.txt", died, 40)
		}},
		{"kdump of Debian and of RHEL", "debian-bios", "kernel-panic-at-boot", diagnose.BlocksBoot, func(_ *testing.T, in *installed) {
			storedAt(in, "/var/crash/202611261100/dmesg.202611261100", died, 60)
			storedAt(in, "/var/crash/127.0.0.1-2026-11-26-11:20:00/vmcore-dmesg.txt", died, 40)
		}},
		{"and a good boot after that", "debian-uefi", "kernel-panic-at-boot", nearMiss, func(t *testing.T, in *installed) {
			crashes(died, died)(t, in)
			storedAt(in, "/var/log/wtmp", "x", 1)
		}},
		{"once", "debian-uefi", "kernel-panic-at-boot", nearMiss, crashes(died)},
		{"at two places", "debian-uefi", "kernel-panic-at-boot", nearMiss, crashes(died, crashLog(3, "Fatal exception", "nvme_probe"))},
		{"after days of work", "debian-uefi", "kernel-panic-at-boot", nearMiss, crashes(crashLog(190000, "Fatal exception", "x"), crashLog(200000, "Fatal exception", "x"))},
		{"once", "debian-uefi", "kernel-crash-recorded", diagnose.Degrades, crashes(died)},
		{"an oops that the system survived", "debian-uefi", "kernel-crash-recorded", nearMiss, crashes("Oops#1 Part1\n<4>[  100.000000] BUG: kernel NULL pointer dereference\n")},
		{"long ago", "debian-uefi", "kernel-crash-recorded", nearMiss, func(t *testing.T, in *installed) {
			crashes(died)(t, in)
			storedAt(in, "/var/log/journal/4bd1b1c0a7b14b2f9b0f7d2f4f1f2a3c/system.journal", "x", 1)
		}},

		{"without its swap", "debian-bios", "out-of-memory-at-boot", diagnose.BlocksBoot, logged(kernelLog(killed), noSwap)},
		{"of 512 MiB", "debian-bios", "out-of-memory-at-boot", diagnose.BlocksBoot, logged(kernelLog(killed), small)},
		{"of 8 GiB", "debian-bios", "out-of-memory-at-boot", diagnose.Degrades, logged(kernelLog(killed))},
		{"nothing left to end", "debian-uefi", "out-of-memory-at-boot", diagnose.BlocksBoot, crashes(crashLog(9, "System is deadlocked on memory", "out_of_memory"))},
		{"in an earlier boot", "debian-bios", "out-of-memory-at-boot", nearMiss, logged(kernelLog(killed)+kernelLog("[    1.000000] all is well"), small)},
		{"after days of work", "debian-bios", "out-of-memory-at-boot", nearMiss, logged(kernelLog("[190000.000000] Out of memory: Killed process 9 (java)"), small)},
		{"in a control group", "debian-bios", "out-of-memory-at-boot", nearMiss, logged(kernelLog("[   12.500000] Memory cgroup out of memory: Killed process 9 (java)"), small)},
		{"a program that says so", "debian-bios", "out-of-memory-at-boot", nearMiss, logged(kernelLog("[   12.500000] systemd[1]: Out of memory: Killed process 9 (java)"), small)},
	}...)
}

// TestPanicStages: what a kernel does when it finds no root or no init comes after the cause of it.
func TestPanicStages(t *testing.T) {
	for reason, want := range map[string]diagnose.Stage{
		"VFS: Unable to mount root fs on unknown-block(0,0)": diagnose.Root,
		"Attempted to kill init! exitcode=0x00007f00":        diagnose.Init,
		"No working init found.  Try passing init= option":   diagnose.Init,
		"Fatal exception in interrupt":                       diagnose.Kernel,
	} {
		if got := panicStage(reason); got != want {
			t.Errorf("%s: %s, want %s", reason, got, want)
		}
	}
	in := debianUEFI()
	in.remove("/boot/initrd.img-" + debian12)
	for range 2 {
		crashedAt(in, 60, crashLog(2, "VFS: Unable to mount root fs on unknown-block(0,0)", "mount_block_root"))
	}
	if _, verdict := diagnose.Judge(findingsOf(t, in)); verdict.Finding != "initramfs-missing" {
		t.Errorf("the verdict names %s", verdict.Finding)
	}
}

func FuzzParseCrash(f *testing.F) {
	f.Add(crashLog(4.2, "Fatal exception", "x"))
	f.Fuzz(func(t *testing.T, text string) {
		if c, ok := parseCrash(text); ok && (len(c.panicLine) > 1200 || len(c.code) > 100) {
			t.Errorf("%d bytes of a reason", len(c.panicLine))
		}
	})
}
