package lab

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"

	"salvor/problem"
)

// Files in a lab's directory.
const (
	specFile   = "spec.json"
	pidFile    = "pid"
	lockFile   = "lock"
	logFile    = "lab.log"
	socketFile = "lab.sock"
)

// labPlan is what Up hands to the lab's first process: the Spec and what was prepared for it outside,
// where there is a network to fetch packages from.
type labPlan struct {
	Spec
	Layout  []machineSpec `json:"layout"`
	VMHosts []hostSpec    `json:"vm_hosts"`
	Boot    string        `json:"boot"` // boot half of tenant disks
}

// readinessMessage is the one message from a starting lab to Up.
type readinessMessage struct {
	Error  string  `json:"error,omitempty"`
	Status *Status `json:"status,omitempty"`
}

// Up starts a lab and waits until its machines can be powered on. The lab goes on after this
// process, unless the Spec is Leashed. Conflict: a lab of that name is up.
func Up(ctx context.Context, spec Spec) (*Lab, error) {
	spec, err := spec.withDefaults()
	if err != nil {
		return nil, err
	}
	if err := requiredFiles(spec); err != nil {
		return nil, err
	}
	dir := labDir(spec.StateDir, spec.Name)
	lock, err := takeLock(dir)
	if err != nil {
		return nil, err
	}
	defer lock.Close()
	if err := cleanDir(dir); err != nil {
		return nil, err
	}
	removeFreezers(dir)
	p := labPlan{Spec: spec, Layout: spec.machineSpecs(), VMHosts: spec.hostSpecs()}
	if spec.Disk == TenantDisk && spec.Machines > 0 {
		if p.Boot, err = tenantBoot(ctx, cacheDir(spec.StateDir), onDisk); err != nil {
			return nil, err
		}
	}
	text, err := json.Marshal(p)
	if err != nil {
		return nil, fmt.Errorf("write lab spec: %w", err)
	}
	if err := os.WriteFile(filepath.Join(dir, specFile), text, 0o600); err != nil {
		return nil, fmt.Errorf("write lab spec: %w", err)
	}
	return launchInit(ctx, p, dir, lock)
}

// takeLock makes the lab's directory and takes the lock that pid 1 of the lab will hold.
func takeLock(dir string) (*os.File, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("make lab directory: %w", err)
	}
	lock, err := os.OpenFile(filepath.Join(dir, lockFile), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("lock lab: %w", err)
	}
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		lock.Close()
		if errors.Is(err, unix.EWOULDBLOCK) {
			return nil, problem.Conflictf("lab %s is up already", filepath.Base(dir))
		}
		return nil, fmt.Errorf("lock lab: %w", err)
	}
	return lock, nil
}

// isLocked tells whether a lab's first process lives, whether it answers or not.
func isLocked(dir string) bool {
	lock, err := os.Open(filepath.Join(dir, lockFile))
	if err != nil {
		return false
	}
	defer lock.Close()
	return errors.Is(unix.Flock(int(lock.Fd()), unix.LOCK_SH|unix.LOCK_NB), unix.EWOULDBLOCK)
}

// cleanDir removes what an earlier lab of the same name left, its logs too.
func cleanDir(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return fmt.Errorf("clean lab directory: %w", err)
	}
	for _, e := range entries {
		if e.Name() == lockFile {
			continue
		}
		if err := os.RemoveAll(filepath.Join(dir, e.Name())); err != nil {
			return fmt.Errorf("clean lab directory: %w", err)
		}
	}
	return nil
}

// launchInit starts pid 1 of the lab and waits for its word. The lock, the ready pipe and, on a leash,
// the read end of a pipe that this process never writes to are its descriptors 3 to 5.
func launchInit(ctx context.Context, p labPlan, dir string, lock *os.File) (*Lab, error) {
	output, err := os.OpenFile(filepath.Join(dir, logFile), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open lab log: %w", err)
	}
	defer output.Close()
	readyRead, readyWrite, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("start lab: %w", err)
	}
	defer readyRead.Close()
	leashRead, leashWrite, err := os.Pipe()
	if err != nil {
		readyWrite.Close()
		return nil, fmt.Errorf("start lab: %w", err)
	}
	program := append(append([]string{}, p.Program...), hiddenInit, dir)
	cmd := exec.Command(program[0], program[1:]...)
	cmd.Stdout, cmd.Stderr = output, output
	cmd.ExtraFiles = []*os.File{lock, readyWrite, leashRead}
	cmd.SysProcAttr = namespaceAttr()
	err = cmd.Start()
	readyWrite.Close()
	leashRead.Close()
	if err != nil {
		leashWrite.Close()
		return nil, explainNamespaceError(err)
	}
	l := &Lab{dir: dir, program: p.Program}
	if p.Leashed {
		l.leash = leashWrite
	} else {
		defer leashWrite.Close()
	}
	go func() { _ = cmd.Wait() }() // no zombie, should this process outlive the lab
	if err := os.WriteFile(filepath.Join(dir, pidFile), []byte(strconv.Itoa(cmd.Process.Pid)), 0o600); err != nil {
		_ = cmd.Process.Kill()
		return nil, fmt.Errorf("write lab pid: %w", err)
	}
	if err := awaitReady(ctx, readyRead); err != nil {
		_ = cmd.Process.Kill()
		return nil, fmt.Errorf("lab %s: %w (log: %s)", p.Name, err, filepath.Join(dir, logFile))
	}
	return l, nil
}

// namespaceAttr asks for new namespaces; a user namespace too where we are not root, in which our
// own user is root.
func namespaceAttr() *syscall.SysProcAttr {
	attr := &syscall.SysProcAttr{Setsid: true, Cloneflags: syscall.CLONE_NEWNET | syscall.CLONE_NEWPID | syscall.CLONE_NEWNS}
	if os.Getuid() != 0 {
		attr.Cloneflags |= syscall.CLONE_NEWUSER
		attr.UidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}}
		attr.GidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}}
	}
	return attr
}

func explainNamespaceError(err error) error {
	if errors.Is(err, os.ErrPermission) && os.Getuid() != 0 {
		return problem.Forbiddenf("start lab: this system lets only root make namespaces; run it with sudo: %w", err)
	}
	return fmt.Errorf("start lab: %w", err)
}

func awaitReady(ctx context.Context, from *os.File) error {
	stop := context.AfterFunc(ctx, func() { from.Close() })
	defer stop()
	var r readinessMessage
	if err := json.NewDecoder(from).Decode(&r); err != nil {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if errors.Is(err, io.EOF) {
			return errors.New("its first process ended before it was ready")
		}
		return fmt.Errorf("read readiness: %w", err)
	}
	if r.Error != "" {
		return errors.New(r.Error)
	}
	return nil
}

// runInit is pid 1 of the lab: it sets up the mounts, starts the world, and reaps what is left to it.
// When the world ends, it ends, and the kernel ends everything else.
func runInit(dir string) (int, error) {
	// Its own copy of the lock must not reach a child: whoever holds it, is the lab.
	syscall.CloseOnExec(3)
	ready := os.NewFile(4, "ready")
	if err := setupMounts(); err != nil {
		_ = json.NewEncoder(ready).Encode(readinessMessage{Error: err.Error()})
		return 1, err
	}
	var p labPlan
	if err := readPlan(dir, &p); err != nil {
		return 1, err
	}
	program := append(append([]string{}, p.Program...), hiddenWorld, dir)
	path, err := exec.LookPath(program[0])
	if err != nil {
		return 1, err
	}
	world, err := syscall.ForkExec(path, program, &syscall.ProcAttr{Env: os.Environ(), Files: []uintptr{0, 1, 2, 4, 5}})
	if err != nil {
		return 1, fmt.Errorf("start the lab's world: %w", err)
	}
	ready.Close()
	syscall.Close(5)
	signals := make(chan os.Signal, 4)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP)
	go func() {
		for s := range signals {
			_ = syscall.Kill(world, s.(syscall.Signal))
		}
	}()
	for {
		var status syscall.WaitStatus
		pid, err := syscall.Wait4(-1, &status, 0, nil)
		switch {
		case errors.Is(err, syscall.EINTR):
		case err != nil:
			return 1, fmt.Errorf("wait for the lab's world: %w", err)
		case pid == world:
			return exitStatus(status), nil
		}
	}
}

// setupMounts gives the namespace a /proc that shows its own processes, and keeps mounts to itself.
func setupMounts() error {
	if err := unix.Mount("", "/", "", unix.MS_PRIVATE|unix.MS_REC, ""); err != nil {
		return fmt.Errorf("make mounts private: %w", err)
	}
	if err := unix.Mount("proc", "/proc", "proc", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, ""); err != nil {
		return fmt.Errorf("mount /proc (in a container, run the lab with sudo or outside): %w", err)
	}
	return nil
}

func readPlan(dir string, p *labPlan) error {
	text, err := os.ReadFile(filepath.Join(dir, specFile))
	if err != nil {
		return fmt.Errorf("read lab spec: %w", err)
	}
	if err := json.Unmarshal(text, p); err != nil {
		return fmt.Errorf("read lab spec: %w", err)
	}
	return nil
}

// exitStatus is a wait status as shells count it.
func exitStatus(s syscall.WaitStatus) int {
	if s.Signaled() {
		return 128 + int(s.Signal())
	}
	return s.ExitStatus()
}
