package repair

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"salvor/agent/examine"
	"salvor/agent/sandbox"
	"salvor/diagnose"
	"salvor/problem"
	"salvor/repair"
	"salvor/test/must"
)

// TestMain is the first process in the namespaces of a program, as salvor-agent is.
func TestMain(m *testing.M) {
	if len(os.Args) == 2 && os.Args[1] == sandbox.Command {
		os.Exit(sandbox.RunInSystem(os.Stderr))
	}
	os.Exit(m.Run())
}

// newSandboxed edits a folder with a shell in it, whose programs run in a real sandbox.
func newSandboxed(t *testing.T) (*systemEditor, string) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("namespaces are made by root in the ramdisk")
	}
	busybox, err := exec.LookPath("busybox")
	if err != nil {
		t.Skip("no busybox")
	}
	e, dir := newTestEditor(t)
	for _, folder := range []string{"proc", "sys", "dev", "run", "tmp", "bin", "boot", "var/tmp"} {
		must.OK(t, os.MkdirAll(filepath.Join(dir, folder), 0o755))
	}
	must.OK(t, os.WriteFile(filepath.Join(dir, "bin/busybox"), must.Get(os.ReadFile(busybox))(t), 0o755))
	m := &examine.MountedSystem{System: e.mounted.System, Place: dir}
	made := must.Get(newEditor(t.Context(), m, sandbox.New(slog.New(slog.DiscardHandler), 256<<20)))(t)
	t.Cleanup(func() { _ = made.close() })
	made.consent = diagnose.ConsentBoot
	if _, err := made.Run(t.Context(), repair.Program{Command: []string{"/bin/busybox", "true"}}); err != nil && strings.Contains(err.Error(), "make namespaces") {
		t.Skipf("this machine lets nobody make namespaces: %v", err)
	}
	return made, dir
}

// TestProgramOfTheSystem: it changes files of its system, which are noted, and what it makes is no part of the digest.
func TestProgramOfTheSystem(t *testing.T) {
	t.Parallel()
	e, dir := newSandboxed(t)
	must.OK(t, os.WriteFile(filepath.Join(dir, "boot/old"), []byte("old"), 0o600))
	output, err := e.Run(t.Context(), repair.Program{
		Command: []string{"/bin/busybox", "sh", "-c", "echo new >/boot/new; chown 7:8 /boot/new; rm /boot/old; echo $LC_ALL $X; echo token=abcdef; ls /; test -c /dev/null"}, Environment: []string{"X=y"}, Changes: []string{"/boot", "/not-there"},
	})
	if err != nil || !strings.Contains(output, "C y") || strings.Contains(output, "abcdef") {
		t.Fatalf("%v: %s", err, output)
	}
	changes := planOf(t, e)
	if c := changes["/boot/new"]; c.Before != nil || c.After == nil || c.After.UID != 7 || c.After.GID != 8 || !strings.HasPrefix(c.MadeBy, "/bin/busybox sh") {
		t.Errorf("%+v", c)
	}
	if c := changes["/boot/old"]; c.Before == nil || c.After != nil {
		t.Errorf("%+v", c)
	}
	if len(e.commands) != 2 || e.commands[1].Exit != 0 {
		t.Errorf("commands %+v", e.commands)
	}
}

// TestProgramScope: what a program may write is what its changes name, in the mounts below them too; it has /tmp and /var/tmp for itself.
func TestProgramScope(t *testing.T) {
	t.Parallel()
	e, dir := newSandboxed(t)
	must.OK(t, os.WriteFile(filepath.Join(dir, "etc/one"), []byte("before"), 0o644))
	must.OK(t, os.WriteFile(filepath.Join(dir, "etc/two"), []byte("before"), 0o644))
	const script = "echo after >/etc/one && mkdir -p /boot/a/b && echo x >/boot/a/b/c && echo x >/tmp/x && echo x >/var/tmp/x && ! echo after >/etc/two && ! rm /etc/one"
	if output, err := e.Run(t.Context(), repair.Program{Command: []string{"/bin/busybox", "sh", "-c", script}, Changes: []string{"/etc/one", "/boot"}}); err != nil {
		t.Errorf("%v: %s", err, output)
	}
	if got := slices.Sorted(maps.Keys(planOf(t, e))); !slices.Equal(got, []string{"/boot/a", "/boot/a/b", "/boot/a/b/c", "/etc/one"}) {
		t.Errorf("changes %q", got)
	}
	for _, name := range []string{"tmp/x", "var/tmp/x"} {
		if _, err := os.Lstat(filepath.Join(dir, name)); err == nil {
			t.Errorf("/%s is in the system", name)
		}
	}
}

// TestBootBlocks: what a program writes to the boot blocks of a disk is in the plan, and nothing else of the disk.
func TestBootBlocks(t *testing.T) {
	t.Parallel()
	e, dir := newTestEditor(t)
	disk := filepath.Join(dir, "disk")
	must.OK(t, os.WriteFile(disk, make([]byte, 64<<10), 0o600))
	e.mounted.Devices = []diagnose.Device{
		{Path: "/dev/vda", Kind: diagnose.DiskDevice, Size: 64 << 10},
		{Path: "/dev/vda1", Kind: diagnose.PartitionDevice, Parents: []string{"/dev/vda"}, PartStart: 16 << 10, Size: 8 << 10, PartType: strings.ToUpper(biosBootType)},
		{Path: "/dev/vda2", Kind: diagnose.PartitionDevice, Parents: []string{"/dev/vda"}, PartStart: 32 << 10, Size: 16 << 10},
	}
	e.node = func(string) (string, error) { return disk, nil }
	e.nodes = map[string]string{"/dev/vda": disk, "/dev/vda2": "/dev/loop9"}
	write := func(offset int64) {
		t.Helper()
		must.OK(t, writeRange(disk, offset, []byte("code")))
	}
	var shown map[string]string
	e.run = func(_ context.Context, _ repair.Program, scope *programScope) (string, int, error) {
		shown = scope.nodes
		if len(scope.places) != 0 || !slices.Equal(scope.writableNodes, []string{disk}) {
			t.Errorf("writable %q and %q", scope.places, scope.writableNodes)
		}
		write(0)
		write(17 << 10)
		return "", 0, nil
	}
	install := repair.Program{Command: []string{"/sbin/grub-install", "/dev/vda"}, Changes: []string{"/dev/vda"}}
	must.Get(e.Run(t.Context(), install))(t)
	if !maps.Equal(shown, map[string]string{"/dev/vda": disk}) {
		t.Errorf("it is shown %v", shown)
	}
	var got []string
	for _, b := range e.blocks {
		got = append(got, fmt.Sprintf("%s %d+%d %s %v", b.Device, b.Offset, b.Length, b.MadeBy, b.Findings))
		if b.Before == b.After || b.Before != hashText(make([]byte, b.Length)) {
			t.Errorf("%+v", b)
		}
	}
	slices.Sort(got)
	if want := []string{"/dev/vda 0+16384 /sbin/grub-install /dev/vda [some-finding]", "/dev/vda 16384+8192 /sbin/grub-install /dev/vda [some-finding]"}; !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
	for name, p := range map[string]repair.Program{
		"a partition": {Command: install.Command, Changes: []string{"/dev/vda2"}}, "no device": {Command: install.Command, Devices: []string{"/dev/vdz"}}, "the whole system": {Command: install.Command, Changes: []string{"/"}},
	} {
		if _, err := e.Run(t.Context(), p); err == nil {
			t.Errorf("%s: it may", name)
		}
	}
}

// TestProgramSeesItsDevices in /sys, and no others, and changes nothing there.
func TestProgramSeesItsDevices(t *testing.T) {
	t.Parallel()
	e, dir := newSandboxed(t)
	var loops []string
	for _, name := range []string{"one", "two"} {
		file := filepath.Join(t.TempDir(), name)
		must.OK(t, os.WriteFile(file, make([]byte, 1<<20), 0o600))
		out, err := exec.Command("losetup", "--find", "--show", file).CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		loop := strings.TrimSpace(string(out))
		t.Cleanup(func() { must.OK(t, exec.Command("losetup", "--detach", loop).Run()) })
		loops = append(loops, filepath.Base(loop))
	}
	e.nodes = map[string]string{"/dev/vda": "/dev/" + loops[0]}
	script := `set -e
test "$(ls /sys/devices/virtual/block)" = ` + loops[0] + `
test "$(cat /sys/dev/block/*/size)" = 2048
grep " /sys/devices/virtual/block/` + loops[0] + ` ro,nosuid,nodev,noexec" /proc/self/mountinfo
! { echo 128 >/sys/devices/virtual/block/` + loops[0] + `/queue/read_ahead_kb; } 2>/tmp/why
grep -i "read-only" /tmp/why`
	if output, err := e.Run(t.Context(), repair.Program{Command: []string{"/bin/busybox", "sh", "-c", script}, Devices: []string{"/dev/vda"}}); err != nil {
		t.Errorf("%v: %s", err, output)
	}
	// A system without the folder has its programs run too.
	must.OK(t, os.Remove(filepath.Join(dir, "sys")))
	must.Get(e.Run(t.Context(), repair.Program{Command: []string{"/bin/busybox", "true"}, Devices: []string{"/dev/vda"}}))(t)
}

// TestProgramFindsDevices by the names of the machine and by their UUIDs, and by nothing else that a disk holds.
func TestProgramFindsDevices(t *testing.T) {
	t.Parallel()
	e, _ := newTestEditor(t)
	e.mounted.Devices = []diagnose.Device{
		{Path: "/dev/vda", Kind: diagnose.DiskDevice, UUID: "../../etc/passwd"},
		{Path: "/dev/vda1", Kind: diagnose.PartitionDevice, UUID: "5A5A-0001", PartUUID: "7c1f5d0a-6a3e-4d0c-9c55-0b6f0d1b7c11"},
		{Path: "/dev/vda2", Kind: diagnose.PartitionDevice, UUID: "not-shown"},
	}
	e.nodes = map[string]string{"/dev/vda": "/dev/loop1", "/dev/vda1": "/dev/loop1p1", "/dev/vda2": "/dev/loop1p2"}
	var shown map[string]string
	e.run = func(_ context.Context, _ repair.Program, scope *programScope) (string, int, error) {
		shown = scope.nodes
		return "", 0, nil
	}
	must.Get(e.Run(t.Context(), repair.Program{Command: []string{"/sbin/grub-probe"}, Devices: []string{"/dev/vda", "/dev/vda1"}}))(t)
	want := map[string]string{"/dev/vda": "/dev/loop1", "/dev/vda1": "/dev/loop1p1", "/dev/disk/by-uuid/5A5A-0001": "/dev/loop1p1",
		"/dev/disk/by-partuuid/7c1f5d0a-6a3e-4d0c-9c55-0b6f0d1b7c11": "/dev/loop1p1"}
	if !maps.Equal(shown, want) {
		t.Errorf("it is shown %v", shown)
	}
}

// TestProgramEndsWithItsChildren, also where it takes too long.
func TestProgramEndsWithItsChildren(t *testing.T) {
	t.Parallel()
	e, dir := newSandboxed(t)
	fifo := filepath.Join(dir, "boot/fifo")
	must.OK(t, unix.Mkfifo(fifo, 0o600))
	reader := must.Get(os.OpenFile(fifo, os.O_RDONLY|unix.O_NONBLOCK, 0))(t)
	defer reader.Close()
	const child = "exec 3>/boot/fifo; echo x >&3; /bin/busybox sleep 600 & exec 3>&-; "
	for name, c := range map[string]struct {
		script string
		limit  time.Duration
		fails  bool
	}{"left behind": {child, time.Minute, false}, "too long": {child + "wait", 15 * time.Second, true}} {
		_, err := e.Run(t.Context(), repair.Program{Command: []string{"/bin/busybox", "sh", "-c", c.script}, Changes: []string{"/boot"}, Limit: c.limit})
		if (err != nil) != c.fails {
			t.Errorf("%s: %v", name, err)
		}
		// The kernel has ended all processes of a namespace before its first one is waited for: nobody has the pipe open.
		b := make([]byte, 10)
		if n, err := unix.Read(int(reader.Fd()), b); n != 2 || err != nil {
			t.Errorf("%s: the child did not start: %d, %v", name, n, err)
		}
		if n, err := unix.Read(int(reader.Fd()), b); n != 0 || err != nil {
			t.Errorf("%s: a child of the program goes on: %d, %v", name, n, err)
		}
	}
}

// TestProgramWritesToNamedDevices only, and it reads the others that it is shown. Without Landlock it does not run.
func TestProgramWritesToNamedDevices(t *testing.T) {
	t.Parallel()
	e, _ := newSandboxed(t)
	nodes := map[string]string{}
	for _, name := range []string{"/dev/vda", "/dev/vdb"} { // files in the place of nodes, which mounts show in the same way
		f := must.Get(os.CreateTemp("/dev", "salvor-test-"))(t)
		t.Cleanup(func() { _ = os.Remove(f.Name()) })
		must.Get(f.Write(make([]byte, 4096)))(t)
		must.OK(t, f.Close())
		nodes[name] = f.Name()
		e.mounted.Devices = append(e.mounted.Devices, diagnose.Device{Path: name, Kind: diagnose.DiskDevice, Size: 4096})
	}
	e.nodes = nodes
	e.node = func(device string) (string, error) { return nodes[device], nil }
	version, _, errno := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, 0, 0, unix.LANDLOCK_CREATE_RULESET_VERSION)
	hasLandlock := errno == 0 && version >= 2
	t.Logf("the kernel has Landlock: %v", hasLandlock)
	script := "echo code 1<>/dev/vda && cat /dev/vdb >/tmp/x && mkdir /boot/a && mv /boot/a /boot/b && echo x >/boot/c && mv /boot/c /boot/b/c"
	script += " && ! echo code 1<>/dev/vdb"
	program := repair.Program{Command: []string{"/bin/busybox", "sh", "-c", script}, Changes: []string{"/boot", "/dev/vda"}, Devices: []string{"/dev/vdb"}}
	output, err := e.Run(t.Context(), program)
	if !hasLandlock {
		if !problem.Is(err, problem.Unavailable) || !strings.Contains(err.Error(), "Landlock") || len(e.blocks) != 0 {
			t.Errorf("without Landlock it writes to a device: %v, %+v", err, e.blocks)
		}
		return
	}
	if err != nil {
		t.Errorf("%v: %s", err, output)
	}
	if len(e.blocks) != 1 || e.blocks[0].Device != "/dev/vda" {
		t.Errorf("blocks %+v", e.blocks)
	}
}
