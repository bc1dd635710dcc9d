package lab

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"

	"github.com/google/uuid"
	"github.com/vishvananda/netlink"

	"salvor/problem"
)

// This file makes a VM host a machine whose power can be cut: a life of it is a set of namespaces, which the kernel
// ends with their first process.

// hostLife is one life of a VM host, from power on to power off.
type hostLife struct {
	process *os.Process
	boot    string
	ended   chan struct{} // closed when its first process, and so everything in it, is gone
}

// living is the present life, nil if the host is off.
func (h *vmHost) living() *hostLife {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.life == nil {
		return nil
	}
	select {
	case <-h.life.ended:
		h.life = nil
	default:
	}
	return h.life
}

func (h *vmHost) Power() Power {
	if h.living() != nil {
		return PowerOn
	}
	return PowerOff
}

// Override and SetOverride are of no use here: a host always boots what it is.
func (h *vmHost) Override() Override          { return Override{} }
func (h *vmHost) SetOverride(Override)        {}
func (h *vmHost) Firmware() Firmware          { return BIOS }
func (h *vmHost) SetFirmware(Firmware)        {}
func (h *vmHost) Image() string               { return "" }
func (h *vmHost) Eject(context.Context) error { return nil }

func (h *vmHost) Insert(context.Context, string) error {
	return problem.Invalidf("host %s has no removable drive", h.spec.Name)
}

func (h *vmHost) Do(_ context.Context, action Action) error {
	h.change.Lock()
	defer h.change.Unlock()
	h.log.Info("power", "action", action)
	switch action {
	case ActionOn:
		return h.start()
	case ActionOff:
		return h.stop()
	case ActionRestart:
		if err := h.stop(); err != nil {
			return err
		}
		return h.start()
	case ActionShutdown:
		life := h.living()
		if life == nil {
			return errOff(h.spec.Name, string(action))
		}
		return life.process.Signal(syscall.SIGTERM)
	case ActionNMI:
		return problem.Invalidf("host %s: it has no use for an NMI", h.spec.Name)
	}
	return problem.Invalidf("power action %q: not known", action)
}

// start begins a life with a boot id of its own. The caller holds h.change.
func (h *vmHost) start() error {
	if h.living() != nil {
		return nil
	}
	if err := h.unlink(); err != nil {
		return err
	}
	life, err := h.spawn()
	if err != nil {
		return fmt.Errorf("start host %s: %w", h.spec.Name, err)
	}
	h.mu.Lock()
	h.life, h.frozen = life, false
	h.mu.Unlock()
	if err := h.connect(life.process.Pid); err != nil {
		return fmt.Errorf("start host %s: %w", h.spec.Name, err)
	}
	h.log.Info("started", "pid", life.process.Pid, "boot", life.boot)
	return nil
}

func (h *vmHost) spawn() (*hostLife, error) {
	// What a boot finds empty: sockets and pids of a former life would be taken for living ones.
	if err := os.RemoveAll(filepath.Join(h.spec.Name, "run")); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(filepath.Join(h.spec.Name, "run/libvirt"), 0o755); err != nil {
		return nil, err
	}
	life := &hostLife{boot: uuid.NewString(), ended: make(chan struct{})}
	if err := h.writeBoot(life.boot); err != nil {
		return nil, err
	}
	output, err := os.OpenFile(filepath.Join(h.spec.Name, hostLog), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	defer output.Close()
	program := append(append([]string{}, h.program...), hiddenHost, h.dir)
	cmd := exec.Command(program[0], program[1:]...)
	cmd.Stdout, cmd.Stderr = output, output
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Cloneflags: syscall.CLONE_NEWNET | syscall.CLONE_NEWPID | syscall.CLONE_NEWNS | syscall.CLONE_NEWUTS}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	life.process = cmd.Process
	go func() {
		defer close(life.ended)
		_ = cmd.Wait()
	}()
	// It waits for its network devices before it starts anything, so all of it will be in the group.
	if h.freezer != nil {
		if err := h.freezer.add(cmd.Process.Pid); err != nil {
			h.log.Warn("freezer", "err", err)
			h.freezer = nil
		}
	}
	return life, nil
}

// stop cuts the power and waits until nothing of the host is left. The caller holds h.change.
func (h *vmHost) stop() error {
	life := h.living()
	if life == nil {
		return nil
	}
	if h.freezer != nil {
		if err := h.freezer.kill(); err != nil {
			h.log.Warn("freezer", "err", err)
		}
	}
	_ = life.process.Kill()
	<-life.ended
	h.mu.Lock()
	h.life, h.frozen = nil, false
	h.mu.Unlock()
	if h.freezer != nil {
		if err := h.freezer.thaw(); err != nil {
			h.log.Warn("freezer", "err", err)
		}
	}
	return h.unlink()
}

// unlink takes the ends of links away whose other ends are gone with the namespace: the kernel takes its time.
func (h *vmHost) unlink() error {
	for _, l := range h.spec.links() {
		link, err := netlink.LinkByName(l.outside)
		if err != nil {
			continue
		}
		if err := netlink.LinkDel(link); err != nil {
			if _, left := netlink.LinkByName(l.outside); left == nil {
				return fmt.Errorf("take %s of host %s away: %w", l.outside, h.spec.Name, err)
			}
		}
	}
	return nil
}

// connect makes the host's network devices: a pair each, one end on the lab's bridge, the other inside.
func (h *vmHost) connect(pid int) error {
	for _, l := range h.spec.links() {
		pair := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: l.outside}, PeerName: l.inside, PeerNamespace: netlink.NsPid(pid)}
		if err := netlink.LinkAdd(pair); err != nil {
			return fmt.Errorf("make %s: %w", l.outside, err)
		}
		on, err := netlink.LinkByName(l.bridge)
		if err != nil {
			return fmt.Errorf("find %s: %w", l.bridge, err)
		}
		if err := netlink.LinkSetMaster(pair, on); err != nil {
			return fmt.Errorf("put %s on %s: %w", l.outside, l.bridge, err)
		}
	}
	return h.plug()
}

// plug sets the host's links up or down as its cables are.
func (h *vmHost) plug() error {
	h.mu.Lock()
	cut := h.cut
	h.mu.Unlock()
	for _, l := range h.spec.links() {
		link, err := netlink.LinkByName(l.outside)
		if err != nil {
			return fmt.Errorf("find %s: %w", l.outside, err)
		}
		set := netlink.LinkSetUp
		if cut && l.bridge != storageNet.Bridge {
			set = netlink.LinkSetDown
		}
		if err := set(link); err != nil {
			return fmt.Errorf("set %s: %w", l.outside, err)
		}
	}
	return nil
}

// do is a fault of the host, or its end.
func (h *vmHost) do(ctx context.Context, verb HostVerb) error {
	switch verb {
	case HostOn:
		return h.Do(ctx, ActionOn)
	case HostOff:
		return h.Do(ctx, ActionOff)
	}
	h.change.Lock()
	defer h.change.Unlock()
	h.log.Info("host", "verb", verb)
	switch verb {
	case HostCut, HostPlug:
		h.mu.Lock()
		h.cut = verb == HostCut
		h.mu.Unlock()
		if h.living() == nil {
			return nil
		}
		return h.plug()
	case HostFreeze, HostThaw:
		return h.freeze(verb == HostFreeze)
	}
	return problem.Invalidf("host %s %q: want %s", h.spec.Name, verb, hostVerbs)
}

// freeze stops, or lets go on, all processes of the host. The caller holds h.change.
func (h *vmHost) freeze(on bool) error {
	if h.freezer == nil {
		return problem.Unsupportedf("freeze host %s: this system has no freezer that the lab may use", h.spec.Name)
	}
	if h.living() == nil {
		return errOff(h.spec.Name, "freeze")
	}
	change := h.freezer.thaw
	if on {
		change = h.freezer.freeze
	}
	if err := change(); err != nil {
		return fmt.Errorf("freeze host %s: %w", h.spec.Name, err)
	}
	h.mu.Lock()
	h.frozen = on
	h.mu.Unlock()
	return nil
}

// end takes the host away with its lab.
func (h *vmHost) end() {
	h.change.Lock()
	defer h.change.Unlock()
	if err := h.stop(); err != nil {
		h.log.Warn("end", "err", err)
	}
	if h.freezer != nil {
		if err := h.freezer.remove(); err != nil {
			h.log.Warn("freezer", "err", err)
		}
	}
}
