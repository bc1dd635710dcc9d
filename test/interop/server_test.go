//go:build e2e

package interop

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"salvor/client"
	"salvor/test/must"
	"salvor/wire/ironic"
)

// Debian's own Python: the first python3 of the path may be one that knows no Debian package.
const python = "/usr/bin/python3"

// patience bounds each wait for the Python program: its modules alone take seconds to load.
const patience = 60 * time.Second

// realIronic is Debian's Ironic: API and conductor in one process, all its files in a
// directory of the test.
type realIronic struct {
	api *client.Client
	dir string

	t     testing.TB
	cmd   *exec.Cmd
	ended chan struct{}
}

// startIronic makes an empty database, starts the server on a free port and stops it at the test's end.
func startIronic(t testing.TB) *realIronic {
	t.Helper()
	s := &realIronic{t: t, dir: t.TempDir()}
	for _, name := range []string{"state", "tftp", "certificates"} {
		must.OK(t, os.Mkdir(filepath.Join(s.dir, name), 0o755))
	}
	for _, name := range []string{"kernel", "ramdisk"} {
		must.OK(t, os.WriteFile(filepath.Join(s.dir, name), []byte(name), 0o644))
	}
	t.Cleanup(func() {
		s.stop()
		if t.Failed() {
			t.Logf("Ironic's log:\n%s", s.log())
		}
	})
	s.configure(0)
	if out, err := s.command("dbsync", "create_schema").CombinedOutput(); err != nil {
		if strings.Contains(string(out), "No module named 'ironic'") || os.IsNotExist(err) {
			t.Fatal("no Ironic: install the package python3-ironic")
		}
		t.Fatalf("ironic-dbsync: %v\n%s", err, out)
	}
	// The port is chosen here, for the boot parameters name it; somebody may take it first.
	for try := 0; ; try++ {
		port := freePort(t)
		s.configure(port)
		if s.start() {
			s.connect(port)
			return s
		}
		if try == 3 || !strings.Contains(s.log(), "Address already in use") {
			t.Fatal("Ironic did not start")
		}
	}
}

func freePort(t testing.TB) int {
	listener := must.Get(net.Listen("tcp", "127.0.0.1:0"))(t)
	defer listener.Close()
	return listener.Addr().(*net.TCPAddr).Port
}

// configure writes the configuration. Beside fake power it takes the interfaces of real machines
// where Ironic's fake ones fall short: the fake deploy drops heartbeats, the fake boot cannot
// rescue, the fake management knows no disk to go back to.
func (s *realIronic) configure(port int) {
	s.t.Helper()
	text := strings.NewReplacer("DIR", s.dir, "PORT", fmt.Sprint(port)).Replace(`[DEFAULT]
auth_strategy = noauth
rpc_transport = none
host = conductor-of-the-test
my_ip = 127.0.0.1
state_path = DIR/state
tempdir = DIR/state
enabled_hardware_types = fake-hardware
enabled_bios_interfaces = no-bios
enabled_boot_interfaces = pxe
enabled_console_interfaces = no-console
enabled_deploy_interfaces = direct,fake
enabled_inspect_interfaces = no-inspect
enabled_management_interfaces = fake,noop
enabled_network_interfaces = noop
default_network_interface = noop
enabled_power_interfaces = fake
enabled_raid_interfaces = no-raid
enabled_rescue_interfaces = agent,fake,no-rescue
enabled_storage_interfaces = noop
enabled_vendor_interfaces = no-vendor
graceful_shutdown_timeout = 5
[api]
host_ip = 127.0.0.1
port = PORT
api_workers = 1
[database]
connection = sqlite:///DIR/ironic.sqlite
[conductor]
automated_clean = false
file_url_allowed_paths = DIR
require_rescue_password_hashed = true
[agent]
certificates_path = DIR/certificates
require_tls = true
[deploy]
default_boot_mode = bios
http_root = DIR/state/http
[dhcp]
dhcp_provider = none
[pxe]
tftp_root = DIR/tftp
tftp_master_path = DIR/tftp/master
images_path = DIR/state/images
instance_master_path = DIR/state/master
[service_catalog]
endpoint_override = http://127.0.0.1:PORT
[oslo_concurrency]
lock_path = DIR/state/lock
`)
	must.OK(s.t, os.WriteFile(filepath.Join(s.dir, "ironic.conf"), []byte(text), 0o600))
}

// command is one of Ironic's programs by the module of its entry point.
func (s *realIronic) command(module string, args ...string) *exec.Cmd {
	run := "import sys; from ironic.cmd." + module + " import main; sys.exit(main())"
	cmd := exec.Command(python, append([]string{"-c", run, "--config-file", filepath.Join(s.dir, "ironic.conf")}, args...)...)
	cmd.Env = append(os.Environ(), "HOME="+s.dir, "no_proxy=*", "PYTHONDONTWRITEBYTECODE=1", "PYTHONWARNINGS=ignore")
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	return cmd
}

// start tells whether the API came up.
func (s *realIronic) start() bool {
	s.t.Helper()
	log := must.Get(os.Create(filepath.Join(s.dir, "log")))(s.t)
	defer log.Close()
	s.cmd = s.command("singleprocess")
	s.cmd.Stdout, s.cmd.Stderr = log, log
	must.OK(s.t, s.cmd.Start())
	ended := make(chan struct{})
	s.ended = ended
	go func(cmd *exec.Cmd) {
		_ = cmd.Wait()
		close(ended)
	}(s.cmd)
	for late := time.After(patience); ; {
		select {
		case <-ended:
			return false
		case <-late:
			return false
		case <-time.After(50 * time.Millisecond):
			if strings.Contains(s.log(), "wsgi starting up on") {
				return true
			}
		}
	}
}

func (s *realIronic) stop() {
	if s.cmd == nil || s.cmd.Process == nil {
		return
	}
	_ = s.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-s.ended:
	case <-time.After(15 * time.Second):
		_ = s.cmd.Process.Kill()
		<-s.ended
	}
}

func (s *realIronic) log() string {
	text, _ := os.ReadFile(filepath.Join(s.dir, "log"))
	const most = 20_000
	return string(text[max(0, len(text)-most):])
}

func (s *realIronic) connect(port int) {
	s.t.Helper()
	api := must.Get(client.New(client.Config{Endpoint: fmt.Sprintf("http://127.0.0.1:%d", port)}))(s.t)
	s.api = api
}

// adopted enrolls a machine with one NIC and brings it to active without deploying it.
func (s *realIronic) adopted(mac string) *client.Node {
	s.t.Helper()
	kernel, ramdisk := "file://"+filepath.Join(s.dir, "kernel"), "file://"+filepath.Join(s.dir, "ramdisk")
	node := must.Get(s.api.CreateNode(s.t.Context(), client.Record{
		"driver": "fake-hardware", "deploy_interface": "direct", "rescue_interface": "agent", "management_interface": "noop",
		"instance_info": client.Record{"image_source": "http://127.0.0.1:1/image", "image_checksum": strings.Repeat("0", 32), "image_type": "whole-disk"},
		"driver_info":   client.Record{"deploy_kernel": kernel, "deploy_ramdisk": ramdisk, "rescue_kernel": kernel, "rescue_ramdisk": ramdisk},
	}))(s.t)
	must.Get(s.api.Create(s.t.Context(), client.Ports, client.Record{"node_uuid": node.UUID, "address": mac}))(s.t)
	s.provision(node.UUID, ironic.ProvisionRequest{Target: "manage"}, "manageable")
	return s.provision(node.UUID, ironic.ProvisionRequest{Target: "adopt"}, "active")
}

// provision gives a node a verb and waits for a state.
func (s *realIronic) provision(node string, request ironic.ProvisionRequest, want string) *client.Node {
	s.t.Helper()
	if err := s.api.Provision(s.t.Context(), node, request); err != nil {
		s.t.Fatalf("%s: %v", request.Target, err)
	}
	return s.reach(node, want)
}

// reach waits until a node is in a state with nobody at work on it.
func (s *realIronic) reach(node, want string) *client.Node {
	s.t.Helper()
	var n *client.Node
	for end := time.Now().Add(patience); ; time.Sleep(100 * time.Millisecond) {
		var err error
		if n, err = s.api.Node(s.t.Context(), node); err != nil {
			s.t.Fatal(err)
		}
		switch {
		case n.ProvisionState == want && n.Reservation == "":
			return n
		case strings.HasSuffix(n.ProvisionState, " failed"), time.Now().After(end):
			s.t.Fatalf("node is in %q, want %q: %s", n.ProvisionState, want, n.LastError)
		}
	}
}

// commandLine is the kernel command line with which Ironic's PXE boots the machine's ramdisk.
func (s *realIronic) commandLine(mac string) string {
	s.t.Helper()
	text := must.Get(os.ReadFile(filepath.Join(s.dir, "tftp", "pxelinux.cfg", "01-"+strings.ReplaceAll(mac, ":", "-"))))(s.t)
	_, deploy, _ := strings.Cut(string(text), "label deploy\n")
	for line := range strings.Lines(deploy) {
		if line, ok := strings.CutPrefix(line, "append "); ok {
			return line
		}
	}
	s.t.Fatalf("no command line in\n%s", text)
	return ""
}
