package ipmi

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/bougou/go-ipmi/pkg/client"
	"github.com/bougou/go-ipmi/pkg/types"
	"go.uber.org/goleak"

	"salvor/driver"
	"salvor/driver/drivertest"
	"salvor/metal"
	"salvor/problem"
	"salvor/rescue"
	"salvor/test/debian"
	"salvor/test/must"
)

const password = "hunter2-Tr0ub4dor"

// sim is Debian's ipmi_sim with a shell script for a machine.
type sim struct {
	dir     string
	port    int
	console int // TCP port that takes commands of the simulator
	cmd     *exec.Cmd
}

// script is what ipmi_sim runs: MC get|set|check PARAMETER [VALUE] ... (ipmi_lan(5)).
const script = `#!/bin/sh
cd "$(dirname "$0")" || exit 1
[ -e slow ] && sleep 0.1
shift; verb=$1; shift
case $verb in
get) for p; do case $p in
	power) [ -e on ] && echo power:1 || echo power:0 ;;
	boot) if [ -e boot ]; then read -r b <boot; echo "boot:$b"; else echo boot:none; fi ;;
	esac; done ;;
set) while [ $# -ge 2 ]; do p=$1 v=$2; shift 2
	[ -e liar ] && continue
	case $p in
	power) if [ "$v" = 1 ]; then : >on; else rm -f on; fi ;;
	shutdown) rm -f on ;;
	boot) if [ "$v" = none ]; then rm -f boot; else echo "$v" >boot; fi ;;
	esac; done ;;
esac
exit 0
`

const config = `name "machine"
set_working_mc 0x20
  startlan 1
    addr 127.0.0.1 %d
    priv_limit admin
    allowed_auths_callback none md2 md5 straight
    allowed_auths_user none md2 md5 straight
    allowed_auths_operator none md2 md5 straight
    allowed_auths_admin none md2 md5 straight
    guid a123456789abcdefa123456789abcdef
  endlan
  chassis_control "%s/chassis 0x20"
  console 127.0.0.1 %d
%s  user 1 false "" "" user 10 none md2 md5 straight
  user 2 true "admin" "%s" admin 10 none md2 md5 straight
`

// commands make a BMC with a temperature sensor: its number is 1, its thresholds are 80, 90 and 100 °C.
const commands = `mc_setbmc 0x20
mc_add 0x20 0 no-device-sdrs 0x23 9 8 0x9f 0x1291 0xf02 persist_sdr
sel_enable 0x20 1000 0x0a
sensor_add 0x20 0 1 0x01 0x01
sensor_set_threshold 0x20 0 1 settable 111000 100 90 80 0 0 0
sensor_set_event_support 0x20 0 1 enable scanning per-state 000000000000000 000000000000000 000000000000000 000000000000000
sensor_set_value 0x20 0 1 30 0
main_sdr_add 0x20 %s
mc_enable 0x20
`

// temperatureSensor is the Sensor Data Record of that sensor.
func temperatureSensor(t testing.TB) []byte {
	t.Helper()
	full := &types.SDRFull{GeneratorID: bmcController, SensorNumber: 1, SensorType: types.SensorTypeTemperature, SensorEventReadingType: types.EventReadingTypeThreshold}
	full.SensorUnit.BaseUnit, full.M, full.UNC_Raw, full.UCR_Raw, full.UNR_Raw = types.SensorUnitType_DegreesC, 1, 80, 90, 100
	name := "Inlet Temp"
	full.IDStringTypeLength, full.IDStringBytes = types.TypeLength(0xc0|len(name)), []byte(name)
	return must.Get(types.PackSDR(&types.SDR{RecordHeader: &types.SDRHeader{RecordID: 1, SDRVersion: 0x51, RecordType: types.SDRRecordTypeFullSensor}, Full: full}))(t)
}

// startSim starts the simulator, with more lines of its configuration.
func startSim(t *testing.T, more ...string) *sim {
	t.Helper()
	program := debian.Program(t, "ipmi_sim", "openipmi")
	s := &sim{dir: t.TempDir()}
	for range 5 {
		// ipmi_sim wants a number: one that was free a moment ago.
		probe := must.Get(net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)}))(t)
		s.port = probe.LocalAddr().(*net.UDPAddr).Port
		_ = probe.Close()
		console := must.Get(net.Listen("tcp", "127.0.0.1:0"))(t)
		s.console = console.Addr().(*net.TCPAddr).Port
		_ = console.Close()
		machine := fmt.Sprintf(commands, strings.Join(strings.Fields(fmt.Sprintf("% #x", temperatureSensor(t))), " "))
		for name, text := range map[string]string{"chassis": script, "lan.conf": fmt.Sprintf(config, s.port, s.dir, s.console, strings.Join(more, ""), password), "sim.emu": machine} {
			must.OK(t, os.WriteFile(filepath.Join(s.dir, name), []byte(text), 0o700))
		}
		state := filepath.Join(s.dir, "state")
		_ = os.Mkdir(state, 0o700)
		s.cmd = exec.Command(program, "-c", s.dir+"/lan.conf", "-f", s.dir+"/sim.emu", "-s", state, "-n")
		must.OK(t, s.cmd.Start())
		if s.up() {
			t.Cleanup(s.stop)
			return s
		}
		s.stop()
	}
	t.Fatal("ipmi_sim does not come up")
	return nil
}

// up waits until the simulator holds its port.
func (s *sim) up() bool {
	for deadline := time.Now().Add(5 * time.Second); time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
		probe, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1), Port: s.port})
		if errors.Is(err, syscall.EADDRINUSE) {
			return true
		}
		if err == nil {
			_ = probe.Close()
		}
	}
	return false
}

func (s *sim) stop() {
	_ = s.cmd.Process.Kill()
	_ = s.cmd.Wait()
}

func (s *sim) on() bool { _, err := os.Stat(s.dir + "/on"); return err == nil }

func (s *sim) node() *metal.Node {
	return &metal.Node{ID: "11111111-2222-3333-4444-555555555555", DriverInfo: metal.Object{
		AddressKey: "127.0.0.1", PortKey: float64(s.port), UsernameKey: "admin", PasswordKey: password,
	}}
}

// order has the simulator carry out a command, and waits until it has.
func (s *sim) order(t *testing.T, command string) {
	t.Helper()
	conn := must.Get(net.Dial("tcp", fmt.Sprint("127.0.0.1:", s.console)))(t)
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(5 * time.Second))
	_, err := conn.Write([]byte(command + "\r"))
	must.OK(t, err)
	text, in := "", make([]byte, 1024)
	for strings.Count(text, "> ") < 2 { // the first prompt, and that after the command
		n, err := conn.Read(in)
		must.OK(t, err)
		text += string(in[:n])
	}
}

// log has the BMC log an event, which it does with the time of its clock.
func (s *sim) log(t *testing.T, d *Driver, e drivertest.Event) {
	t.Helper()
	record := map[drivertest.EventKind][]byte{
		drivertest.MemoryError:   {recordSystemEvent, 0, 0, 0, 0, bmcController, 0, 4, 0x0c, 0x40, 0x6f, 0x01, 0xff, 0xff},
		drivertest.DriveFault:    {recordSystemEvent, 0, 0, 0, 0, bmcController, 0, 4, 0x0d, 0x50, 0x6f, 0x01, 0xff, 0xff},
		drivertest.DriveReplaced: {recordSystemEvent, 0, 0, 0, 0, bmcController, 0, 4, 0x0d, 0x50, 0x6f | bitDeasserted, 0x01, 0xff, 0xff},
		drivertest.ForeignRecord: {0xe1, 0x1b, '[', '2', 'J', 0, '\r', '\n', 0xff, 1, 2, 3, 4, 5},
	}[e.Kind]
	clock := uint32(20) // seconds since it got power
	if !e.Time.IsZero() {
		clock = uint32(e.Time.Unix())
	}
	must.OK(t, d.with(t.Context(), s.node(), "log an event", func(ctx context.Context, c commandSender) error {
		if _, err := c.send(ctx, netFnStorage, 0x49, binary.LittleEndian.AppendUint32(nil, clock)...); err != nil { // Set SEL Time
			return err
		}
		_, err := c.send(ctx, netFnStorage, 0x44, append([]byte{0, 0}, record...)...) // Add SEL Entry
		return err
	}))
}

// babbler answers every datagram with bytes that look more and more like IPMI.
func babbler(t *testing.T) int {
	t.Helper()
	conn := must.Get(net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)}))(t)
	t.Cleanup(func() { _ = conn.Close() })
	answers := [][]byte{{}, {6}, {6, 0, 0xff, 7}, {6, 0, 0xff, 7, 6}, {6, 0, 0xff, 7, 0, 0, 0}, []byte(password), append([]byte{6, 0, 0xff, 7, 6, 0x11, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff}, 1, 2), append([]byte{6, 0, 0xff, 7}, make([]byte, 40)...)}
	go func() {
		in := make([]byte, 2048)
		for i := 0; ; i++ {
			_, peer, err := conn.ReadFromUDP(in)
			if err != nil {
				return
			}
			_, _ = conn.WriteToUDP(answers[i%len(answers)], peer)
		}
	}()
	return conn.LocalAddr().(*net.UDPAddr).Port
}

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func ipmiMachine(t *testing.T, c Client) drivertest.Machine {
	s := startSim(t)
	n := s.node()
	d := &Driver{Locks: &driver.AddressLocks{}, Client: c}
	return drivertest.Machine{
		Node: n, Power: d, Management: d, On: s.on, Hidden: true,
		Break: func(f drivertest.Fault) bool {
			switch f {
			case drivertest.Down:
				s.stop()
			case drivertest.Silent:
				must.OK(t, s.cmd.Process.Signal(syscall.SIGSTOP))
			case drivertest.Liar, drivertest.Slow:
				must.OK(t, os.WriteFile(s.dir+"/"+f.String(), nil, 0o600))
			case drivertest.Rubbish:
				n.DriverInfo[PortKey] = fmt.Sprint(babbler(t))
			default:
				return false // the protocol has no such answers
			}
			return true
		},
		Log:      func(e drivertest.Event) { s.log(t, d, e) },
		Overheat: func() { s.order(t, "sensor_set_value 0x20 0 1 99 0") },
		Secrets:  []string{password},
		Wrong: map[string]func(*metal.Node){
			"no address":     func(n *metal.Node) { delete(n.DriverInfo, AddressKey) },
			"option":         func(n *metal.Node) { n.DriverInfo[AddressKey] = "-v" },
			"port":           func(n *metal.Node) { n.DriverInfo[PortKey] = "70000" },
			"cipher":         func(n *metal.Node) { n.DriverInfo[CipherKey] = "x" },
			"long user":      func(n *metal.Node) { n.DriverInfo[UsernameKey] = strings.Repeat("u", 17) },
			"long password":  func(n *metal.Node) { n.DriverInfo[PasswordKey] = strings.Repeat("p", 21) },
			"wrong password": func(n *metal.Node) { n.DriverInfo[PasswordKey] = "x" },
			"wrong user":     func(n *metal.Node) { n.DriverInfo[UsernameKey] = "nobody" },
			"no such cipher": func(n *metal.Node) { n.DriverInfo[CipherKey] = 17.0 },
		},
	}
}

func TestContract(t *testing.T) {
	for _, c := range []Client{Native, IPMITool} {
		t.Run(string(c), func(t *testing.T) {
			t.Parallel()
			debian.Program(t, "ipmitool", "ipmitool")
			drivertest.Run(t, func(t *testing.T) drivertest.Machine { return ipmiMachine(t, c) })
		})
	}
}

func TestNoProgram(t *testing.T) {
	n := (&sim{port: 1}).node()
	_, err := (&Driver{Client: IPMITool, Program: "/no/such/ipmitool"}).PowerState(t.Context(), n)
	if !problem.Is(err, problem.Invalid) || !strings.Contains(err.Error(), "no such program") {
		t.Fatal(err)
	}
	if _, err := (&Driver{Client: "telepathy"}).PowerState(t.Context(), n); !problem.Is(err, problem.Invalid) {
		t.Fatal(err)
	}
}

// meddler passes datagrams on to a BMC, and its answers through change. What becomes nil is lost.
func meddler(t *testing.T, bmc int, change func([]byte) []byte) int {
	t.Helper()
	front := must.Get(net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)}))(t)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	t.Cleanup(func() {
		cancel()
		_ = front.Close()
		<-ended
	})
	go func() {
		defer close(ended)
		in := make([]byte, 2048)
		for {
			n, peer, err := front.ReadFromUDP(in)
			if err != nil {
				return
			}
			if answer := forward(ctx, bmc, in[:n]); answer != nil {
				if answer = change(answer); answer != nil {
					_, _ = front.WriteToUDP(answer, peer)
				}
			}
		}
	}()
	return front.LocalAddr().(*net.UDPAddr).Port
}

// forward sends a datagram to a BMC and gives its answer; nil: there is none within 5 s, or before the context ends.
func forward(ctx context.Context, bmc int, b []byte) []byte {
	conn, err := net.DialUDP("udp", nil, &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1), Port: bmc})
	if err != nil {
		return nil
	}
	defer conn.Close()
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	defer stop()
	_, _ = conn.Write(b)
	_ = conn.SetReadDeadline(time.Now().Add(5 * time.Second))
	answer := make([]byte, 2048)
	n, err := conn.Read(answer)
	if err != nil {
		return nil
	}
	return answer[:n]
}

// What does not come from who knows the password is not believed.
func TestForged(t *testing.T) {
	s := startSim(t)
	inSession := func(b []byte) bool {
		kind, _ := splitPayload(b)
		return kind == 0 && len(b) > atPayload && b[atAuthType] == rmcpPlus
	}
	for name, change := range map[string]func([]byte) []byte{
		"nothing": nil,
		"code": func(b []byte) []byte {
			if inSession(b) {
				b[len(b)-1] ^= 1
			}
			return b
		},
		"body": func(b []byte) []byte {
			if inSession(b) {
				b[atPayload+20] ^= 1
			}
			return b
		},
		"unauthenticated": func(b []byte) []byte {
			if inSession(b) {
				b[atPayloadType] &^= bitAuthenticated
			}
			return b
		},
		"plain": func(b []byte) []byte {
			if inSession(b) {
				b[atPayloadType] &^= bitEncrypted | bitAuthenticated
			}
			return b
		},
		"weaker": func(b []byte) []byte {
			if kind, p := splitPayload(b); kind == payloadOpenAnswer && len(p) > 32 {
				p[16], p[24], p[32] = 0, 0, 0
			}
			return b
		},
		"IPMI 1.5": func(b []byte) []byte {
			if inSession(b) {
				return []byte{6, 0, 0xff, 7, 0, 0, 0, 0, 0, 0, 0, 0, 0, 12, 0x81, 0x04, 0x7b, 0x20, 0x14, 0x01, 0, 0x01, 0, 0, 0, 0xca}
			}
			return b
		},
	} {
		if change == nil {
			change = func(b []byte) []byte { return b }
		}
		n := s.node()
		n.DriverInfo[PortKey] = float64(meddler(t, s.port, change))
		want, timeout := name == "nothing", 500*time.Millisecond
		if want {
			timeout = 20 * time.Second
		}
		ctx, cancel := context.WithTimeout(t.Context(), timeout)
		_, err := (&Driver{}).PowerState(ctx, n)
		cancel()
		if (err == nil) != want || (err != nil && !problem.Is(err, problem.Unavailable)) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestALostSuite: a BMC that is late with one cipher suite, and refuses another one, has not refused them all. It is asked again.
func TestALostSuite(t *testing.T) {
	s := startSim(t)
	n := s.node()
	n.DriverInfo[PortKey] = float64(meddler(t, s.port, func(answer []byte) []byte {
		if kind, p := splitPayload(answer); kind == payloadOpenAnswer && len(p) > 1 && p[1] == 0 {
			return nil
		}
		return answer
	}))
	if _, err := new(Driver).PowerState(t.Context(), n); !problem.Is(err, problem.Unavailable) || strings.Contains(err.Error(), "suite") {
		t.Errorf("%v; want unavailable, with no word of suites", err)
	}
}

// A BMC, or somebody on the way, that garbles the protocol from within must not take the conductor down.
func TestScrambled(t *testing.T) {
	s := startSim(t)
	n := s.node()
	random := rand.New(rand.NewPCG(1, 2))
	n.DriverInfo[PortKey] = float64(meddler(t, s.port, func(answer []byte) []byte {
		switch random.IntN(12) {
		case 0:
			return answer[:random.IntN(len(answer))]
		case 1, 2:
			answer[random.IntN(len(answer))] ^= byte(1 + random.IntN(255))
		}
		return answer
	}))
	d := &Driver{}
	failed := 0
	for range 12 {
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		_, err := d.BootDevice(ctx, n)
		cancel()
		if err == nil {
			continue
		}
		failed++
		if problem.Is(err, problem.Internal) || strings.Contains(err.Error(), password) || strings.ContainsAny(err.Error(), "\n\x00") {
			t.Errorf("%q", err)
		}
	}
	t.Logf("%d of 12 failed", failed)
}

// Flags as real BMCs give them; ipmi_sim leaves the first byte empty.
func TestFlags(t *testing.T) {
	for _, b := range []rescue.Boot{
		{}, {Device: "pxe", Mode: "bios"}, {Device: "disk", Persistent: true, Mode: "uefi"}, {Device: "cdrom", Mode: "uefi"},
	} {
		f, known := flagsForBoot(b)
		if got := f.boot(); !known || got != b {
			t.Errorf("%+v came back as %+v", b, got)
		}
	}
	if got := (bootFlags{first: flagPersistent, selector: 1}).boot(); got != (rescue.Boot{}) {
		t.Errorf("flags that are not valid gave %+v", got)
	}
}

// The password must reach ipmitool, and be in no argument and no variable that a process list shows.
func TestToolHidesThePassword(t *testing.T) {
	dir := t.TempDir()
	program := filepath.Join(dir, "ipmitool")
	text := "#!/bin/sh\necho \"$@\" >" + dir + "/args\nhead -n1 /dev/fd/3 >" + dir + "/password\nenv >" + dir + "/environ\necho ' 01 00 00'\n"
	must.OK(t, os.WriteFile(program, []byte(text), 0o700))
	power, err := (&Driver{Client: IPMITool, Program: program}).PowerState(t.Context(), (&sim{port: 1}).node())
	if err != nil || power != metal.PowerOn {
		t.Fatalf("%q, %v", power, err)
	}
	args, _ := os.ReadFile(dir + "/args")
	given, _ := os.ReadFile(dir + "/password")
	environ, _ := os.ReadFile(dir + "/environ")
	if strings.Contains(string(args), password) || strings.Contains(string(environ), password) || strings.TrimSpace(string(given)) != password {
		t.Fatalf("arguments %q, environment %q, password %q", args, environ, given)
	}
}

// FuzzDatagram: whatever comes before a session is there is survived.
func FuzzDatagram(f *testing.F) {
	f.Add([]byte{6, 0, 0xff, 7, 6, 0x11, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff})
	f.Add([]byte{6, 0, 0xff, 7, 6, 0xc0, 1, 0, 0, 0, 0, 0, 0, 0, 4, 0, 1, 2, 3, 4})
	f.Add([]byte{6, 0, 0xff, 6, 0, 0, 0x11, 0xbe, 0x40, 0, 0, 0})
	api := must.Get(client.NewClient("127.0.0.1", 1, "u", "p"))(f)
	f.Fuzz(func(_ *testing.T, b []byte) {
		sessionStatus(b)
		isParsableDatagram(api, b)
	})
}
