package ipmi

import (
	"net"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"salvor/driver"
	"salvor/metal"
	"salvor/problem"
	"salvor/rescue"
	"salvor/test/debian"
	"salvor/test/must"
	"salvor/test/program"
)

// fakeBMC is a BMC of pyghmi, which VirtualBMC builds on: it answers cipher suite 3 whatever is asked, does not answer a login that it does
// not know, and forgets a removal of the boot override.
const fakeBMC = `
import sys
import pyghmi.ipmi.bmc as bmc

class Machine(bmc.Bmc):
    power, device = 'off', 'network'

    def get_boot_device(self):
        return self.device

    def set_boot_device(self, device):
        if device != 'default' and self.power == 'off':
            self.device = device

    def get_power_state(self):
        return self.power

    def power_off(self):
        self.power = 'off'

    def power_on(self):
        self.power = 'on'

Machine({'admin': 'password'}, port=int(sys.argv[1])).listen()
`

func startPyghmi(t *testing.T) *metal.Node {
	t.Helper()
	debian.File(t, "/usr/lib/python3/dist-packages/pyghmi", "python3-pyghmi")
	_, port, err := net.SplitHostPort(freeUDP(t))
	must.OK(t, err)
	file := t.TempDir() + "/bmc.py"
	must.OK(t, os.WriteFile(file, []byte(fakeBMC), 0o600))
	cmd := exec.Command("/usr/bin/python3", "-W", "ignore", file, port)
	cmd.Stderr = os.Stderr
	must.OK(t, cmd.Start())
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	n := &metal.Node{ID: "n1", DriverInfo: metal.Object{AddressKey: "127.0.0.1", PortKey: port, UsernameKey: "admin", PasswordKey: "password"}}
	program.Until(t, "the BMC answers", time.Minute, func() error { _, err := new(Driver).PowerState(t.Context(), n); return err })
	return n
}

func freeUDP(t *testing.T) string {
	t.Helper()
	c := must.Get(net.ListenPacket("udp", "127.0.0.1:0"))(t)
	defer c.Close()
	return c.LocalAddr().String()
}

// TestPyghmi: the BMC of another program ends a wrong record with its reason, and takes a boot device that it shows late or never.
func TestPyghmi(t *testing.T) {
	n := startPyghmi(t)
	d := new(Driver)
	for _, c := range []struct {
		key, value, says string
		kind             problem.Kind
		tries            int
	}{
		{CipherKey, "17", "set ipmi_cipher_suite to one that the BMC has", problem.Unavailable, fewTries},
		{UsernameKey, "nobody", "does not answer the login", problem.Unavailable, fewTries},
		{PasswordKey, "wrong", "refuses ipmi_username or ipmi_password", problem.Invalid, 0},
		{PrivKey, "KING", "must be ADMINISTRATOR, OPERATOR, USER or CALLBACK", problem.Invalid, 0},
		{BMCKeyKey, "xyz", "must be hexadecimal digits", problem.Invalid, 0},
		{BMCKeyKey, "0001", "has a zero byte", problem.Invalid, 0},
		{BMCKeyKey, "0102030405", "refuses ipmi_hex_kg_key", problem.Invalid, 0}, // this BMC has no such key
	} {
		wrong := n.Clone()
		wrong.DriverInfo[c.key] = c.value
		_, err := d.PowerState(t.Context(), wrong)
		if !problem.Is(err, c.kind) || !strings.Contains(err.Error(), c.says) || problem.MostTries(err) != c.tries {
			t.Errorf("%s %s: %v (%s, %d tries); want %s", c.key, c.value, err, problem.KindOf(err), problem.MostTries(err), c.says)
		}
	}
	if err := (SOL{d}).StartConsole(t.Context(), n); !problem.Is(err, problem.Unsupported) {
		t.Errorf("a console that this BMC does not have: %v (%s)", err, problem.KindOf(err))
	}
	n.DriverInfo[PrivKey] = "operator"
	for _, c := range []struct {
		power metal.Power
		boot  rescue.Boot
		note  string
	}{
		{metal.PowerOff, rescue.Boot{Device: "cdrom"}, ""},
		{metal.PowerOff, rescue.Boot{}, "still reads boot device selector 5"},
		{metal.PowerOn, rescue.Boot{Device: "pxe"}, "may be what the running machine has booted from"},
	} {
		must.OK(t, d.SetPower(t.Context(), n, c.power))
		ctx, notes := driver.WithNotes(t.Context())
		must.OK(t, d.SetBootDevice(ctx, n, c.boot))
		if texts := strings.Join(notes.Texts(), "\n"); !strings.Contains(texts, c.note) || (texts == "") != (c.note == "") {
			t.Errorf("%s, %+v: notes %q, want %q", c.power, c.boot, texts, c.note)
		}
	}
}
