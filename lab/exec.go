package lab

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"syscall"
	"time"

	"salvor/problem"
)

// killDelay is how long a program whose client went away may take to end by itself.
const killDelay = 2 * time.Second

// exec runs a program inside the lab on the files that came with the request. It returns the
// program's exit status as shells count it, 127 if it could not be started. When the client goes
// away, the program and its process group are ended.
func (w *runningLab) exec(ctx context.Context, req controlRequest, line *lineReader) (int, error) {
	if len(req.Args) == 0 || len(line.files) != execFiles {
		return 0, problem.Invalidf("lab exec: want a program and %d files", execFiles)
	}
	cmd := exec.Command(req.Args[0], req.Args[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = line.files[0], line.files[1], line.files[2]
	cmd.Env, cmd.Dir = req.Env, req.Dir
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		return 127, problem.NotFoundf("lab exec %s: %w", req.Args[0], err)
	}
	line.closeFiles()
	done := make(chan error, 1)
	go func() { done <- cmd.Wait() }()
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		forwardSignals(line, cmd.Process.Pid)
	}()
	var err error
	select {
	case err = <-done:
	case <-gone:
		err = endGroup(cmd.Process.Pid, done)
	case <-ctx.Done():
		err = endGroup(cmd.Process.Pid, done)
	}
	var exit *exec.ExitError
	switch {
	case err == nil:
		return 0, nil
	case errors.As(err, &exit):
		return exitStatus(exit.Sys().(syscall.WaitStatus)), nil
	}
	return 0, fmt.Errorf("lab exec %s: %w", req.Args[0], err)
}

// forwardSignals passes on what the client's terminal or user sent, until the client goes away.
func forwardSignals(line *lineReader, group int) {
	for {
		var req controlRequest
		if line.next(&req) != nil {
			return
		}
		if req.Signal > 0 && req.Signal < 65 {
			_ = syscall.Kill(-group, syscall.Signal(req.Signal))
		}
	}
}

// endGroup ends a process group, first with a request, then by force.
func endGroup(group int, done <-chan error) error {
	_ = syscall.Kill(-group, syscall.SIGTERM)
	select {
	case err := <-done:
		_ = syscall.Kill(-group, syscall.SIGKILL) // what the program started and did not end
		return err
	case <-time.After(killDelay):
		_ = syscall.Kill(-group, syscall.SIGKILL)
		return <-done
	}
}
