// Package try runs salvor on simulated machines for people who want to see it. There are machines behind Redfish BMCs, two hosts with servers, some
// faults, and a diagnosis that found something. Nothing of it outlives the program.
package try

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"salvor/client"
	"salvor/diagnose"
	"salvor/host"
	"salvor/lab/sim"
	"salvor/lab/sim/fleet"
	"salvor/metal"
)

// Config of a trial.
type Config struct {
	// Program is the path of salvor.
	Program string
	// Address is where its API listens; empty: the port where commands look for it, or a free one where something else listens there.
	Address string
	// Machines is how many there are.
	Machines int
	// Out takes what the person reads.
	Out io.Writer
}

const (
	defaultAddress = "127.0.0.1:6385"
	anyAddress     = "127.0.0.1:0"
	// readyIn bounds each step of the preparation.
	readyIn = time.Minute
	// endIn is how long the control plane has to end by itself.
	endIn = 10 * time.Second
)

// trial is what a run has made.
type trial struct {
	Config
	began time.Time
	dir   string
	url   string
	door  string // where hosts reach the control plane
	api   *client.Client
	fleet *fleet.Fleet
}

// Run prepares a trial, says what to do with it, and goes on until ctx ends. Then it ends all and removes its files.
func Run(ctx context.Context, c Config) (err error) {
	dir, err := os.MkdirTemp("", "salvor-try-")
	if err != nil {
		return err
	}
	t := &trial{Config: c, began: time.Now(), dir: dir}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	if err := t.configure(); err != nil {
		return err
	}
	ended, stop, err := t.serve(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stop()) }()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		<-ended
		cancel()
	}()
	if err := t.goOn(ctx); err != nil && ctx.Err() == nil {
		return fmt.Errorf("%w\nthe log of the control plane ends so:\n%s", err, t.endOfLog())
	}
	select {
	case <-ended:
		return fmt.Errorf("the control plane ended:\n%s", t.endOfLog())
	default:
		return nil
	}
}

// goOn makes what there is to see, and has the machines live until ctx ends.
func (t *trial) goOn(ctx context.Context) error {
	var err error
	if t.api, err = client.New(client.Config{Endpoint: t.url, AskAgainFor: readyIn}); err != nil {
		return err
	}
	t.say("starts the control plane")
	if err := t.until(ctx, "the control plane answers", func(ctx context.Context) error {
		_, err := t.api.Nodes(ctx, client.Query{Limit: 1})
		return err
	}); err != nil {
		return err
	}
	t.fleet, err = fleet.New(fleet.Config{API: t.api, Nodes: t.Machines, Seed: 1, BootInterface: "redfish-virtual-media", BIOS: true, Rescued: 0.1, Held: 0.05,
		HeartbeatInterval: 20 * time.Second, Boot: 500 * time.Millisecond, Faults: fleet.Rates{Silent: 0.05, Slow: 0.05}, Workers: 16})
	if err != nil {
		return err
	}
	t.say("joins two hosts")
	hosts, err := t.startHosts(ctx)
	defer func() {
		for _, h := range hosts {
			err = errors.Join(err, h.Stop())
		}
	}()
	if err != nil {
		return err
	}
	var prepared error
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	err = t.fleet.Run(ctx, func(ctx context.Context) {
		if prepared = t.prepare(ctx); prepared != nil {
			cancel()
		}
	})
	return errors.Join(prepared, err)
}

// prepare enrolls the machines, makes the servers and one diagnosis, and says what to do next.
func (t *trial) prepare(ctx context.Context) error {
	t.say("enrolls %d machines", t.Machines)
	if err := t.fleet.Enroll(ctx); err != nil {
		return err
	}
	t.say("makes %d servers", len(servers))
	if err := t.makeServers(ctx); err != nil {
		return err
	}
	t.say("diagnoses a machine that does not boot")
	ill, err := t.diagnose(ctx)
	if err != nil {
		return err
	}
	t.explain(ill)
	return nil
}

// say shows a step of the preparation, with the seconds since the start.
func (t *trial) say(step string, values ...any) {
	fmt.Fprintf(t.Out, "%5.1f s  %s\n", time.Since(t.began).Seconds(), fmt.Sprintf(step, values...))
}

// configure writes the files of a control plane that can rescue simulated machines.
func (t *trial) configure() error {
	var err error
	if t.Address == "" {
		if t.Address, err = freeAddress(defaultAddress); err != nil {
			t.Address = anyAddress
		}
	}
	var ramdisks string
	if t.Address, err = freeAddress(t.Address); err != nil {
		return err
	}
	if t.door, err = freeAddress(anyAddress); err != nil {
		return err
	}
	if ramdisks, err = freeAddress(anyAddress); err != nil {
		return err
	}
	t.url = "http://" + t.Address
	files := map[string]string{
		"salvor.conf": fmt.Sprintf("[DEFAULT]\nstate_path = %[1]s/state\nauth_strategy = noauth\n[hosts]\nlisten = %[2]s\n[ramdisk]\nlisten = %[3]s\n"+
			"[conductor]\nrescue_kernel = %[1]s/boot/kernel\nrescue_ramdisk = %[1]s/boot/ramdisk\nsync_power_state_interval = 10\n", t.dir, t.door, ramdisks),
		// Simulated machines run none of these. They read their token of the medium that is made of them.
		"boot/kernel": standIn, "boot/ramdisk": standIn, "boot/isolinux.bin": standIn, "boot/ldlinux.c32": standIn,
	}
	for _, folder := range []string{"state", "boot", "host-1", "host-2", "shared"} {
		if err := os.Mkdir(filepath.Join(t.dir, folder), 0o700); err != nil {
			return err
		}
	}
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(t.dir, name), []byte(text), 0o600); err != nil {
			return err
		}
	}
	return nil
}

// freeAddress gives the address itself, or one with a free port where the port is 0. An error says that something listens there.
func freeAddress(address string) (string, error) {
	l, err := net.Listen("tcp", address)
	if err != nil {
		return "", err
	}
	return l.Addr().String(), l.Close()
}

// standIn is long enough for the table that a medium writes into its boot loader.
var standIn = strings.Repeat("a stand-in for simulated machines\n", 100)

// serve starts the control plane. ended is closed when it has ended; stop ends it.
func (t *trial) serve(ctx context.Context) (ended chan struct{}, stop func() error, err error) {
	log, err := os.Create(filepath.Join(t.dir, "serve.log"))
	if err != nil {
		return nil, nil, err
	}
	defer log.Close()
	cmd := exec.Command(t.Program, "serve", "--config", filepath.Join(t.dir, "salvor.conf"), "--listen", t.Address)
	cmd.Stdout, cmd.Stderr = log, log
	// An interrupt at the terminal is for this program, which ends the control plane last.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		return nil, nil, fmt.Errorf("start the control plane: %w", err)
	}
	ended = make(chan struct{})
	go func() { defer close(ended); _ = cmd.Wait() }()
	return ended, func() error {
		if err := cmd.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
			return err
		}
		select {
		case <-ended:
			return nil
		case <-time.After(endIn):
			return errors.Join(fmt.Errorf("the control plane did not end within %s, and was killed", endIn), cmd.Process.Kill())
		}
	}, nil
}

// endOfLog is what the control plane said last.
func (t *trial) endOfLog() string {
	text, err := os.ReadFile(filepath.Join(t.dir, "serve.log"))
	if err != nil {
		return err.Error()
	}
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	return strings.Join(lines[max(0, len(lines)-8):], "\n")
}

// until asks every tenth of a second until it holds, and gives the last error after a minute.
func (t *trial) until(ctx context.Context, what string, holds func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, readyIn)
	defer cancel()
	for {
		err := holds(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("it took more than %s until %s: %w", readyIn, what, err)
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// startHosts joins two VM hosts that share a folder of disks.
func (t *trial) startHosts(ctx context.Context) (all []*sim.Host, err error) {
	for _, name := range []string{"host-1", "host-2"} {
		h, err := sim.StartHost(ctx, sim.Config{API: t.url, Controller: "https://" + t.door, StateDir: filepath.Join(t.dir, name), Name: name, Log: slog.New(slog.DiscardHandler),
			Stores: []host.Store{{Name: "shared", Dir: filepath.Join(t.dir, "shared"), Shared: true}}, BootID: func() (string, error) { return name + "-first", nil }}, sim.NewMachine())
		if err != nil {
			return all, fmt.Errorf("%s joins: %w", name, err)
		}
		all = append(all, h)
	}
	return all, nil
}

// servers are the names of those that are made.
var servers = []string{"web1", "web2", "db1", "mail1"}

// makeServers makes servers of an empty image.
func (t *trial) makeServers(ctx context.Context) error {
	var flavor struct{ Flavor struct{ ID string } }
	var image struct{ ID string }
	type object = map[string]any
	if err := t.api.Ask(ctx, client.Compute, http.MethodPost, "/flavors", nil, object{"flavor": object{"name": "small", "ram": 64, "disk": 1, "vcpus": 1}}, &flavor); err != nil {
		return err
	}
	if err := t.api.Ask(ctx, client.Image, http.MethodPost, "/images", nil, object{"name": "debian", "disk_format": "raw", "container_format": "bare"}, &image); err != nil {
		return err
	}
	if err := t.api.Upload(ctx, client.Image, "/images/"+image.ID+"/file", strings.NewReader(strings.Repeat("\x00", 4096)), 4096); err != nil {
		return err
	}
	for _, name := range servers {
		err := t.until(ctx, "a host takes a server", func(ctx context.Context) error {
			return t.api.Ask(ctx, client.Compute, http.MethodPost, "/servers", nil, object{"server": object{
				"name": name, "flavorRef": flavor.Flavor.ID, "imageRef": image.ID, "networks": "none"}}, nil)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// diagnose has salvor say why one machine does not boot, and gives its name.
func (t *trial) diagnose(ctx context.Context) (name string, err error) {
	for i := range t.Machines {
		n, err := t.api.Node(ctx, t.fleet.UUID(i))
		if err != nil {
			return "", err
		}
		if !t.fleet.Ails(i) || n.ProvisionState != string(metal.Active) || n.Record.Text("maintenance") == "true" {
			continue
		}
		path := "/nodes/" + t.fleet.UUID(i) + "/diagnoses"
		var d metal.Diagnosis
		if err := t.api.Ask(ctx, client.Native, http.MethodPost, path, nil, map[string]any{"reboot": true}, &d); err != nil {
			return "", err
		}
		err = t.until(ctx, "the diagnosis ends", func(ctx context.Context) error {
			if err := t.api.Ask(ctx, client.Native, http.MethodGet, path+"/"+d.ID, nil, nil, &d); err != nil {
				return err
			}
			switch d.State {
			case diagnose.Finished, diagnose.Failed:
				return nil
			}
			return fmt.Errorf("it is %s", d.State)
		})
		if err != nil {
			return "", err
		}
		if d.State == diagnose.Failed {
			return "", fmt.Errorf("the diagnosis of %s failed: %s", t.fleet.Name(i), d.Problem)
		}
		return t.fleet.Name(i), nil
	}
	return "", nil
}

// explain names the machines and servers of the trial, the console, and the commands that a person may type.
func (t *trial) explain(ill string) {
	s := t.fleet.Summary()
	fmt.Fprintf(t.Out, "\nsalvor runs with %d simulated machines and 2 hosts with %d servers.\n\n  The console:  %s/console/\n\nTry, in another terminal:\n", s.Enrolled, len(servers), t.url)
	if t.Address != defaultAddress {
		fmt.Fprintf(t.Out, "  export SALVOR_URL=%s\n", t.url)
	}
	lines := [][2]string{{"node list", "all machines"}}
	if ill != "" {
		lines = append(lines, [2]string{"diagnosis show " + ill, "why one of them does not boot"}, [2]string{"node rescue " + ill + " --wait", "boot a rescue system on it"})
	}
	for _, line := range lines {
		fmt.Fprintf(t.Out, "  %s %-36s  # %s\n", t.Program, line[0], line[1])
	}
	fmt.Fprintln(t.Out, "\nCtrl-C ends it and leaves nothing behind.")
}
