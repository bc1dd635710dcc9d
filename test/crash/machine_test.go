package crash

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"salvor/driver/drivertest"
	"salvor/test/program"
)

// What a booted machine ran.
const (
	ownSystem = "own system"
	ramdisk   = "ramdisk"
)

const bmcPassword = "bmc-password-of-the-crash-tests"

// machine is a fake one: its BMC is drivertest's, and the ramdisk that it boots from
// virtual media is the real salvor-agent on a directory.
type machine struct {
	turnstile
	t        *testing.T
	bmc      *drivertest.BMC
	address  string // of the BMC
	mac      string
	password string         // asked for at the rescue
	id       string         // of the node
	stopped  string         // where
	before   map[string]int // actions of its enrollment

	mu     sync.Mutex
	asked  []string // requests to the BMC since it was forgotten
	boots  []string
	images []string
	roots  []string
	run    *ramdiskRun
	relays map[string]*relay // by the agent's own URL
	ended  bool
	live   sync.WaitGroup
}

// ramdiskRun is one boot of the ramdisk.
type ramdiskRun struct {
	stop context.CancelFunc
	done chan struct{}
}

func newMachine(t *testing.T, mac string) *machine {
	m := &machine{t: t, bmc: drivertest.NewBMC("admin", bmcPassword), mac: mac, password: "rescue of " + mac, relays: map[string]*relay{}}
	m.bmc.OnPower = m.power
	server := httptest.NewServer(m)
	m.address = server.URL
	t.Cleanup(func() {
		m.letGo()
		server.Close()
		m.halt(true)
		m.dropRelays()
		m.live.Wait()
	})
	return m
}

// ServeHTTP is the BMC behind a turnstile.
func (m *machine) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	m.mu.Lock()
	m.asked = append(m.asked, r.Method)
	m.mu.Unlock()
	m.pass(atBMC, w, func(w http.ResponseWriter) { m.bmc.ServeHTTP(w, r) })
}

// requests forgets what the BMC was asked and tells it.
func (m *machine) requests() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	out := m.asked
	m.asked = nil
	return out
}

// power is the machine that goes on or off.
func (m *machine) power(on bool, used drivertest.Override, image string) {
	m.halt(false)
	if !on {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if used.Target != "Cd" || image == "" {
		m.boots = append(m.boots, ownSystem)
		return
	}
	if m.ended {
		return
	}
	m.boots, m.images = append(m.boots, ramdisk), append(m.images, image)
	ctx, cancel := context.WithCancel(context.Background())
	m.run = &ramdiskRun{stop: cancel, done: make(chan struct{})}
	m.live.Add(1)
	go func(run *ramdiskRun) {
		defer m.live.Done()
		defer close(run.done)
		m.boot(ctx, image)
	}(m.run)
}

// halt is the loss of power: the ramdisk, if any, is gone when it returns.
func (m *machine) halt(forGood bool) {
	m.mu.Lock()
	run := m.run
	m.run, m.ended = nil, m.ended || forGood
	m.mu.Unlock()
	if run != nil {
		run.stop()
		<-run.done
	}
}

// boot reads the kernel parameters out of the medium and runs the agent.
func (m *machine) boot(ctx context.Context, image string) {
	line := kernelLine(ctx, image)
	if line == "" {
		return // off again before the medium could be read
	}
	root, err := os.MkdirTemp(m.t.TempDir(), "ramdisk")
	if err != nil {
		m.t.Error(err)
		return
	}
	file := filepath.Join(root, "cmdline")
	for path, text := range map[string]string{file: line, filepath.Join(root, "etc/shadow"): "root:*:19000:0:99999:7:::\nrescue:*:19000:0:99999:7:::\n"} {
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			m.t.Error(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			m.t.Error(err)
		}
	}
	if err := os.MkdirAll(filepath.Join(root, "run"), 0o755); err != nil {
		m.t.Error(err)
	}
	m.mu.Lock()
	m.roots = append(m.roots, root)
	m.mu.Unlock()
	agent := exec.CommandContext(ctx, program.Path(m.t, "salvor-agent"), "run", "--root", root, "--cmdline", file, "--listen", "127.0.0.1:0", "--mac", m.mac)
	agent.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	var log bytes.Buffer
	agent.Stderr = &log
	err = agent.Run()
	m.dropRelays()
	if err != nil && ctx.Err() == nil {
		m.t.Errorf("machine %s: salvor-agent: %v\n%s", m.mac, err, log.String())
	}
}

// kernelLine reads the medium as a BMC does: it asks again while nobody answers.
func kernelLine(ctx context.Context, image string) string {
	for ctx.Err() == nil {
		if text, err := fetch(ctx, image); err == nil {
			_, rest, _ := strings.Cut(text, "APPEND ipa-api-url=")
			line, _, _ := strings.Cut(rest, "\n")
			return "quiet ipa-api-url=" + line
		}
		select {
		case <-ctx.Done():
		case <-time.After(50 * time.Millisecond):
		}
	}
	return ""
}

func fetch(ctx context.Context, url string) (string, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return "", err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = errNotServed
	}
	return string(text), err
}

// state is a copy of what happened to the machine.
func (m *machine) state() (boots, images, roots []string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.boots), slices.Clone(m.images), slices.Clone(m.roots)
}

// opened are the ramdisks whose shadow file holds a password.
func (m *machine) opened() (hashes []string) {
	_, _, roots := m.state()
	for _, root := range roots {
		text, err := os.ReadFile(filepath.Join(root, "etc/shadow"))
		if err != nil {
			m.t.Error(err)
		}
		for line := range strings.Lines(string(text)) {
			if fields := strings.Split(line, ":"); fields[0] == "rescue" && strings.HasPrefix(fields[1], "$") {
				hashes = append(hashes, fields[1])
			}
		}
	}
	return hashes
}
