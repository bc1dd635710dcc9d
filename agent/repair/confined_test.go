package repair

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"salvor/problem"
	"salvor/repair"
	"salvor/test/must"
)

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
	e, _ := newSandboxed(t)
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
	output, err := e.Run(t.Context(), repair.Program{Command: []string{"/bin/busybox", "sh", "-c", script}})
	if err != nil || strings.Contains(output, "open: ") {
		t.Errorf("descriptors of a program: want 0, 1 and 2; got %q, %v", output, err)
	}
}

// TestProgramMakesKnownSockets: a program makes sockets of the families that stay in its network namespace, and no others.
func TestProgramMakesKnownSockets(t *testing.T) {
	t.Parallel()
	e, dir := newSandboxed(t)
	addTester(t, dir)
	output := must.Get(e.Run(t.Context(), repair.Program{Command: []string{"/bin/tester", "list-sockets"}}))(t)
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
	e, dir := newSandboxedIn(t, "")
	addTester(t, dir)
	for name, command := range map[string][]string{
		"processes": {"/bin/busybox", "sh", "-c", "i=0; while [ $i -lt 600 ]; do /bin/busybox sleep 600 & i=$((i+1)); done; wait"},
		"forks":     {"/bin/busybox", "sh", "-c", "bomb() { bomb | bomb & bomb; }; bomb"},
		"threads":   {"/bin/tester", "start-threads"},
	} {
		_, err := e.Run(t.Context(), repair.Program{Command: command, Limit: time.Minute})
		if !problem.Is(err, problem.Unavailable) || !strings.Contains(err.Error(), tooManyProcesses) {
			t.Errorf("%s: want an error that says %q, got %v", name, tooManyProcesses, err)
		}
	}
	const script = "i=0; while [ $i -lt 200 ]; do /bin/busybox sleep 600 & i=$((i+1)); done; exit 124"
	if _, err := e.Run(t.Context(), repair.Program{Command: []string{"/bin/busybox", "sh", "-c", script}, Limit: time.Minute}); err == nil || !strings.Contains(err.Error(), "exit status 1:") {
		t.Errorf("200 processes and the program's own status 124: want exit status 1, got %v", err)
	}
}
