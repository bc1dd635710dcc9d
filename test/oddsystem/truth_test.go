//go:build causes

package oddsystem

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// truthLimit bounds all questions to the programs of one system.
const truthLimit = 2 * time.Minute

// sudoRan begins what is said where the program ran that sudo was to run, and sudo complained beside.
const sudoRan = "1: in 42 sudo "

// truthOf asks the programs of a changed system.
func (w *world) truthOf(i installation, o *overlay) (Truth, error) {
	ctx, cancel := context.WithTimeout(context.Background(), truthLimit)
	defer cancel()
	cmd := w.isolated(ctx, i, o, "ask")
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("the script of questions: %w: %.1000s", err, out)
	}
	truth := Truth{}
	ended := false
	for _, line := range strings.Split(string(out), "\n") {
		rung, said, _ := strings.Cut(line, " ")
		switch verdict, text, _ := strings.Cut(said, " "); verdict {
		case "pass":
			truth[rung] = ""
		case "fail":
			truth[rung] = strings.ToValidUTF8(text, "?")
			if rung == "sudo" && strings.HasPrefix(text, sudoRan) {
				truth[rung] = ""
			}
		}
		ended = ended || rung == "done"
	}
	if !ended {
		return nil, fmt.Errorf("the script of questions ended early: %.1000s", out)
	}
	delete(truth, "done")
	truth["console"] = w.consoleLogin(i, o)
	return truth, nil
}

// isolated runs the script of questions as the first process of its own namespaces, so that all of its processes end with it.
func (w *world) isolated(ctx context.Context, i installation, o *overlay, task string) *exec.Cmd {
	args := append(slices.Clone(w.strace), "bash", filepath.Join(w.dir, "truth"), o.place, i.owner, filepath.Join(w.dir, "owner_key"), i.name, task)
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Cloneflags: unix.CLONE_NEWNS | unix.CLONE_NEWPID | unix.CLONE_NEWNET | unix.CLONE_NEWUTS | unix.CLONE_NEWIPC}
	cmd.WaitDelay = 5 * time.Second
	return cmd
}

// consoleLogin logs the owner in at a terminal, by name and password, as a getty does. It says what kept it; empty: a shell answered.
func (w *world) consoleLogin(i installation, o *overlay) string {
	limit := 30 * time.Second
	if w.strace != nil {
		limit *= 10
	}
	ctx, cancel := context.WithTimeout(context.Background(), 3*limit)
	defer cancel()
	master, slave, err := openTerminal()
	if err != nil {
		return "no terminal: " + err.Error()
	}
	defer master.Close()
	cmd := w.isolated(ctx, i, o, "console")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = slave, slave, slave
	cmd.SysProcAttr.Setctty = true
	err = cmd.Start()
	_ = slave.Close()
	if err != nil {
		return "no process: " + err.Error()
	}
	exited := make(chan struct{})
	go func() { _ = cmd.Wait(); close(exited) }()
	defer func() { cancel(); <-exited }()
	console := newConsole(master)
	for _, step := range []struct{ wait, send string }{
		{"login:", i.owner}, {"assword:", ownerPassword}, {"", "echo in $((40+2))"},
	} {
		if !console.await(step.wait, exited, limit) {
			return fmt.Sprintf("waited for %q: %s", step.wait, console.end())
		}
		if step.wait == "" && !console.await("$ |# ", exited, limit) {
			return "no prompt of a shell: " + console.end()
		}
		if _, err := master.WriteString(step.send + "\n"); err != nil {
			return "the terminal: " + err.Error()
		}
	}
	if !console.await("in 42", exited, limit) {
		return "no answer of a shell: " + console.end()
	}
	return ""
}

// openTerminal makes a pseudo terminal.
func openTerminal() (master, slave *os.File, err error) {
	master, err = os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		return nil, nil, err
	}
	if err := unix.IoctlSetPointerInt(int(master.Fd()), unix.TIOCSPTLCK, 0); err != nil {
		return nil, nil, errors.Join(err, master.Close())
	}
	n, err := unix.IoctlGetInt(int(master.Fd()), unix.TIOCGPTN)
	if err != nil {
		return nil, nil, errors.Join(err, master.Close())
	}
	slave, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		return nil, nil, errors.Join(err, master.Close())
	}
	return master, slave, nil
}

// console keeps what a terminal printed and nobody has waited for yet.
type console struct {
	mu   sync.Mutex
	text bytes.Buffer
	more chan struct{}
}

func newConsole(master *os.File) *console {
	c := &console{more: make(chan struct{}, 1)}
	go func() {
		b := make([]byte, 4096)
		for {
			n, err := master.Read(b)
			c.mu.Lock()
			c.text.Write(b[:n])
			c.mu.Unlock()
			select {
			case c.more <- struct{}{}:
			default:
			}
			if errors.Is(err, unix.EIO) { // login hangs the terminal up, and opens it again
				time.Sleep(20 * time.Millisecond)
				continue
			}
			if err != nil {
				return
			}
		}
	}()
	return c
}

// await waits for one of several texts, separated by |, and takes all up to its end. It returns false at the end of the process or of the time.
func (c *console) await(texts string, exited <-chan struct{}, limit time.Duration) bool {
	late := time.After(limit)
	for {
		if c.take(strings.Split(texts, "|")) {
			return true
		}
		select {
		case <-c.more:
		case <-exited:
			return c.take(strings.Split(texts, "|"))
		case <-late:
			return false
		}
	}
}

func (c *console) take(texts []string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, text := range texts {
		if at := bytes.Index(c.text.Bytes(), []byte(text)); at >= 0 {
			c.text.Next(at + len(text))
			return true
		}
	}
	return false
}

// end is the end of what nobody waited for.
func (c *console) end() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	text := strings.Join(strings.Fields(strings.ToValidUTF8(c.text.String(), "?")), " ")
	return text[max(0, len(text)-200):]
}
