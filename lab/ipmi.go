package lab

import (
	"context"
	_ "embed" // the script
	"encoding/json"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"

	"salvor/lab/personality"
	"salvor/problem"
)

const (
	ipmiProgram = "/usr/bin/ipmi_sim"
	ipmiPort    = 623
	// filteredPort is where the simulator listens behind a filter.
	filteredPort = 1623
	// solPort is the TCP port of a serialLine, to which the simulator connects.
	solPort = 1624

	pythonProgram = "/usr/bin/python3"
	pyghmiDir     = "/usr/lib/python3/dist-packages/pyghmi"
)

//go:embed virtualbmc.py
var virtualBMCScript string

// ipmiBMC is one process of OpenIPMI's simulator, or of pyghmi for BMCs like VirtualBMC. It speaks the protocol; for what it does to the
// machine it calls our chassis program, which asks the lab.
type ipmiBMC struct {
	spec    machineSpec
	at      netip.AddrPort // of the BMC
	process netip.AddrPort // of the process; another one where a filter stands before it
	log     *slog.Logger

	mu      sync.Mutex
	filter  *personality.Filter
	cmd     *exec.Cmd
	done    chan struct{}
	stopped bool // by SIGSTOP
	events  chan loggedEvent
	serial  *serialLine
	endLog  func() // ends the logging of events and waits for it
}

// newIPMIBMC writes the files of the BMC's process into the machine's directory. Program is the command that reaches Hidden.
func newIPMIBMC(spec machineSpec, at, process netip.AddrPort, program []string, log *slog.Logger) (*ipmiBMC, error) {
	if !spec.Like.Filters() {
		process = at
	}
	dir := spec.Name + "/ipmi"
	if err := os.MkdirAll(dir+"/state", 0o700); err != nil {
		return nil, fmt.Errorf("IPMI BMC of %s: %w", spec.Name, err)
	}
	lab, err := os.Getwd()
	if err != nil {
		return nil, fmt.Errorf("IPMI BMC of %s: %w", spec.Name, err)
	}
	var script strings.Builder
	script.WriteString("#!/bin/sh\nexec")
	for _, arg := range append(program, hiddenChassis, lab, spec.Name) {
		script.WriteString(" '" + strings.ReplaceAll(arg, "'", `'\''`) + "'")
	}
	script.WriteString(" \"$@\"\n")
	conf, err := json.Marshal(map[string]any{
		"address": process.Addr().String(), "port": process.Port(), "user": spec.User, "password": spec.Password, "chassis": "./" + dir + "/chassis",
	})
	if err != nil {
		return nil, fmt.Errorf("IPMI BMC of %s: %w", spec.Name, err)
	}
	for name, text := range map[string]string{
		"chassis": script.String(), "lan.conf": ipmiConfig(spec, process, "./"+dir+"/chassis"), "sim.emu": ipmiCommands,
		"virtualbmc.py": virtualBMCScript, "virtualbmc.json": string(conf),
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o700); err != nil {
			return nil, fmt.Errorf("IPMI BMC of %s: %w", spec.Name, err)
		}
	}
	return &ipmiBMC{spec: spec, at: at, process: process, log: log, events: make(chan loggedEvent, maxQueued)}, nil
}

// ipmiCommands makes one management controller with a chassis and nothing else.
const ipmiCommands = `mc_setbmc 0x20
mc_add 0x20 0 no-device-sdrs 0x23 9 8 0x9f 0x1291 0xf02 persist_sdr
sel_enable 0x20 1000 0x0a
mc_enable 0x20
`

func ipmiConfig(spec machineSpec, at netip.AddrPort, chassis string) string {
	auth := "none md2 md5 straight"
	return fmt.Sprintf(`name "%s"
set_working_mc 0x20
  startlan 1
    addr %s %d
    priv_limit admin
    allowed_auths_callback %[4]s
    allowed_auths_user %[4]s
    allowed_auths_operator %[4]s
    allowed_auths_admin %[4]s
    guid %[5]s
  endlan
  chassis_control "%[6]s 0x20"
  sol "tcp:%[2]s:%[9]d" 115200
  user 1 false "" "" user 10 %[4]s
  user 2 true "%[7]s" "%[8]s" admin 10 %[4]s
`, spec.Name, at.Addr(), at.Port(), auth, strings.ReplaceAll(spec.UUID, "-", ""), chassis, spec.User, spec.Password, solPort)
}

// start runs the process; it is a no-op while one runs.
func (b *ipmiBMC) start() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.cmd != nil {
		return nil
	}
	dir := b.spec.Name + "/ipmi"
	output, err := os.OpenFile(dir+"/log", os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("start IPMI BMC of %s: %w", b.spec.Name, err)
	}
	defer output.Close()
	cmd := exec.Command(ipmiProgram, "-c", dir+"/lan.conf", "-f", dir+"/sim.emu", "-s", dir+"/state", "-n")
	if b.spec.Like.UsesPyghmi() {
		cmd = exec.Command(pythonProgram, "-B", "-W", "ignore", dir+"/virtualbmc.py", dir+"/virtualbmc.json")
	}
	cmd.Stdout, cmd.Stderr = output, output
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start IPMI BMC of %s: %w", b.spec.Name, err)
	}
	done := make(chan struct{})
	go func() {
		err := cmd.Wait()
		b.log.Info("IPMI BMC ended", "machine", b.spec.Name, "err", err)
		close(done)
	}()
	b.cmd, b.done, b.stopped = cmd, done, false
	ctx, cancel := context.WithCancel(context.Background())
	var logging sync.WaitGroup
	logging.Go(func() { b.logEvents(ctx) })
	b.endLog = func() { cancel(); logging.Wait() }
	if b.spec.SOL {
		if b.serial, err = openSerialLine(netip.AddrPortFrom(b.at.Addr(), solPort), filesOf(b.spec.Name).Serial); err != nil {
			return fmt.Errorf("start IPMI BMC of %s: %w", b.spec.Name, err)
		}
	}
	if !b.spec.Like.Filters() {
		return nil
	}
	if b.filter, err = personality.NewFilter(b.spec.Like, net.UDPAddrFromAddrPort(b.at), net.UDPAddrFromAddrPort(b.process)); err != nil {
		return fmt.Errorf("start IPMI BMC of %s: %w", b.spec.Name, err)
	}
	return nil
}

func (b *ipmiBMC) stop() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.cmd == nil {
		return
	}
	b.endLog()
	_ = b.cmd.Process.Kill()
	<-b.done
	b.cmd = nil
	if b.serial != nil {
		b.serial.close()
		b.serial = nil
	}
	if b.filter != nil {
		b.filter.Close()
		b.filter = nil
	}
}

// setFault does what the chassis program cannot do from within.
func (b *ipmiBMC) setFault(f Fault) error {
	switch f.Kind {
	case Fault503, FaultRubbish:
		return problem.Unsupportedf("fault %s of machine %s: an IPMI BMC has no such answers", f, b.spec.Name)
	case FaultDown:
		b.stop()
		return nil
	}
	if err := b.start(); err != nil {
		return err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if hang := f.Kind == FaultHang; hang != b.stopped {
		signal := syscall.SIGCONT
		if hang {
			signal = syscall.SIGSTOP
		}
		if err := b.cmd.Process.Signal(signal); err != nil {
			return fmt.Errorf("fault %s of machine %s: %w", f, b.spec.Name, err)
		}
		b.stopped = hang
	}
	return nil
}

// chassisCommand carries out what the simulator asks of its chassis program, and returns what
// that should print. The words are those of ipmi_lan(5): MC get|set|check PARAMETER [VALUE] ...
func chassisCommand(ctx context.Context, c *faultyChassis, args []string) (string, error) {
	if err := c.delay(ctx); err != nil {
		return "", err
	}
	if len(args) < 3 {
		return "", problem.Invalidf("chassis command %q: want MC get|set|check PARAMETER", args)
	}
	verb, params := args[1], args[2:]
	switch verb {
	case "get":
		var out strings.Builder
		for _, p := range params {
			if value, known := chassisGet(c, p); known {
				fmt.Fprintf(&out, "%s:%s\n", p, value)
			}
		}
		return out.String(), nil
	case "set":
		for ; len(params) >= 2; params = params[2:] {
			if err := chassisSet(ctx, c, params[0], params[1]); err != nil {
				return "", err
			}
		}
		return "", nil
	case "check":
		return "", nil
	}
	return "", problem.Invalidf("chassis command %q: not known", verb)
}

func chassisGet(c Chassis, param string) (string, bool) {
	switch param {
	case "power":
		if c.Power() == PowerOn {
			return "1", true
		}
		return "0", true
	case "boot":
		switch c.Override().Device {
		case DevicePXE:
			return "pxe", true
		case DeviceCD:
			return "cdrom", true
		case DeviceDisk:
			return "default", true
		}
		return "none", true
	}
	return "", false
}

func chassisSet(ctx context.Context, c Chassis, param, value string) error {
	switch param {
	case "power":
		action := ActionOff
		if value == "1" {
			action = ActionOn
		}
		return c.Do(ctx, action)
	case "reset":
		if c.Power() == PowerOff {
			return errOff("", "reset")
		}
		return c.Do(ctx, ActionRestart)
	case "shutdown":
		return c.Do(ctx, ActionShutdown)
	case "boot":
		// The simulator does not pass on whether the override is to persist: each is for once.
		devices := map[string]Device{"pxe": DevicePXE, "cdrom": DeviceCD, "default": DeviceDisk}
		c.SetOverride(Override{Device: devices[value]})
	}
	return nil
}
