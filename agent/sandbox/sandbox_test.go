package sandbox

import (
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"salvor/problem"
	"salvor/test/must"
)

// TestMain is the first process in the namespaces of a program, as salvor-agent is.
func TestMain(m *testing.M) {
	if len(os.Args) == 2 && os.Args[1] == Command {
		os.Exit(RunInSystem(os.Stderr))
	}
	if len(os.Args) == 2 && confinedPrograms[os.Args[1]] != nil {
		confinedPrograms[os.Args[1]]()
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// testSystem is a folder with a shell in it, whose programs run in a real sandbox.
type testSystem struct {
	*Runner
	dir string
}

// run runs a program of the system; an exit status other than 0 is an error.
func (s *testSystem) run(t *testing.T, o Order) (string, error) {
	t.Helper()
	o.Place = s.dir
	output, exit, err := s.Run(t.Context(), o)
	if err == nil && exit != 0 {
		err = fmt.Errorf("exit status %d: %s", exit, output)
	}
	return output, err
}

func newSystem(t *testing.T) (*testSystem, string) {
	t.Helper()
	return newSystemIn(t, mountedGroups())
}

// newSystemIn makes the control groups of its programs in a folder.
func newSystemIn(t *testing.T, groups string) (*testSystem, string) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("namespaces are made by root in the ramdisk")
	}
	busybox, err := exec.LookPath("busybox")
	if err != nil {
		t.Skip("no busybox")
	}
	dir := t.TempDir()
	for _, folder := range []string{"proc", "sys", "dev", "run", "tmp", "bin", "etc", "boot", "var/tmp"} {
		must.OK(t, os.MkdirAll(filepath.Join(dir, folder), 0o755))
	}
	must.OK(t, os.WriteFile(filepath.Join(dir, "bin/busybox"), must.Get(os.ReadFile(busybox))(t), 0o755))
	s := &testSystem{&Runner{log: slog.New(slog.DiscardHandler), memory: 256 << 20, groups: groups}, dir}
	if _, err := s.run(t, Order{Command: []string{"/bin/busybox", "true"}}); err != nil && strings.Contains(err.Error(), "make namespaces") {
		t.Skipf("this machine lets nobody make namespaces: %v", err)
	}
	return s, dir
}

// confinedPrograms are programs that this test executable is inside of a sandbox, by its argument.
var confinedPrograms = map[string]func(){"list-sockets": listSockets, "start-threads": startThreads}

// lastFamily is beyond the families of sockets that Linux knows.
const lastFamily = 64

// listSockets prints the families of which a socket or a pair of sockets can be made, or whose refusal is not the sandbox's.
func listSockets() {
	for family := range lastFamily {
		single, pair := false, false
		for _, kind := range []int{unix.SOCK_STREAM, unix.SOCK_DGRAM, unix.SOCK_RAW, unix.SOCK_SEQPACKET} {
			_, err := unix.Socket(family, kind, 0)
			single = single || err != unix.EAFNOSUPPORT
			_, err = unix.Socketpair(family, kind, 0)
			pair = pair || err != unix.EAFNOSUPPORT
		}
		if single {
			fmt.Println("socket", family)
		}
		if pair {
			fmt.Println("pair", family)
		}
	}
}

// startThreads starts more threads than a program may have.
func startThreads() {
	for range maxProcesses + 100 {
		go func() {
			runtime.LockOSThread()
			_ = unix.Nanosleep(&unix.Timespec{Sec: 600}, nil)
		}()
	}
	time.Sleep(time.Minute)
}

// addTester puts this test executable into a system.
func addTester(t *testing.T, dir string) {
	t.Helper()
	own := must.Get(os.ReadFile("/proc/self/exe"))(t)
	must.OK(t, os.WriteFile(filepath.Join(dir, "bin/tester"), own, 0o755))
}

// TestProgramHasNoForeignDescriptors: a descriptor that the agent's parent left open does not reach a program of the system.
func TestProgramHasNoForeignDescriptors(t *testing.T) {
	t.Parallel()
	e, _ := newSystem(t)
	var pipe [2]int
	must.OK(t, unix.Pipe2(pipe[:], 0)) // without O_CLOEXEC, as a careless parent leaves one
	const foreign = 200
	must.OK(t, unix.Dup3(pipe[1], foreign, 0))
	t.Cleanup(func() {
		for _, fd := range []int{pipe[0], pipe[1], foreign} {
			_ = unix.Close(fd)
		}
	})
	// The shell opens the folder that it lists as 3.
	const script = `for f in /proc/self/fd/*; do case "${f##*/}" in 0|1|2|3) ;; *) readlink "$f" && echo "open: ${f##*/}" ;; esac; done`
	output, err := e.run(t, Order{Command: []string{"/bin/busybox", "sh", "-c", script}})
	if err != nil || strings.Contains(output, "open: ") {
		t.Errorf("descriptors of a program: want 0, 1 and 2; got %q, %v", output, err)
	}
}

// TestProgramMakesKnownSockets: a program makes sockets of the families that stay in its network namespace, and no others.
func TestProgramMakesKnownSockets(t *testing.T) {
	t.Parallel()
	e, dir := newSystem(t)
	addTester(t, dir)
	output := must.Get(e.run(t, Order{Command: []string{"/bin/tester", "list-sockets"}}))(t)
	got := strings.Split(strings.TrimSpace(output), "\n")
	slices.Sort(got)
	var want []string
	for _, family := range socketFamilies {
		want = append(want, fmt.Sprint("socket ", family), fmt.Sprint("pair ", family))
	}
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("families of sockets: want %q, got %q", want, got)
	}
}

// TestProgramProcesses: without control groups, a program that starts more processes or threads than it may is ended, and so is a loop of forks.
func TestProgramProcesses(t *testing.T) {
	t.Parallel()
	e, dir := newSystemIn(t, "")
	addTester(t, dir)
	for name, command := range map[string][]string{
		"processes": {"/bin/busybox", "sh", "-c", "i=0; while [ $i -lt 600 ]; do /bin/busybox sleep 600 & i=$((i+1)); done; wait"},
		"forks":     {"/bin/busybox", "sh", "-c", "bomb() { bomb | bomb & bomb; }; bomb"},
		"threads":   {"/bin/tester", "start-threads"},
	} {
		_, err := e.run(t, Order{Command: command, Limit: time.Minute})
		if !problem.Is(err, problem.Unavailable) || !strings.Contains(err.Error(), tooManyProcesses) {
			t.Errorf("%s: want an error that says %q, got %v", name, tooManyProcesses, err)
		}
	}
	const script = "i=0; while [ $i -lt 200 ]; do /bin/busybox sleep 600 & i=$((i+1)); done; exit 124"
	if _, err := e.run(t, Order{Command: []string{"/bin/busybox", "sh", "-c", script}, Limit: time.Minute}); err == nil || !strings.Contains(err.Error(), "exit status 1:") {
		t.Errorf("200 processes and the program's own status 124: want exit status 1, got %v", err)
	}
}

// TestProgramIsConfined: it can do nothing to the ramdisk and reach nobody, whatever it tries.
func TestProgramIsConfined(t *testing.T) {
	t.Parallel()
	e, dir := newSystem(t)
	mark := filepath.Join(t.TempDir(), "mark")
	must.OK(t, os.WriteFile(mark, []byte("x"), 0o600))
	for name, script := range map[string]string{
		"mount":      "mkdir -p /tmp/m && mount -t tmpfs none /tmp/m",
		"unmount":    "umount /proc",
		"devices":    "mknod /tmp/sda b 8 0",
		"chroot":     "chroot / /bin/busybox true",
		"reboot":     "reboot -f",
		"outside":    "cat " + mark,
		"network":    "ip link set lo up",
		"host name":  "hostname x",
		"sysrq":      "echo h >/proc/sysrq-trigger",
		"sysfs":      "mount -o remount,rw /sys",
		"registers":  "any /sys/bus /sys/class /sys/firmware /sys/kernel /sys/devices/* /sys/dev/block/*",
		"new in sys": "mkdir /sys/x",
		"sysctl":     "echo 1 >/proc/sys/vm/drop_caches",
		"namespace":  "unshare -m true",
		"modules":    "insmod /bin/busybox",
		"swap":       "swapon /bin/busybox",
		"clock":      "! date -s 2001-01-01 2>&1 | grep -q permitted",
		"other pid":  "test -e /proc/" + "2000000000 || test $(ls -d /proc/[0-9]* | wc -l) -gt 8",
		"disks":      "any /dev/sd* /dev/vd* /dev/nvme* /sys/block",
		"exit":       "exit 125",
		"new file":   "echo x >/etc/x",
		"new name":   "mv /bin/busybox /bin/other",
		"mode":       "chmod 700 /etc",
		"remount":    "mount -o remount,rw /",
		"overlays":   "any /dev/loop* /dev/dm-*",
	} {
		script = `any() { for one; do ! test -e "$one" || return 0; done; return 1; }; ` + script
		if output, err := e.run(t, Order{Command: []string{"/bin/busybox", "sh", "-c", script}, Limit: time.Minute}); err == nil {
			t.Errorf("%s: it could: %s", name, output)
		}
	}
	if _, err := os.Stat(filepath.Join(dir, "bin/busybox")); err != nil {
		t.Errorf("the system is gone: %v", err)
	}
	for _, name := range []string{"etc/x", "bin/other"} {
		if _, err := os.Lstat(filepath.Join(dir, name)); err == nil {
			t.Errorf("/%s was made in the system", name)
		}
	}
}

// TestProgramGroup: with control groups of version 2, a program with all its children and files has one bound of memory and one of processes.
// Without them this test says so, and shows the files of a group in a folder.
func TestProgramGroup(t *testing.T) {
	t.Parallel()
	root := mountedGroups()
	if root == "" {
		t.Log("this machine has no control groups that bound memory and processes: only each process for itself is bounded")
		g := must.Get(makeGroup(t.TempDir(), 123<<20))(t)
		for name, want := range map[string]string{"memory.max": "128974848", "memory.swap.max": "0", "memory.oom.group": "1", "pids.max": "512"} {
			if got := must.Get(os.ReadFile(filepath.Join(g.folder, name)))(t); string(got) != want {
				t.Errorf("%s: %q", name, got)
			}
		}
		if err := g.exceeded(1); err != nil {
			t.Errorf("nothing was exceeded: %v", err)
		}
		must.OK(t, os.WriteFile(filepath.Join(g.folder, "pids.events"), []byte("max 3\n"), 0o644))
		if err := g.exceeded(1); !problem.Is(err, problem.Unavailable) {
			t.Errorf("processes: %v", err)
		}
		must.OK(t, os.WriteFile(filepath.Join(g.folder, "memory.events"), []byte("low 0\noom 1\noom_kill 1\n"), 0o644))
		if err := g.exceeded(5 << 20); !problem.Is(err, problem.Unavailable) || !strings.Contains(err.Error(), "5 MiB") {
			t.Errorf("memory: %v", err)
		}
		return
	}
	t.Logf("control groups at %s bound programs", root)
	own := must.Get(os.MkdirTemp(root, "salvor-test-"))(t) // tests that run beside this one have their groups elsewhere
	t.Cleanup(func() { must.OK(t, unix.Rmdir(own)) })
	must.OK(t, enableControllers(own))
	e, _ := newSystemIn(t, own)
	for name, script := range map[string]string{
		"files":     "dd if=/dev/zero of=/tmp/x bs=1M count=240 && dd if=/dev/zero of=/run/x bs=1M count=240",
		"processes": "i=0; while [ $i -lt 600 ]; do /bin/busybox sleep 60 & i=$((i+1)); done; wait",
	} {
		if _, err := e.run(t, Order{Command: []string{"/bin/busybox", "sh", "-c", script}, Limit: time.Minute}); !problem.Is(err, problem.Unavailable) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if left := must.Get(filepath.Glob(filepath.Join(own, "salvor-repair-*")))(t); len(left) != 0 {
		t.Errorf("left %q", left)
	}
}
