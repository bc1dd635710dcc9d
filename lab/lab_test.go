package lab

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/insomniacslk/dhcp/dhcpv4"

	"salvor/lab/personality"
	"salvor/problem"
	"salvor/test/must"
)

func TestSpecDefaultsAndRefusals(t *testing.T) {
	s := must.Get(Spec{StateDir: t.TempDir()}.withDefaults())(t)
	if s.Name != "default" || s.Machines != 1 || s.BMC != Redfish || s.Firmware != BIOS || s.Memory != 512 || s.Disk != TenantDisk || s.Accel != "tcg" {
		t.Errorf("defaults: %+v", s)
	}
	for _, wrong := range []Spec{
		{Name: "../x"}, {Name: "A"}, {Machines: -1}, {Hosts: maxHosts + 1}, {Hosts: -1}, {Machines: maxMachines + 1}, {BMC: "ilo"}, {Firmware: "coreboot"},
		{Memory: 1}, {Disk: "full"}, {Accel: "kvm:tcg"}, {Like: "abacus"}, {Like: personality.ILO5, BMC: IPMI}, {Like: personality.VirtualBMC, BMC: Redfish},
	} {
		if _, err := wrong.withDefaults(); !problem.Is(err, problem.Invalid) {
			t.Errorf("%+v: %v, want Invalid", wrong, err)
		}
	}
}

// TestLikeDecidesTheProtocol: a personality speaks what it speaks.
func TestLikeDecidesTheProtocol(t *testing.T) {
	for like, want := range map[personality.Name]BMCType{personality.ILO5: Redfish, personality.VirtualBMC: IPMI} {
		if s := must.Get(Spec{Like: like}.withDefaults())(t); s.BMC != want || s.machineSpecs()[0].Like != like {
			t.Errorf("like %s: %+v, want a BMC that speaks %s", like, s, want)
		}
	}
}

func TestMachinesDiffer(t *testing.T) {
	seen := map[string]string{}
	s := must.Get(Spec{Machines: maxMachines}.withDefaults())(t)
	for _, m := range s.machineSpecs() {
		for _, id := range []string{m.Name, m.UUID, m.MAC, m.Tap, m.tenantAddress().String(), m.bmcAddress().String()} {
			if other := seen[id]; other != "" {
				t.Errorf("%s is of %s and %s", id, other, m.Name)
			}
			seen[id] = m.Name
		}
		if !tenantNet.Prefix4.Contains(m.tenantAddress()) || len(m.Tap) > 15 {
			t.Errorf("%+v", m)
		}
		if _, err := net.ParseMAC(m.MAC); err != nil {
			t.Error(err)
		}
	}
}

func TestBootOrder(t *testing.T) {
	for _, c := range []struct {
		first Device
		disk  DiskKind
		cd    bool
		want  []Device
	}{
		{DeviceDefault, TenantDisk, true, []Device{DeviceDisk}},
		{DeviceDefault, BlankDisk, false, []Device{DeviceDisk, DevicePXE}},
		{DeviceDisk, TenantDisk, false, []Device{DeviceDisk}},
		{DeviceCD, TenantDisk, true, []Device{DeviceCD, DeviceDisk}},
		{DeviceCD, TenantDisk, false, []Device{DeviceDisk}},
		{DevicePXE, TenantDisk, true, []Device{DevicePXE, DeviceDisk}},
		{DeviceHTTP, TenantDisk, false, []Device{DeviceHTTP, DeviceDisk}},
	} {
		if got := bootOrder(c.first, c.disk, c.cd); !slices.Equal(got, c.want) {
			t.Errorf("%q %s cd %v: %v, want %v", c.first, c.disk, c.cd, got, c.want)
		}
	}
}

func TestQEMUArgs(t *testing.T) {
	line := func(f Firmware, order []Device, cd bool) string {
		return strings.Join(qemuArgs(testSpec, f, order, cd), " ")
	}
	for _, c := range []struct {
		name, line string
		has, not   []string
	}{
		{"BIOS disk", line(BIOS, []Device{DeviceDisk}, false),
			[]string{"virtio-blk-pci,drive=disk,serial=m1,bootindex=0", "romfile=", "accel=tcg", "-no-reboot"}, []string{"scsi-cd", "pflash"}},
		{"BIOS PXE", line(BIOS, []Device{DevicePXE, DeviceDisk}, false),
			[]string{"mac=52:54:00:5a:4c:01,bootindex=0", "serial=m1,bootindex=1"}, []string{"romfile="}},
		{"BIOS CD", line(BIOS, []Device{DeviceCD, DeviceDisk}, true), []string{"drive=cd,bootindex=0", "file=m1/cd.iso"}, nil},
		{"UEFI disk", line(UEFI, []Device{DeviceDisk}, false),
			[]string{ovmfCode, "IPv4PXESupport,string=n", "romfile="}, []string{",bootindex=1"}},
		{"UEFI PXE", line(UEFI, []Device{DevicePXE, DeviceDisk}, false), []string{"IPv4PXESupport,string=y", "romfile="}, nil},
		{"UEFI HTTP", line(UEFI, []Device{DeviceHTTP, DeviceDisk}, false),
			[]string{"IPv4PXESupport,string=n", "IPv6PXESupport,string=n", "IPv6Support,string=n", "mac=52:54:00:5a:4c:01,bootindex=0"}, nil},
	} {
		for _, want := range c.has {
			if !strings.Contains(c.line, want) {
				t.Errorf("%s: no %q in %s", c.name, want, c.line)
			}
		}
		for _, not := range c.not {
			if strings.Contains(c.line, not) {
				t.Errorf("%s: %q in %s", c.name, not, c.line)
			}
		}
	}
}

func TestParseFault(t *testing.T) {
	for _, text := range []string{"none", "down", "hang", "503", "rubbish", "lie-power", "slow=5s"} {
		f, err := ParseFault(text)
		if err != nil || f.String() != text {
			t.Errorf("%s: %v %v", text, f, err)
		}
	}
	for _, text := range []string{"", "slow", "slow=", "slow=-1s", "slow=1h", "down=1", "fire"} {
		if _, err := ParseFault(text); !problem.Is(err, problem.Invalid) {
			t.Errorf("%q: %v, want Invalid", text, err)
		}
	}
}

func FuzzParseFault(f *testing.F) {
	f.Add("slow=5s")
	f.Add("lie-power")
	f.Fuzz(func(t *testing.T, text string) {
		fault, err := ParseFault(text)
		if err != nil {
			return
		}
		if again, err := ParseFault(fault.String()); err != nil || again != fault {
			t.Errorf("%q: %v, then %v %v", text, fault, again, err)
		}
	})
}

func TestChassisCommands(t *testing.T) {
	m := &fakeMachine{power: PowerOff}
	c := newFaulty(m)
	run := func(args ...string) string {
		t.Helper()
		out := must.Get(chassisCommand(t.Context(), c, append([]string{"0x20"}, args...)))(t)
		return out
	}
	if out := run("get", "power", "boot", "unknown"); out != "power:0\nboot:none\n" {
		t.Errorf("get: %q", out)
	}
	run("set", "boot", "pxe", "power", "1")
	if !slices.Equal(m.actions, []Action{ActionOn}) || m.Power() != PowerOn {
		t.Errorf("actions %v", m.actions)
	}
	for value, want := range map[string]Device{"pxe": DevicePXE, "cdrom": DeviceCD, "default": DeviceDisk, "none": DeviceDefault, "bios": DeviceDefault} {
		run("set", "boot", value)
		if m.Override() != (Override{Device: want}) {
			t.Errorf("boot %s: %+v", value, m.Override())
		}
	}
	run("set", "reset", "1")
	run("set", "shutdown", "1")
	run("set", "power", "0")
	run("check", "power", "1")
	if want := []Action{ActionOn, ActionRestart, ActionShutdown, ActionOff}; !slices.Equal(m.actions, want) {
		t.Errorf("actions %v, want %v", m.actions, want)
	}
	for _, wrong := range [][]string{{}, {"0x20", "get"}, {"0x20", "burn", "power"}, {"0x20", "set", "reset", "1"}} {
		if _, err := chassisCommand(t.Context(), c, wrong); err == nil {
			t.Errorf("%v: no error", wrong)
		}
	}
}

func TestTenantDHCP(t *testing.T) {
	mac, _ := net.ParseMAC(testSpec.MAC)
	discover := must.Get(dhcpv4.NewDiscovery(mac))(t)
	offer, err := dhcpAnswer(testSpec, discover)
	if err != nil || offer.MessageType() != dhcpv4.MessageTypeOffer || !offer.YourIPAddr.Equal(net.IPv4(10, 78, 0, 11)) {
		t.Fatalf("offer %v: %v", offer, err)
	}
	if offer.BootFileName != "" || offer.TFTPServerName() != "" || offer.ServerIPAddr == nil {
		t.Errorf("a tenant's offer boots nothing: %s", offer.Summary())
	}
	request, err := dhcpv4.NewRequestFromOffer(offer)
	if err != nil {
		t.Fatal(err)
	}
	if ack, err := dhcpAnswer(testSpec, request); err != nil || ack.MessageType() != dhcpv4.MessageTypeAck {
		t.Errorf("ack %v: %v", ack, err)
	}
	request.UpdateOption(dhcpv4.OptRequestedIPAddress(net.IPv4(10, 77, 0, 50)))
	if nak, err := dhcpAnswer(testSpec, request); err != nil || nak.MessageType() != dhcpv4.MessageTypeNak {
		t.Errorf("an address of another network: %v %v", nak, err)
	}
	request.UpdateOption(dhcpv4.OptServerIdentifier(net.IPv4(10, 77, 0, 1)))
	if other, err := dhcpAnswer(testSpec, request); err != nil || other != nil {
		t.Errorf("a request to another server: %v %v", other, err)
	}
}

func TestAdvertisement(t *testing.T) {
	mac, _ := net.ParseMAC("02:00:00:00:00:01")
	m := marshalAdvertisement(provisionNet, mac)
	if len(m) != 56 || m[0] != 134 || m[16] != 3 || m[17] != 4 || m[18] != 64 || m[48] != 1 || m[49] != 1 || !bytes.Equal(m[50:], mac) {
		t.Errorf("advertisement % x", m)
	}
	if !bytes.Equal(m[32:48], net.ParseIP("fd77::")) {
		t.Errorf("prefix % x", m[32:48])
	}
}

func TestPartitionTable(t *testing.T) {
	mbr := partitionTable(bytes.Repeat([]byte{0x90}, 440))
	if len(mbr) != 512 || mbr[0] != 0x90 || mbr[510] != 0x55 || mbr[511] != 0xaa {
		t.Fatalf("% x", mbr)
	}
	first, second := mbr[446:462], mbr[462:478]
	if first[0] != 0x80 || first[4] != 0xef || second[0] != 0 || second[4] != 0x83 {
		t.Errorf("entries % x, % x", first, second)
	}
	end := binary.LittleEndian.Uint32(first[8:]) + binary.LittleEndian.Uint32(first[12:])
	if start := binary.LittleEndian.Uint32(second[8:]); start != end || start != rootStart/512 {
		t.Errorf("the second partition begins at %d, the first ends at %d", start, end)
	}
}

func TestForgottenHash(t *testing.T) {
	a, b := forgottenHash(), forgottenHash()
	if a == b || len(a) != 3+16+1+86 || !strings.HasPrefix(a, "$6$") || strings.ContainsAny(a, ":\n") {
		t.Errorf("%q, %q", a, b)
	}
}

func TestImageFetch(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/good":
			io.WriteString(w, "image")
		case "/cut":
			w.Header().Set("Content-Length", "100")
			io.WriteString(w, "ima")
		default:
			http.NotFound(w, r)
		}
	}))
	defer server.Close()
	to := filepath.Join(t.TempDir(), "cd.iso")
	c := newImageClient()
	must.OK(t, c.fetch(t.Context(), server.URL+"/good", to))
	for url, kind := range map[string]problem.Kind{
		server.URL + "/none": problem.Unavailable, server.URL + "/cut": problem.Unavailable, "http://127.0.0.1:1/": problem.Unavailable,
		"file:///etc/passwd": problem.Invalid, "http://": problem.Invalid, "::": problem.Invalid,
	} {
		if err := c.fetch(t.Context(), url, to); problem.KindOf(err) != kind {
			t.Errorf("%s: %v, want %s", url, err, kind)
		}
	}
	if content, err := os.ReadFile(to); err != nil || string(content) != "image" {
		t.Errorf("a failed fetch touched the old image: %q %v", content, err)
	}
}

// qemuEnd is the far end of a QMP connection: it answers each command by script.
func qemuEnd(t *testing.T, script func(command string) []string) net.Conn {
	t.Helper()
	near, far := net.Pipe()
	t.Cleanup(func() { near.Close(); far.Close() })
	go func() {
		io.WriteString(far, `{"QMP":{"version":{},"capabilities":[]}}`+"\n")
		commands := json.NewDecoder(far)
		for {
			var c struct{ Execute string }
			if commands.Decode(&c) != nil {
				return
			}
			for _, line := range script(c.Execute) {
				if line == "" {
					far.Close()
					return
				}
				io.WriteString(far, line+"\n")
			}
		}
	}()
	return near
}

func TestQMP(t *testing.T) {
	q := must.Get(newQMP(qemuEnd(t, func(command string) []string {
		switch command {
		case "query-status":
			return []string{`{"event":"RESUME","data":{}}`, `{"return":{"status":"running"}}`}
		case "system_reset":
			return []string{`{"return":{}}`, `{"event":"SHUTDOWN","data":{"guest":true,"reason":"guest-reset"}}`, ""}
		case "wrong":
			return []string{`{"error":{"class":"CommandNotFound","desc":"no such command"}}`}
		}
		return []string{`{"return":{}}`}
	})))(t)
	var status struct{ Status string }
	if err := q.do(t.Context(), "query-status", nil, &status); err != nil || status.Status != "running" {
		t.Errorf("query-status: %+v %v", status, err)
	}
	if err := q.do(t.Context(), "wrong", nil, nil); err == nil || !strings.Contains(err.Error(), "no such command") {
		t.Errorf("wrong: %v", err)
	}
	if err := q.do(t.Context(), "system_reset", nil, nil); err != nil {
		t.Error(err)
	}
	for start := time.Now(); q.shutdownReason() != "guest-reset"; {
		if time.Since(start) > 5*time.Second {
			t.Fatalf("reason %q", q.shutdownReason())
		}
	}
	if err := q.do(t.Context(), "query-status", nil, nil); err == nil {
		t.Error("a closed connection answers")
	}
}

func TestQMPSilenceEnds(t *testing.T) {
	q := must.Get(newQMP(qemuEnd(t, func(command string) []string {
		if command == "qmp_capabilities" {
			return []string{`{"return":{}}`}
		}
		return nil
	})))(t)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if err := q.do(ctx, "stop", nil, nil); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("silence: %v", err)
	}
}

func FuzzControlLine(f *testing.F) {
	f.Add([]byte(`{"op":"status"}` + "\n"))
	f.Add([]byte("{}\n\n{"))
	w := &runningLab{log: slog.New(slog.DiscardHandler), machines: map[string]*labMachine{}, end: func() {}}
	f.Fuzz(func(t *testing.T, input []byte) {
		if bytes.Contains(input, []byte(`"op"`)) && bytes.Contains(input, []byte("status")) {
			t.Skip("status asks the kernel")
		}
		dir := t.TempDir()
		l := must.Get(net.ListenUnix("unix", &net.UnixAddr{Name: filepath.Join(dir, "s"), Net: "unix"}))(t)
		defer l.Close()
		client := must.Get(net.DialUnix("unix", nil, l.Addr().(*net.UnixAddr)))(t)
		server := must.Get(l.AcceptUnix())(t)
		client.Write(input)
		client.CloseWrite()
		w.converse(t.Context(), server) // must return, whatever came
		client.Close()
	})
}
