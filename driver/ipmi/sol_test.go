package ipmi

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"salvor/driver"
	"salvor/metal"
	"salvor/problem"
	"salvor/test/must"
)

// serialLine is the serial port of a machine, to which ipmi_sim connects.
type serialLine struct {
	listener net.Listener
	conn     chan net.Conn
}

func newSerialLine(t *testing.T) *serialLine {
	t.Helper()
	l := &serialLine{must.Get(net.Listen("tcp", "127.0.0.1:0"))(t), make(chan net.Conn, 1)}
	t.Cleanup(func() { _ = l.listener.Close() })
	go func() {
		for {
			conn, err := l.listener.Accept()
			if err != nil {
				return
			}
			select {
			case l.conn <- conn:
			default:
				_ = conn.Close()
			}
		}
	}()
	return l
}

// config is the line of lan.conf that leads to it.
func (l *serialLine) config() string {
	return fmt.Sprintf("  sol \"tcp:%s\" 115200\n", l.listener.Addr())
}

// heard is what a console said until now.
type heard struct {
	mu   sync.Mutex
	text bytes.Buffer
	more chan struct{} // one place
}

func newHeard() *heard { return &heard{more: make(chan struct{}, 1)} }

func (h *heard) Write(p []byte) (int, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	select {
	case h.more <- struct{}{}:
	default:
	}
	return h.text.Write(p)
}

// until waits for the end of what the machine says.
func (h *heard) until(t *testing.T, end string) string {
	t.Helper()
	late := time.After(time.Minute)
	for {
		h.mu.Lock()
		text := h.text.String()
		h.mu.Unlock()
		if strings.HasSuffix(text, end) {
			return text
		}
		select {
		case <-h.more:
		case <-late:
			t.Fatalf("%d bytes, and no %q", len(text), end)
		}
	}
}

// read has a console read in the background. The returned function ends that and gives its error.
func (s SOL) read(t *testing.T, n *metal.Node) (*heard, func() error) {
	t.Helper()
	h, ended, opened := newHeard(), make(chan error, 1), make(chan struct{})
	ctx, cancel := context.WithCancel(t.Context())
	go func() { ended <- s.ReadConsole(ctx, n, func() { close(opened) }, h) }()
	select {
	case <-opened:
	case err := <-ended:
		cancel()
		t.Fatalf("the console does not open: %v", err)
	}
	return h, func() error { cancel(); return <-ended }
}

// TestSOL reads the serial line of a machine through a BMC of OpenIPMI: every byte of it, while other requests go on. Nothing goes to the machine.
func TestSOL(t *testing.T) {
	line := newSerialLine(t)
	s := startSim(t, line.config())
	d := SOL{&Driver{Locks: &driver.AddressLocks{}, Logins: &driver.Logins{}}}
	h, end := d.read(t, s.node())
	machine := <-line.conn
	defer machine.Close()
	var said strings.Builder
	for i := range 400 {
		fmt.Fprintf(&said, "[%5d.000000] a line of a kernel, \x1b[31mred\x1b[0m\r\n", i)
	}
	said.WriteString("web1 login: ")
	for text := said.String(); text != ""; {
		part := text[:min(256, len(text))]
		must.Get(machine.Write([]byte(part)))(t)
		text = text[len(part):]
		if len(text)%2048 < 256 { // a serial line is no network
			time.Sleep(20 * time.Millisecond)
		}
	}
	if text := h.until(t, "web1 login: "); text != said.String() {
		t.Errorf("%d bytes were said, and %d heard", said.Len(), len(text))
	}
	if state := must.Get(d.PowerState(t.Context(), s.node()))(t); state != metal.PowerOff {
		t.Errorf("while the console is read, the power is %s", state)
	}
	must.Get(machine.Write([]byte("root\r\nPassword: ")))(t)
	h.until(t, "Password: ")
	if err := d.ReadConsole(t.Context(), s.node(), func() { t.Error("a second reader has it too") }, newHeard()); !problem.Is(err, problem.Conflict) || !strings.Contains(err.Error(), "sol deactivate") {
		t.Errorf("a second reader: %v", err)
	}
	must.Get(machine.Write([]byte("Login incorrect\r\n")))(t)
	h.until(t, "Login incorrect\r\n")
	enabled := s.node()
	enabled.ConsoleEnabled = true
	must.OK(t, d.StartConsole(t.Context(), enabled))
	if err := end(); err == nil || t.Context().Err() != nil {
		t.Errorf("the end: %v", err)
	}
	must.OK(t, d.StartConsole(t.Context(), s.node()))
	_ = machine.SetReadDeadline(time.Now().Add(100 * time.Millisecond))
	if n, _ := machine.Read(make([]byte, 10)); n != 0 {
		t.Error("the machine was sent something")
	}
	_, again := d.read(t, s.node())
	s.stop()
	_ = again()
}

// TestNoSOL: a console that cannot be read says why.
func TestNoSOL(t *testing.T) {
	s := startSim(t, "")
	wrong, key := s.node(), s.node()
	wrong.DriverInfo[PasswordKey] = "wrong"
	key.DriverInfo[BMCKeyKey] = "0102"
	for _, tc := range []struct {
		name string
		d    SOL
		n    *metal.Node
		kind problem.Kind
		says string
	}{
		{"no SOL", SOL{new(Driver)}, s.node(), problem.Unsupported, "Serial over LAN"},
		{"a wrong password", SOL{new(Driver)}, wrong, problem.Invalid, PasswordKey},
		{"ipmitool", SOL{&Driver{Client: IPMITool}}, s.node(), problem.Unsupported, "client in Go"},
		{"a BMC's key", SOL{new(Driver)}, key, problem.Unsupported, BMCKeyKey},
		{"no BMC", SOL{new(Driver)}, &metal.Node{ID: "n1", DriverInfo: metal.Object{}}, problem.Invalid, AddressKey},
	} {
		if err := tc.d.StartConsole(t.Context(), tc.n); !problem.Is(err, tc.kind) || !strings.Contains(err.Error(), tc.says) {
			t.Errorf("%s: %v (%s)", tc.name, err, problem.KindOf(err))
		}
	}
}

// TestSOLOfADeadBMC: the reading ends when nobody answers any more.
func TestSOLOfADeadBMC(t *testing.T) {
	line := newSerialLine(t)
	s := startSim(t, line.config())
	ended, opened := make(chan error, 1), make(chan struct{})
	go func() {
		ended <- SOL{new(Driver)}.ReadConsole(t.Context(), s.node(), func() { close(opened) }, newHeard())
	}()
	<-opened
	s.stop()
	select {
	case err := <-ended:
		if !problem.Is(err, problem.Unavailable) {
			t.Errorf("%v (%s)", err, problem.KindOf(err))
		}
	case <-time.After(2 * time.Minute):
		t.Error("the reading goes on")
	}
}
