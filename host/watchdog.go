package host

import (
	"bytes"
	"fmt"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"salvor/problem"
)

// Watchdog resets the machine when it is not petted in time. Once armed it goes on though this process ends.
type Watchdog interface {
	// Arm starts it, or takes over one that runs: the machine is reset timeout, or less, after the newest Pet. It tells what it is.
	// problem.Unsupported: it is none that could be relied on; then it is not started.
	Arm(timeout time.Duration) (identity string, err error)
	// Pet has it begin anew to wait.
	Pet() error
	// Expire has it reset the machine as soon as it can.
	Expire() error
	// Disarm stops it.
	Disarm() error
}

// softWatchdog is the identity of Linux' softdog: a kernel that hangs hangs it too.
const softWatchdog = "Software Watchdog"

// HardwareWatchdog is the one behind a device such as /dev/watchdog. It is opened by Arm and not before.
func HardwareWatchdog(path string) Watchdog { return &hardwareWatchdog{path: path} }

type hardwareWatchdog struct {
	path string
	mu   sync.Mutex
	file *os.File
}

func (h *hardwareWatchdog) Arm(timeout time.Duration) (string, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.file == nil {
		f, err := os.OpenFile(h.path, os.O_WRONLY, 0)
		if err != nil {
			return "", problem.Unsupportedf("watchdog %s: %w", h.path, err)
		}
		h.file = f
	}
	identity, err := h.start(timeout)
	if err != nil {
		err = problem.Unsupportedf("watchdog %s, %q: %w", h.path, identity, err)
		if stop := h.stop(); stop != nil {
			err = fmt.Errorf("%w; and it does not stop: %w", err, stop)
		}
	}
	return identity, err
}

func (h *hardwareWatchdog) start(timeout time.Duration) (string, error) {
	fd := int(h.file.Fd())
	info, err := unix.IoctlGetWatchdogInfo(fd)
	if err != nil {
		return "", fmt.Errorf("ask what it is: %w", err)
	}
	name, _, _ := bytes.Cut(info.Identity[:], []byte{0})
	identity := string(bytes.ToValidUTF8(name, nil))
	if err := checkReliable(identity, info.Options); err != nil {
		return identity, err
	}
	if err := unix.IoctlSetPointerInt(fd, unix.WDIOC_SETTIMEOUT, int(timeout/time.Second)); err != nil {
		return identity, fmt.Errorf("set it to %s: %w", timeout, err)
	}
	got, err := unix.IoctlGetInt(fd, unix.WDIOC_GETTIMEOUT)
	if err != nil {
		return identity, fmt.Errorf("read its time back: %w", err)
	}
	if time.Duration(got)*time.Second > timeout || got <= 0 {
		return identity, problem.Unsupportedf("it was set to %s and waits for %d s", timeout, got)
	}
	return identity, unix.IoctlWatchdogKeepalive(fd)
}

// checkReliable refuses a watchdog that cannot be trusted to reset the machine. problem.Unsupported.
func checkReliable(identity string, options uint32) error {
	switch {
	case identity == softWatchdog:
		return problem.Unsupportedf("it is a part of the kernel, which may hang; a hardware watchdog is needed")
	case options&unix.WDIOF_SETTIMEOUT == 0 || options&unix.WDIOF_KEEPALIVEPING == 0:
		return problem.Unsupportedf("it cannot be set, or not be petted")
	}
	return nil
}

func (h *hardwareWatchdog) Pet() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.file == nil {
		return problem.Conflictf("watchdog %s is not armed", h.path)
	}
	return unix.IoctlWatchdogKeepalive(int(h.file.Fd()))
}

// Expire sets the shortest time that the driver takes.
func (h *hardwareWatchdog) Expire() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.file == nil {
		return nil
	}
	var err error
	for _, seconds := range []int{1, 2, 4} {
		if err = unix.IoctlSetPointerInt(int(h.file.Fd()), unix.WDIOC_SETTIMEOUT, seconds); err == nil {
			return nil
		}
	}
	return err
}

func (h *hardwareWatchdog) Disarm() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.stop()
}

// stop closes the device so that it does not go on; a driver that was loaded with nowayout does all the same.
func (h *hardwareWatchdog) stop() error {
	if h.file == nil {
		return nil
	}
	_, err := h.file.Write([]byte("V"))
	closed := h.file.Close()
	h.file = nil
	if err != nil {
		return err
	}
	return closed
}
