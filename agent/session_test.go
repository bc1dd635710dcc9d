package agent

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"salvor/driver"
	driveragent "salvor/driver/agent"
	"salvor/metal"
	"salvor/problem"
	"salvor/secret"
	"salvor/test/must"
	wire "salvor/wire/agent"
	"salvor/wire/ironic"
)

const testSessionToken = "session-token-of-this-rescue-0123456789abcdef"

// finalizeBySalvor runs an agent to its end, finalized with these extras, and gives its ramdisk and how the server knows it.
func finalizeBySalvor(t *testing.T, extras *wire.Extras) (root string, known driver.Agent) {
	t.Helper()
	f := newIronic(t)
	a, root, _, _ := newAgent(t, f, "")
	ended := make(chan error, 1)
	f.onHeartbeat = func(url string, heartbeat ironic.Heartbeat) {
		known = driver.Agent{URL: url, Version: heartbeat.AgentVersion, CA: heartbeat.AgentVerifyCA, Token: secret.New(testToken)}
		rescue := driveragent.Rescue{Locks: &driver.AddressLocks{}}
		ended <- rescue.Finalize(context.Background(), &metal.Node{ID: testNode}, known, driver.Finalize{Hash: secret.New(testHash), Extras: extras})
	}
	must.OK(t, runAgent(t, a))
	must.OK(t, <-ended)
	return root, known
}

// serveSession runs the agent of a session until the test ends and gives its address.
func serveSession(t *testing.T, root string) string {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done, opened := make(chan error, 1), make(chan string, 1)
	go func() {
		s := Session{Root: root, Listen: []string{"127.0.0.1:0"}, Version: "9.9", Log: slog.New(slog.DiscardHandler)}
		s.opened = func(at net.Addr) { opened <- at.String() }
		done <- s.Run(ctx)
	}()
	t.Cleanup(func() {
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Errorf("the session ended with %v", err)
		}
	})
	select {
	case at := <-opened:
		return at
	case err := <-done:
		done <- context.Canceled
		t.Fatalf("the session ended with %v", err)
	}
	return ""
}

// TestSession: after a finalize by salvor the agent takes commands about disks by the second token, and nothing else by anything.
func TestSession(t *testing.T) {
	root, known := finalizeBySalvor(t, &wire.Extras{SessionToken: wire.SessionToken{Value: secret.New(testSessionToken)}})
	if info := must.Get(os.Stat(sessionPath(root)))(t); info.Mode().Perm() != 0o600 {
		t.Errorf("the token lies in a file of mode %v", info.Mode())
	}
	at, ctx, node := serveSession(t, root), context.Background(), &metal.Node{ID: testNode}
	orders := driveragent.Orders{Locks: &driver.AddressLocks{}}
	known.URL = "https://" + at
	if _, err := orders.List(ctx, node, known); err == nil || !strings.Contains(err.Error(), "token") {
		t.Errorf("the token of the boot still opens: %v", err)
	}
	known.Token = secret.New(testSessionToken)
	if list := must.Get(orders.List(ctx, node, known))(t); len(list) != 0 {
		t.Errorf("it begins with %v", list)
	}
	taken := must.Get(orders.Give(ctx, node, known, wire.Examine, wire.ExamineParams{}))(t)
	if taken.Name != "examine" || taken.ID == "" {
		t.Errorf("the examination is taken as %+v", taken)
	}
	for _, name := range []string{wire.FinalizeRescue, wire.ReadHostKey, wire.PowerOff, wire.RunImage, wire.Lockdown, wire.CollectLogs, wire.Sync, wire.PrepareImage, wire.ExecuteCleanStep} {
		if _, err := orders.Give(ctx, node, known, name, struct{}{}); !problem.Is(err, problem.Conflict) {
			t.Errorf("%s: %v", name, err)
		}
	}
	other := known
	other.CA = must.Get(func() (string, error) {
		_, text, err := newCertificate(net.IPv4(127, 0, 0, 1))
		return text, err
	}())(t)
	if _, err := orders.List(ctx, node, other); err == nil {
		t.Error("it shows the certificate of another boot")
	}
	// Nobody reads a result without the token.
	client := &http.Client{Transport: &http.Transport{DialContext: (&net.Dialer{}).DialContext, TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}}
	defer client.CloseIdleConnections()
	answer := must.Get(client.Get(known.URL + wire.CommandsPath))(t)
	defer answer.Body.Close()
	if text := must.Get(io.ReadAll(answer.Body))(t); answer.StatusCode != http.StatusUnauthorized {
		t.Errorf("without a token: %d %s", answer.StatusCode, text)
	}
}

// TestNoSession: a server that gives no token leaves an agent that has ended.
func TestNoSession(t *testing.T) {
	root, _ := finalizeBySalvor(t, &wire.Extras{})
	must.OK(t, Session{Root: root, Log: slog.New(slog.DiscardHandler)}.Run(context.Background()))
}

// TestSessionIsNotOpened by what somebody left in its file, or by a token that could be guessed.
func TestSessionIsNotOpened(t *testing.T) {
	root, _ := finalizeBySalvor(t, &wire.Extras{SessionToken: wire.SessionToken{Value: secret.New(testSessionToken)}})
	whole := must.Get(os.ReadFile(sessionPath(root)))(t)
	for name, text := range map[string]string{
		"empty": "", "cut off": string(whole[:len(whole)/2]), "no token": strings.Replace(string(whole), testSessionToken, "", 1), "no port": `{"token":"` + testSessionToken + `"}`,
		"no key": `{"port": 1, "token":"` + testSessionToken + `"}`, "large": `"` + strings.Repeat("x", maxSession),
	} {
		must.OK(t, os.WriteFile(sessionPath(root), []byte(text), 0o600))
		if err := (Session{Root: root, Listen: []string{"127.0.0.1:0"}, Log: slog.New(slog.DiscardHandler)}).Run(context.Background()); err == nil {
			t.Errorf("%s: served", name)
		}
	}
	a, _, _, _ := newAgent(t, newIronic(t), "")
	var err error
	a.certificate, _, err = newCertificate(net.IPv4(127, 0, 0, 1))
	must.OK(t, err)
	if err := a.writeSession(&wire.Extras{SessionToken: wire.SessionToken{Value: secret.New("short")}}); !problem.Is(err, problem.Invalid) {
		t.Errorf("a short token: %v", err)
	}
}

// TestSessionListensWhereSSHDoes: on the addresses of the tenant's network that the user named.
func TestSessionListensWhereSSHDoes(t *testing.T) {
	root := t.TempDir()
	must.OK(t, os.MkdirAll(filepath.Join(root, "run/salvor"), 0o755))
	must.OK(t, os.WriteFile(filepath.Join(root, "run/salvor/ssh-listen"), []byte("127.0.0.2\n"), 0o644))
	listeners := must.Get(Session{Root: root}.listen(0))(t)
	for _, l := range listeners {
		defer l.Close()
	}
	if len(listeners) != 1 || !strings.HasPrefix(listeners[0].Addr().String(), "127.0.0.2:") {
		t.Errorf("it listens at %v", listeners[0].Addr())
	}
	must.OK(t, os.WriteFile(filepath.Join(root, "run/salvor/ssh-listen"), []byte("everywhere\n"), 0o644))
	if _, err := (Session{Root: root}).listen(0); !problem.Is(err, problem.Invalid) {
		t.Errorf("no address: %v", err)
	}
}

// TestSessionTokenIsNotShown: only the JSON for the agent has it.
func TestSessionTokenIsNotShown(t *testing.T) {
	extras := wire.Extras{SessionToken: wire.SessionToken{Value: secret.New(testSessionToken)}}
	if text := must.Get(json.Marshal(extras))(t); !strings.Contains(string(text), testSessionToken) {
		t.Errorf("the agent gets %s", text)
	}
	if text := must.Get(json.Marshal(wire.Extras{}))(t); strings.Contains(string(text), "session_token") {
		t.Errorf("without a token: %s", text)
	}
	var log strings.Builder
	slog.New(slog.NewTextHandler(&log, nil)).Info("x", "extras", extras, "token", extras.SessionToken)
	if strings.Contains(log.String(), testSessionToken) {
		t.Error(log.String())
	}
}
