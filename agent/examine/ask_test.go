package examine

import (
	"crypto/sha256"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"salvor/agent/sandbox"
	"salvor/diagnose"
	rules "salvor/diagnose/system"
	"salvor/test/must"
)

// TestMain is the first process in the namespaces of a program, as salvor-agent is.
func TestMain(m *testing.M) {
	if len(os.Args) == 2 && os.Args[1] == sandbox.Command {
		os.Exit(sandbox.RunInSystem(os.Stderr))
	}
	os.Exit(m.Run())
}

// askedSystem is a folder with a shell in it, mounted as an examination mounts a root, whose checkers are scripts.
type askedSystem struct {
	*examinationRun
	*diagnose.System
	folder     string // where the files of the system lie
	firstPlace int
}

const hostKey = "-----BEGIN OPENSSH PRIVATE KEY-----\nb3BlbnNzaC1rZXktdjEAbm90IGEga2V5LCBidXQgdGhlIHNoYXBlIG9mIG9uZQ==\n-----END OPENSSH PRIVATE KEY-----\n"

// newAskedSystem makes a system whose sshd is a script.
func newAskedSystem(t *testing.T, script string) *askedSystem {
	t.Helper()
	busybox, err := exec.LookPath("busybox")
	if err != nil || os.Geteuid() != 0 {
		t.Skip("the sandbox needs root and busybox")
	}
	folder, place := t.TempDir(), t.TempDir()
	for _, name := range []string{"proc", "sys", "dev", "run", "tmp", "bin", "etc/ssh", "usr/sbin", "var/tmp"} {
		must.OK(t, os.MkdirAll(filepath.Join(folder, name), 0o755))
	}
	for name, text := range map[string]string{
		"bin/busybox": string(must.Get(os.ReadFile(busybox))(t)), "usr/sbin/sshd": "#!/bin/busybox sh\n" + script, "etc/passwd": "root:x:0:0:root:/root:/bin/busybox\nsshd:x:100:65534::/run/sshd:/usr/sbin/nologin\n",
		"etc/shadow": "root:*:19000::::::\nsshd:*:19000::::::\n", "etc/ssh/ssh_host_ed25519_key": hostKey,
		"etc/ssh/sshd_config": "Port 22\nUsePAM yes\n",
	} {
		must.OK(t, os.WriteFile(filepath.Join(folder, name), []byte(text), map[bool]os.FileMode{true: 0o755, false: 0o600}[strings.Contains(name, "bin/")]))
	}
	must.OK(t, unix.Mount(folder, place, "", unix.MS_BIND, ""))
	// A program that another test starts has this test's open folders for a moment, so the mount may be busy.
	t.Cleanup(func() { must.OK(t, unix.Unmount(place, unix.MNT_DETACH)) })
	must.OK(t, unix.Mount("", place, "", unix.MS_BIND|unix.MS_REMOUNT|unix.MS_RDONLY|unix.MS_NODEV|unix.MS_NOSUID|unix.MS_NOEXEC, ""))
	tree, closer, err := OpenTree(place)
	must.OK(t, err)
	t.Cleanup(func() { must.OK(t, closer.Close()) })
	must.OK(t, os.MkdirAll(workDir, 0o700))
	x := newRun(Request{Rules: rules.Rules(), Log: slog.New(slog.DiscardHandler)}, nil)
	x.places = int(time.Now().UnixNano()) // other tests and examinations have their mount points beside
	x.roots["/dev/vda1"] = place
	s := &askedSystem{x, &diagnose.System{Files: tree, Root: "/dev/vda1", Now: time.Now()}, folder, x.places}
	t.Cleanup(func() {
		for i := range 4 {
			_ = os.Remove(filepath.Join(workDir, fmt.Sprint("mount-", s.firstPlace+i)))
		}
	})
	return s
}

// judge asks the rules, with the programs of the system.
func (s *askedSystem) judge(t *testing.T) diagnose.ExaminedSystem {
	t.Helper()
	return s.judgeSystems(t.Context(), []*diagnose.System{s.System})[0]
}

func findingOf(found diagnose.ExaminedSystem, id string) *diagnose.Finding {
	for i := range found.Findings {
		if found.Findings[i].ID == id {
			return &found.Findings[i]
		}
	}
	return nil
}

// sumOf is a hash over the names, modes and contents below a folder.
func sumOf(t *testing.T, folder string) string {
	t.Helper()
	h := sha256.New()
	must.OK(t, filepath.WalkDir(folder, func(name string, d os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info := must.Get(d.Info())(t)
		fmt.Fprintln(h, name, info.Mode(), info.Size(), info.ModTime())
		if info.Mode().IsRegular() {
			h.Write(must.Get(os.ReadFile(name))(t))
		}
		return nil
	}))
	return fmt.Sprintf("%x", h.Sum(nil))
}

// TestCheckerAccuses: the system's own sshd refuses a configuration in which no rule finds a fault. The finding has its words, and no secret among them.
func TestCheckerAccuses(t *testing.T) {
	t.Parallel()
	s := newAskedSystem(t, `test -d /run/sshd || exit 1
echo "/etc/ssh/sshd_config: line 2: UsePAM is not for you, password=opensesame"; echo "terminating, 1 bad configuration options"; exit 255`)
	found := s.judge(t)
	f := findingOf(found, "sshd-check-failed")
	if f == nil {
		t.Fatalf("want sshd-check-failed, got %+v", found)
	}
	text := fmt.Sprintf("%+v", *f)
	if !strings.Contains(text, "is not for you") || !strings.Contains(text, "UsePAM yes") || strings.Contains(text, "opensesame") || f.Severity != diagnose.BlocksAccess {
		t.Errorf("want the words of sshd and the line, and no secret; got %s", text)
	}
	if len(found.Asked) != 1 || found.Asked[0].Exit != 255 || found.Asked[0].Command[0] != "/usr/sbin/sshd" {
		t.Errorf("want one program that ended with 255, got %+v", found.Asked)
	}
}

// TestOnlyRead: no program of the system runs, and the report says so.
func TestOnlyRead(t *testing.T) {
	t.Parallel()
	s := newAskedSystem(t, "echo no; exit 255")
	s.OnlyRead = true
	if found := s.judge(t); len(found.Asked) != 0 || findingOf(found, "sshd-check-failed") != nil {
		t.Errorf("a program ran: %+v", found)
	}
	if len(s.gaps) == 0 || s.gaps[0].What != checkers {
		t.Errorf("want the gap %q, got %+v", checkers, s.gaps)
	}
}

// TestHostileCheckers: a checker that forks, hangs, writes or lies is bounded, changes nothing, and acquits nobody.
func TestHostileCheckers(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		script, trouble string
		accuses         bool
	}{
		// On a machine that is busy, the time is over before the processes are too many. Package sandbox proves that their number is bounded.
		"forks":  {script: "bomb() { bomb | bomb & bomb; }; bomb", trouble: "processes|took longer"},
		"hangs":  {script: "trap '' TERM HUP INT; while :; do /bin/busybox sleep 60; done", trouble: "took longer"},
		"floods": {script: "exec /bin/busybox yes /etc/ssh/sshd_config: line 1: no", trouble: "took longer"},
		"writes": {script: `cd /; for f in /etc/x /etc/ssh/sshd_config /bin/busybox /run/../etc/y /dev/sda /proc/sys/kernel/hostname; do echo x 2>/dev/null >$f; done
/bin/busybox rm -rf /etc /usr /bin 2>/dev/null; /bin/busybox mount -o remount,rw / 2>/dev/null; echo "line 1: no"; exit 1`, accuses: true},
		"lies":  {script: "echo everything is well; exit 0"},
		"fails": {script: "exec /not/there", accuses: true},
	} {
		t.Run(name, func(t *testing.T) {
			s := newAskedSystem(t, c.script)
			must.OK(t, os.Remove(filepath.Join(s.folder, "etc/shadow"))) // which rules find
			before, began := sumOf(t, s.folder), time.Now()
			withAnswers := s.judge(t)
			if took := time.Since(began); took > askSystemTime {
				t.Errorf("it took %s", took)
			}
			if after := sumOf(t, s.folder); after != before {
				t.Error("the system has changed")
			}
			if a := withAnswers.Asked; len(a) == 0 || !regexp.MustCompile(c.trouble).MatchString(a[0].Trouble) || (a[0].Trouble == "") != (c.trouble == "") {
				t.Errorf("want trouble %q, got %+v", c.trouble, a)
			}
			if accused := findingOf(withAnswers, "sshd-check-failed") != nil; accused != c.accuses {
				t.Errorf("accuses: want %v, got %v", c.accuses, accused)
			}
			s.OnlyRead, s.Asked = true, nil
			for _, f := range s.judge(t).Findings {
				if findingOf(withAnswers, f.ID) == nil {
					t.Errorf("the checker has acquitted the system of %s", f.ID)
				}
			}
		})
	}
}
