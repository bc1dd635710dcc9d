package storage

import (
	"bytes"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"salvor/problem"
)

// maxComplaint bounds what is kept of a command's words on standard error.
const maxComplaint = 2048

// Output runs a command that was made with a context and returns what it said, of which it takes limit bytes: more is
// problem.Unavailable. complaint is what it said on standard error, on one line. At the context's end it is killed with all that it started.
func Output(cmd *exec.Cmd, limit int) (output []byte, complaint string, err error) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = time.Second
	out, complaints := &bounded{limit: limit}, &bounded{limit: maxComplaint}
	cmd.Stdout, cmd.Stderr = out, complaints
	err = cmd.Run()
	if err == nil && out.over {
		err = problem.Unavailablef("it says more than %d bytes", limit)
	}
	return out.kept.Bytes(), strings.Join(strings.Fields(complaints.kept.String()), " "), err
}

// bounded keeps what is written up to its limit.
type bounded struct {
	kept  bytes.Buffer
	limit int
	over  bool
}

func (b *bounded) Write(p []byte) (int, error) {
	room := b.limit - b.kept.Len()
	b.over = b.over || room < len(p)
	b.kept.Write(p[:min(len(p), max(room, 0))])
	return len(p), nil
}
