package agent

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"salvor/agent/network"
	"salvor/test/must"
	agentwire "salvor/wire/agent"
	"salvor/wire/ironic"
)

const testShadow = "root:*:19000:0:99999:7:::\nrescue:*:19000:0:99999:7:::\n"

// ramdisk is a directory that looks like the root of a ramdisk.
func ramdisk(t *testing.T) string {
	t.Helper()
	root := t.TempDir()
	must.OK(t, os.MkdirAll(filepath.Join(root, "etc"), 0o755))
	must.OK(t, os.WriteFile(filepath.Join(root, "etc/shadow"), []byte(testShadow), 0o640))
	return root
}

// sleeps records how long the agent would have waited and waits almost nothing.
type sleeps struct {
	mu   sync.Mutex
	list []time.Duration
	each func(n int)
}

func (s *sleeps) sleep(ctx context.Context, d time.Duration) error {
	s.mu.Lock()
	s.list = append(s.list, d)
	n := len(s.list)
	s.mu.Unlock()
	if s.each != nil {
		s.each(n)
	}
	if d < 15*time.Second {
		return sleepContext(ctx, time.Millisecond)
	}
	return sleepContext(ctx, d) // a heartbeat's pause: the end comes by a command
}

func (s *sleeps) all() []time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]time.Duration{}, s.list...)
}

func newAgent(t *testing.T, f *fakeIronic, extra string) (*Agent, string, *sleeps, *logText) {
	t.Helper()
	root := ramdisk(t)
	log := &logText{}
	a := must.Get(New(Config{
		Root: root, CommandLine: "console=ttyS0 ipa-api-url=" + f.server.URL + " " + extra,
		Listen: "127.0.0.1:0", MACs: []string{testMAC}, Version: "9.9",
		Log: slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{Level: slog.LevelDebug})),
	}))(t)
	s := &sleeps{}
	a.sleep = s.sleep
	a.jitter = func() float64 { return 0.5 }
	return a, root, s, log
}

// logText collects a log of several goroutines.
type logText struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *logText) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(b)
}

func (l *logText) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

func runAgent(t *testing.T, a *Agent) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	return a.Run(ctx)
}

func shadowOf(t *testing.T, root string) string {
	t.Helper()
	text := must.Get(os.ReadFile(filepath.Join(root, "etc/shadow")))(t)
	return string(text)
}

func finalizeParams(hash string) string {
	return `{"rescue_password":"` + hash + `","hashed":true}`
}

func TestRescue(t *testing.T) {
	f := newIronic(t)
	a, root, _, log := newAgent(t, f, "")
	answered := make(chan map[string]any, 1)
	f.onHeartbeat = func(url string, heartbeat ironic.Heartbeat) {
		_, result := f.command(url, heartbeat.AgentVerifyCA, testToken, "rescue.finalize_rescue", finalizeParams(testHash))
		answered <- result
	}
	must.OK(t, runAgent(t, a))
	f.mu.Lock()
	defer f.mu.Unlock()
	result, callback := <-answered, f.heartbeats[0].CallbackURL
	if result["command_status"] != "SUCCEEDED" || result["command_name"] != "finalize_rescue" || result["command_error"] != nil {
		t.Errorf("finalize answered %v", result)
	}
	if got := shadowOf(t, root); !strings.Contains(got, "rescue:"+testHash+":19000:") || !strings.Contains(got, "root:*:") {
		t.Errorf("shadow is %s", got)
	}
	plan, err := network.ReadPlan(root)
	if err != nil || plan.Move != network.MoveUnknown {
		t.Errorf("plan %+v, %v", plan, err)
	}
	if _, err := net.Dial("tcp", strings.TrimPrefix(callback, "https://")); err == nil {
		t.Error("the port is open after finalize")
	}
	heartbeat := f.heartbeats[0]
	if len(f.heartbeats) != 1 || heartbeat.AgentToken == nil || *heartbeat.AgentToken != testToken || heartbeat.AgentVersion != "salvor-agent/9.9" || !strings.HasPrefix(heartbeat.CallbackURL, "https://127.0.0.1:") {
		t.Errorf("heartbeats %+v", f.heartbeats)
	}
	if f.lookups[0].Header.Get(agentwire.TokenHeader) != "" {
		t.Error("a lookup sent a token that no boot file carried")
	}
	if f.versions[0] != "1.68" || f.lookups[0].Header.Get("X-OpenStack-Ironic-API-Version") != "1.62" {
		t.Errorf("heartbeat at %s, lookup at %s", f.versions[0], f.lookups[0].Header.Get("X-OpenStack-Ironic-API-Version"))
	}
	for _, secret := range []string{testToken, testHash} {
		if strings.Contains(log.String(), secret) {
			t.Errorf("the log holds a secret:\n%s", log)
		}
		if text, _ := json.Marshal(result); strings.Contains(string(text), secret) {
			t.Error("the answer holds a secret")
		}
	}
	if !a.session.token.Empty() || a.config.CommandLine != "" {
		t.Error("secrets are kept after the end")
	}
}

func TestVersions(t *testing.T) {
	for max, want := range map[string][2]string{
		"1.115": {"1.62", "1.68"}, "1.65": {"1.62", "1.65"}, "1.50": {"1.50", "1.50"}, "1.22": {"1.31", "1.31"}, "": {"1.31", "1.31"},
	} {
		t.Run(max, func(t *testing.T) {
			f := newIronic(t)
			f.max = max
			a, _, _, _ := newAgent(t, f, "")
			f.onHeartbeat = func(url string, heartbeat ironic.Heartbeat) {
				if (want[1] == "1.68") != strings.HasPrefix(url, "https:") {
					t.Errorf("callback is %s", url)
				}
				f.command(url, heartbeat.AgentVerifyCA, testToken, "rescue.finalize_rescue", finalizeParams(testHash))
			}
			must.OK(t, runAgent(t, a))
			f.mu.Lock()
			defer f.mu.Unlock()
			if got := f.lookups[0].Header.Get("X-OpenStack-Ironic-API-Version"); got != want[0] {
				t.Errorf("lookup spoke %s, want %s", got, want[0])
			}
			if f.versions[0] != want[1] {
				t.Errorf("heartbeat spoke %s, want %s", f.versions[0], want[1])
			}
			heartbeat := f.heartbeats[0]
			if (heartbeat.AgentToken != nil) != (want[1] >= "1.62") || (heartbeat.AgentVerifyCA != "") != (want[1] >= "1.68") {
				t.Errorf("fields of %s: %+v", want[1], heartbeat)
			}
			if (heartbeat.AgentVersion != "") != (want[1] >= "1.36") {
				t.Errorf("fields of %s: %+v", want[1], heartbeat)
			}
		})
	}
}

func TestLegacyLookup(t *testing.T) {
	for _, status := range []int{401, 404, 406} {
		f := newIronic(t)
		f.lookupStatus, f.hasPassthru, f.max = status, true, "1.20"
		a, root, _, _ := newAgent(t, f, "ipa-driver-name=agent_ilo")
		f.onHeartbeat = func(url string, _ ironic.Heartbeat) {
			if !strings.HasPrefix(url, "http://") {
				t.Errorf("an old server is given %s", url)
			}
			f.command(url, "", "", "rescue.finalize_rescue", `{"rescue_password":"open sesame"}`)
		}
		if err := runAgent(t, a); err != nil {
			t.Fatalf("%d: %v", status, err)
		}
		f.mu.Lock()
		if len(f.oldLookups) != 1 || f.oldLookups[0].Inventory.Interfaces[0].MACAddress != testMAC || len(f.oldBeats) != 1 || len(f.heartbeats) != 0 {
			t.Errorf("%d: old lookups %v, old heartbeats %v, new heartbeats %v", status, f.oldLookups, f.oldBeats, f.heartbeats)
		}
		f.mu.Unlock()
		if got := shadowOf(t, root); !strings.Contains(got, "rescue:$6$") {
			t.Errorf("%d: a plain password was not hashed: %s", status, got)
		}
	}
}

func TestHeartbeatFallsBack(t *testing.T) {
	f := newIronic(t)
	f.hasPassthru = true
	f.beatStatus = []int{404}
	a, _, _, _ := newAgent(t, f, "")
	f.onHeartbeat = func(url string, _ ironic.Heartbeat) {
		f.mu.Lock()
		ca := f.heartbeats[0].AgentVerifyCA // of the one that was refused: the old endpoint has no field for it
		f.mu.Unlock()
		f.command(url, ca, testToken, "rescue.finalize_rescue", finalizeParams(testHash))
	}
	must.OK(t, runAgent(t, a))
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.oldBeats) != 1 {
		t.Errorf("old heartbeats %v", f.oldBeats)
	}
}

func TestMaskedToken(t *testing.T) {
	f := newIronic(t)
	f.token = ironic.Hidden
	a, _, s, log := newAgent(t, f, "")
	ctx, cancel := context.WithCancel(context.Background())
	s.each = func(n int) {
		if n == 4 {
			cancel()
		}
	}
	if err := a.Run(ctx); !errors.Is(err, context.Canceled) {
		t.Fatalf("run ended with %v", err)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.lookups) != 4 || len(f.heartbeats) != 0 {
		t.Errorf("%d lookups, %d heartbeats", len(f.lookups), len(f.heartbeats))
	}
	if !strings.Contains(log.String(), "given this boot's token to someone before") {
		t.Errorf("log says %s", log)
	}
	list := s.all()
	if list[0] >= list[1] || list[1] >= list[2] || list[3] > lastRetry*5/4 {
		t.Errorf("lookup waits %v", list)
	}
}

func TestTokenOfTheCommandLine(t *testing.T) {
	f := newIronic(t)
	f.token = ironic.Hidden
	a, _, _, _ := newAgent(t, f, "ipa-agent-token="+testToken)
	f.onHeartbeat = func(url string, heartbeat ironic.Heartbeat) {
		f.command(url, heartbeat.AgentVerifyCA, testToken, "rescue.finalize_rescue", finalizeParams(testHash))
	}
	must.OK(t, runAgent(t, a))
	f.mu.Lock()
	defer f.mu.Unlock()
	if *f.heartbeats[0].AgentToken != testToken {
		t.Error("the command line's token was not used")
	}
	if got := f.lookups[0].Header.Get(agentwire.TokenHeader); got != testToken || f.lookups[0].URL.Query().Has("node_uuid") {
		t.Errorf("the lookup %s sent the token %q, want that of the command line in the header alone", f.lookups[0].URL, got)
	}
}

func TestHeartbeatPauses(t *testing.T) {
	f := newIronic(t)
	f.beatStatus = []int{409, 409, 503, 400, 409}
	a, _, s, _ := newAgent(t, f, "")
	f.onHeartbeat = func(url string, heartbeat ironic.Heartbeat) {
		f.command(url, heartbeat.AgentVerifyCA, testToken, "rescue.finalize_rescue", finalizeParams(testHash))
	}
	must.OK(t, runAgent(t, a))
	f.mu.Lock()
	defer f.mu.Unlock()
	want := []time.Duration{busyRetry, busyRetry, 7500 * time.Millisecond, 7500 * time.Millisecond, busyRetry}
	got := s.all()
	for i := range want {
		if got[i] != want[i] {
			t.Errorf("pauses %v, want %v first", got, want)
			break
		}
	}
	a.session.timeout = 300 * time.Second
	for jitter, seconds := range map[float64]float64{0: 90, 0.5: 135, 1: 180} {
		a.jitter = func() float64 { return jitter }
		if d := a.nextBeat(nil); d.Round(time.Millisecond).Seconds() != seconds {
			t.Errorf("jitter %v pauses %v", jitter, d)
		}
	}
	a.session.timeout = time.Second
	if a.nextBeat(nil) != shortestBeat {
		t.Error("no lowest pause")
	}
}

func TestPasswordInLookup(t *testing.T) {
	f := newIronic(t)
	f.hash = testHash
	f.beatStatus = []int{409}
	a, root, _, _ := newAgent(t, f, "salvor-root-password=1")
	must.OK(t, runAgent(t, a))
	f.mu.Lock()
	defer f.mu.Unlock()
	if got := shadowOf(t, root); strings.Count(got, testHash) != 2 {
		t.Errorf("shadow is %s", got)
	}
	if len(f.heartbeats) != 2 || !strings.HasPrefix(f.heartbeats[0].CallbackURL, "https://") {
		t.Errorf("heartbeats %+v", f.heartbeats)
	}
	if _, err := network.ReadPlan(root); err != nil {
		t.Error(err)
	}
}
