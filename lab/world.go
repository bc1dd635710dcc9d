package lab

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"os/signal"
	"syscall"

	"salvor/problem"
)

// runningLab is the living lab, inside its namespaces. Its working directory is the lab's directory.
type runningLab struct {
	plan     labPlan
	log      *slog.Logger
	machines map[string]*labMachine
	order    []string
	hosts    []*vmHost
	end      context.CancelFunc
}

// labMachine is a machine with its BMC.
type labMachine struct {
	*qemuMachine
	chassis  *faultyChassis
	bmc      bmcServer
	identity diskIdentity
}

// bmcServer is a running BMC, whatever it speaks.
type bmcServer interface {
	start() error
	stop()
	// setFault does what a fault needs beyond what faulty does; called after faulty knows it.
	// Unsupported: this protocol cannot fail in that way.
	setFault(f Fault) error
}

// redfishAndIPMI is a BMC that speaks both.
type redfishAndIPMI struct{ redfish, ipmi bmcServer }

func (b redfishAndIPMI) start() error { return errors.Join(b.redfish.start(), b.ipmi.start()) }

func (b redfishAndIPMI) stop() {
	b.redfish.stop()
	b.ipmi.stop()
}

func (b redfishAndIPMI) setFault(f Fault) error {
	err := b.ipmi.setFault(f)
	if problem.Is(err, problem.Unsupported) { // answers that only HTTP has
		err = nil
	}
	return errors.Join(b.redfish.setFault(f), err)
}

// runWorld lives until it is told to go down: by request, by signal, or by the end of its leash.
func runWorld(dir string) error {
	ready, leash := os.NewFile(3, "ready"), os.NewFile(4, "leash")
	syscall.CloseOnExec(3)
	syscall.CloseOnExec(4)
	log := slog.New(slog.NewTextHandler(os.Stderr, nil))
	ctx, cancel := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer cancel()
	w, err := newWorld(ctx, dir, log, cancel)
	if err == nil {
		err = json.NewEncoder(ready).Encode(readinessMessage{Status: new(Status)})
	} else {
		err = errors.Join(err, json.NewEncoder(ready).Encode(readinessMessage{Error: err.Error()}))
	}
	ready.Close()
	if err != nil {
		return err
	}
	if w.plan.Leashed {
		go func() {
			_, _ = io.Copy(io.Discard, leash) // returns when the holder's end is closed, by its death too
			cancel()
		}()
	}
	<-ctx.Done()
	for _, h := range w.hosts {
		h.end()
	}
	for _, m := range w.machines {
		m.change.Lock()
		m.stop()
		m.change.Unlock()
		os.Remove(filesOf(m.spec.Name).Disk)
	}
	return nil
}

func newWorld(ctx context.Context, dir string, log *slog.Logger, end context.CancelFunc) (*runningLab, error) {
	w := &runningLab{log: log, machines: map[string]*labMachine{}, end: end}
	if err := os.Chdir(dir); err != nil {
		return nil, fmt.Errorf("enter lab directory: %w", err)
	}
	if err := readPlan(".", &w.plan); err != nil {
		return nil, err
	}
	if err := setupNetworks(w.plan.Layout, w.plan.VMHosts); err != nil {
		return nil, explainNetworkError(err)
	}
	if _, err := startDHCP(w.plan.Layout, log); err != nil {
		return nil, err
	}
	for _, n := range networks {
		if n.Advertise {
			if err := sendAdvertisements(ctx, n, log); err != nil {
				return nil, err
			}
		}
	}
	for _, spec := range w.plan.Layout {
		m, err := w.newInmate(ctx, spec)
		if err != nil {
			return nil, err
		}
		w.machines[spec.Name] = m
		w.order = append(w.order, spec.Name)
	}
	for _, spec := range w.plan.VMHosts {
		h, err := w.newHost(spec)
		if err != nil {
			return nil, err
		}
		w.hosts = append(w.hosts, h)
	}
	if err := w.startHosts(ctx); err != nil {
		return nil, err
	}
	if err := w.listen(ctx); err != nil {
		return nil, err
	}
	for _, name := range w.order {
		if err := w.machines[name].bmc.start(); err != nil {
			return nil, err
		}
	}
	for _, h := range w.hosts {
		if err := h.bmc.start(); err != nil {
			return nil, err
		}
	}
	return w, nil
}

func explainNetworkError(err error) error {
	if errors.Is(err, os.ErrPermission) {
		return fmt.Errorf("this system lets only root make bridges and taps; run it with sudo: %w", err)
	}
	return err
}

func (w *runningLab) newInmate(ctx context.Context, spec machineSpec) (*labMachine, error) {
	if err := os.MkdirAll(spec.Name, 0o700); err != nil {
		return nil, fmt.Errorf("machine %s: %w", spec.Name, err)
	}
	identity, err := makeDisk(ctx, spec, w.plan.Boot)
	if err != nil {
		return nil, err
	}
	m := &labMachine{qemuMachine: newMachine(spec, w.log), identity: identity}
	m.chassis = newFaulty(newForeign(m.qemuMachine, spec.Like))
	var ipmi *ipmiBMC
	if spec.BMC == IPMI || spec.SOL {
		ipmi, err = newIPMIBMC(spec, netip.AddrPortFrom(spec.bmcAddress(), ipmiPort), netip.AddrPortFrom(spec.bmcAddress(), filteredPort), w.plan.Program, w.log)
		if err != nil {
			return nil, err
		}
		m.chassis.events.forwardTo(ipmi.forwardEvent)
		m.bmc = ipmi
	}
	if spec.BMC != IPMI {
		service := newRedfishBMC(spec, m.chassis, m.qemuMachine, m.qemuMachine, w.log)
		if spec.Initiator {
			service.initiator = m.qemuMachine
		}
		m.bmc = newHTTPBMC(netip.AddrPortFrom(spec.bmcAddress(), redfishPort), service)
		if ipmi != nil {
			m.bmc = redfishAndIPMI{m.bmc, ipmi}
		}
	}
	return m, err
}

func (w *runningLab) setFault(machine, text string) error {
	chassis, bmc, err := w.behind(machine)
	if err != nil {
		return err
	}
	fault, err := ParseFault(text)
	if err != nil {
		return err
	}
	before := chassis.current()
	chassis.set(fault)
	if err := bmc.setFault(fault); err != nil {
		chassis.set(before)
		return err
	}
	w.log.Info("fault", "machine", machine, "fault", fault.String())
	return nil
}

// logEvent has the BMC of a machine or VM host log an event that did not happen.
func (w *runningLab) logEvent(machine string, kind EventKind) error {
	chassis, _, err := w.behind(machine)
	if err != nil {
		return err
	}
	return chassis.events.add(kind)
}

// behind finds the BMC of a machine or of a VM host.
func (w *runningLab) behind(name string) (*faultyChassis, bmcServer, error) {
	for _, h := range w.hosts {
		if h.spec.Name == name {
			return h.chassis, h.bmc, nil
		}
	}
	m, err := w.find(name)
	if err != nil {
		return nil, nil, err
	}
	return m.chassis, m.bmc, nil
}

func (w *runningLab) find(machine string) (*labMachine, error) {
	m, found := w.machines[machine]
	if !found {
		return nil, problem.NotFoundf("lab %s has no machine %q", w.plan.Name, machine)
	}
	return m, nil
}

// status is all but what only the outside knows: pid and absolute paths.
func (w *runningLab) status() *Status {
	s := &Status{Name: w.plan.Name, Accel: w.plan.Accel}
	for _, n := range networks {
		s.Networks = append(s.Networks, n.status())
	}
	for _, name := range w.order {
		s.Machines = append(s.Machines, w.machines[name].status())
	}
	for _, h := range w.hosts {
		s.Hosts = append(s.Hosts, h.status())
	}
	return s
}

func (m *labMachine) status() MachineStatus {
	spec, files := m.spec, filesOf(m.spec.Name)
	s := MachineStatus{
		Name: spec.Name, UUID: spec.UUID, MAC: spec.MAC, Firmware: m.Firmware(), BMC: spec.BMC, Like: spec.Like, User: spec.User, Password: spec.Password,
		PortID: spec.Tap, Network: bridgeOf(spec.Tap), TenantAddress: spec.tenantAddress().String(),
		Disk: files.Disk, Marker: m.identity.Marker, HostKey: m.identity.HostKey,
		Power: m.qemuMachine.Power(), Fault: m.chassis.current().String(), SerialLog: files.Serial,
	}
	if spec.BMC == IPMI {
		s.Address, s.Port = spec.bmcAddress().String(), ipmiPort
		return s
	}
	s.Address = "http://" + net.JoinHostPort(spec.bmcAddress().String(), fmt.Sprint(redfishPort))
	s.SystemID = "/redfish/v1/Systems/" + spec.Name
	return s
}
