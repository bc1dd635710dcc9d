package lab

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"sync"
	"time"

	"salvor/problem"
)

// qemuMachine is one QEMU guest with its disk. It is a Chassis, a Drive and a FirmwareSwitch.
type qemuMachine struct {
	spec machineSpec
	log  *slog.Logger
	http *imageClient

	change sync.Mutex // held over each change of power or media; taken before mu

	mu       sync.Mutex
	run      *qemuRun
	override Override
	firmware Firmware
	image    string // URL of what is in the drive
	// initiator is what the machine's own iSCSI adapter is set up with.
	initiator Initiator
}

// qemuRun is one life of a machine's QEMU.
type qemuRun struct {
	cmd  *exec.Cmd
	qmp  *qmpClient
	cd   bool
	done chan struct{} // closed when the process is gone and reaped
	kill bool          // we ended it; guarded by machine.mu
}

const (
	startTimeout = 30 * time.Second
	startPoll    = 10 * time.Millisecond
)

func newMachine(spec machineSpec, log *slog.Logger) *qemuMachine {
	return &qemuMachine{spec: spec, log: log.With("machine", spec.Name), firmware: spec.Firmware, http: newImageClient()}
}

func (m *qemuMachine) Power() Power {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.run != nil {
		return PowerOn
	}
	return PowerOff
}

func (m *qemuMachine) Override() Override {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.override
}

func (m *qemuMachine) SetOverride(o Override) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.override = o
}

func (m *qemuMachine) Firmware() Firmware {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.firmware
}

func (m *qemuMachine) SetFirmware(f Firmware) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.firmware = f
}

func (m *qemuMachine) Do(ctx context.Context, action Action) error {
	m.change.Lock()
	defer m.change.Unlock()
	m.log.Info("power", "action", action)
	switch action {
	case ActionOn:
		return m.start()
	case ActionOff:
		m.stop()
		return nil
	case ActionRestart:
		m.stop()
		return m.start()
	case ActionShutdown, ActionNMI:
		m.mu.Lock()
		r := m.run
		m.mu.Unlock()
		if r == nil {
			return errOff(m.spec.Name, string(action))
		}
		command := "system_powerdown"
		if action == ActionNMI {
			command = "inject-nmi"
		}
		if err := r.qmp.do(ctx, command, nil, nil); err != nil {
			return fmt.Errorf("%s machine %s: %w", action, m.spec.Name, err)
		}
		return nil
	}
	return problem.Invalidf("power action %q: not known", action)
}

// start runs QEMU with the boot order of now, and uses up an override that is for once. The
// caller holds m.change.
func (m *qemuMachine) start() error {
	m.mu.Lock()
	if m.run != nil {
		m.mu.Unlock()
		return nil
	}
	override, firmware, cd, adapter := m.override, m.firmware, m.image != "", m.initiator
	m.mu.Unlock()

	order := bootOrder(override.Device, m.spec.Disk, cd)
	if firmware == UEFI {
		if err := m.prepareVars(override); err != nil {
			return fmt.Errorf("start machine %s: %w", m.spec.Name, err)
		}
	}
	if override.Device != DeviceVolume {
		adapter = Initiator{}
	}
	r, err := m.spawnVolume(qemuArgs(m.spec, firmware, order, cd), adapter)
	if err != nil {
		return fmt.Errorf("start machine %s: %w", m.spec.Name, err)
	}
	r.cd = cd
	m.mu.Lock()
	m.run = r
	if !override.Persist && m.override == override {
		m.override = Override{}
	}
	m.mu.Unlock()
	go m.watch(r)
	m.log.Info("started", "order", order, "firmware", firmware, "pid", r.cmd.Process.Pid)
	return nil
}

// prepareVars gives a UEFI machine its own variable store, which lives as long as the machine, and
// in it the URI to boot, if one was given.
func (m *qemuMachine) prepareVars(o Override) error {
	vars := filesOf(m.spec.Name).Vars
	if _, err := os.Stat(vars); errors.Is(err, os.ErrNotExist) {
		if err := copyFile(vars, ovmfVars); err != nil {
			return fmt.Errorf("UEFI variables: %w", err)
		}
	}
	uri := ""
	if o.Device == DeviceHTTP {
		uri = o.URI
	}
	return setBootURI(vars, uri)
}

func copyFile(to, from string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	if _, err := io.Copy(out, in); err != nil {
		out.Close()
		return err
	}
	return out.Close()
}

// spawn starts QEMU and waits until it answers on its control socket.
func (m *qemuMachine) spawn(args []string) (*qemuRun, error) {
	files := filesOf(m.spec.Name)
	if err := os.Remove(files.QMP); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	output, err := os.OpenFile(m.spec.Name+"/qemu.log", os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	defer output.Close()
	r := &qemuRun{cmd: exec.Command(qemuProgram, args...), done: make(chan struct{})}
	r.cmd.Stdout, r.cmd.Stderr = output, output
	if err := r.cmd.Start(); err != nil {
		return nil, err
	}
	var waited error
	go func() {
		waited = r.cmd.Wait()
		close(r.done)
	}()
	for deadline := time.Now().Add(startTimeout); ; time.Sleep(startPoll) {
		select {
		case <-r.done:
			return nil, fmt.Errorf("qemu ended at once (%v): %s", waited, lastLine(m.spec.Name+"/qemu.log"))
		default:
		}
		conn, err := net.Dial("unix", files.QMP)
		if err == nil {
			if r.qmp, err = newQMP(conn); err == nil {
				return r, nil
			}
		}
		if time.Now().After(deadline) {
			_ = r.cmd.Process.Kill()
			<-r.done
			return nil, fmt.Errorf("qemu does not answer: %w", err)
		}
	}
}

// stop kills QEMU and waits until it is gone: its tap and disk are free then. The caller holds m.change.
func (m *qemuMachine) stop() {
	m.mu.Lock()
	r := m.run
	if r == nil {
		m.mu.Unlock()
		return
	}
	r.kill = true
	m.run = nil
	m.mu.Unlock()
	_ = r.cmd.Process.Kill()
	<-r.done
	r.qmp.close()
}

// watch waits for the end of a life of QEMU that we did not end: the guest powered off, or reset,
// in which case the machine starts again with the boot order of now.
func (m *qemuMachine) watch(r *qemuRun) {
	<-r.done
	r.qmp.close()
	m.change.Lock()
	defer m.change.Unlock()
	m.mu.Lock()
	killed := r.kill
	if m.run == r {
		m.run = nil
	}
	m.mu.Unlock()
	if killed {
		return
	}
	reason := r.qmp.shutdownReason()
	m.log.Info("ended by itself", "reason", reason)
	if reason != "guest-reset" {
		return
	}
	if err := m.start(); err != nil {
		m.log.Error("start after reset", "err", err)
	}
}

// lastLine is the end of a small log, for error messages.
func lastLine(path string) string {
	data, err := os.ReadFile(path)
	if err != nil {
		return err.Error()
	}
	const most = 300
	if len(data) > most {
		data = data[len(data)-most:]
	}
	return string(data)
}
