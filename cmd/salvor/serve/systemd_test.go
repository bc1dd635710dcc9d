package serve

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"salvor/config"
	"salvor/test/must"
)

// receiveNotifications stands in for systemd. Each message is received before the next check of the service may begin.
func receiveNotifications(t *testing.T, watchdog string) func() string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "notify")
	conn := must.Get(net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"}))(t)
	t.Cleanup(func() { conn.Close() })
	t.Setenv("NOTIFY_SOCKET", path)
	t.Setenv("WATCHDOG_USEC", watchdog)
	return func() string {
		buffer := make([]byte, 4096)
		_ = conn.SetReadDeadline(time.Now().Add(20 * time.Second))
		n := must.Get(conn.Read(buffer))(t)
		return string(buffer[:n])
	}
}

// TestNotifySystemd follows a service through its life: no message vouches for it while a check hangs, or finds a part that does.
func TestNotifySystemd(t *testing.T) {
	next := receiveNotifications(t, "20000")
	checks := make(chan Liveness)
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		NotifySystemd(ctx, slog.New(slog.DiscardHandler), func(ctx context.Context) Liveness {
			select {
			case found := <-checks:
				return found
			case <-ctx.Done():
				return Liveness{}
			}
		})
	}()
	for _, step := range []struct {
		found *Liveness
		want  string
	}{
		{nil, "READY=1\nSTATUS=serving"},
		{&Liveness{Status: "fine"}, "WATCHDOG=1\nSTATUS=fine"},
		{&Liveness{Status: "the database does not answer"}, "WATCHDOG=1\nSTATUS=the database does not answer"},
		{&Liveness{Status: "fine", Hangs: "the claim loop"}, "STATUS=the claim loop hangs"},
		{&Liveness{Status: "fine"}, "WATCHDOG=1\nSTATUS=fine"},
	} {
		if step.found != nil {
			checks <- *step.found
		}
		if got := next(); got != step.want {
			t.Errorf("systemd got %q, want %q", got, step.want)
		}
	}
	stop() // while a check hangs: that one said nothing
	if got, want := next(), "STOPPING=1\nSTATUS=stopping"; got != want {
		t.Errorf("systemd got %q, want %q", got, want)
	}
	<-ended
}

// TestNotifyNobody says that a process without systemd is not checked.
func TestNotifyNobody(t *testing.T) {
	t.Setenv("NOTIFY_SOCKET", "")
	NotifySystemd(t.Context(), slog.New(slog.DiscardHandler), func(context.Context) Liveness {
		t.Error("checked")
		return Liveness{}
	})
}

// TestLivenessWithoutDatabase says that a database that does not answer is no reason for a restart.
func TestLivenessWithoutDatabase(t *testing.T) {
	file := filepath.Join(t.TempDir(), "salvor.conf")
	must.OK(t, os.WriteFile(file, []byte("[DEFAULT]\nauth_strategy = noauth\nstate_path = "+t.TempDir()+"\n"), 0o600))
	cfg, _, err := config.Load(config.Source{File: file})
	if err != nil {
		t.Fatal(err)
	}
	p, err := New(t.Context(), cfg, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	if got := p.liveness(t.Context()); got.Hangs != "" || !strings.HasPrefix(got.Status, "serving ") {
		t.Errorf("with a database: %+v", got)
	}
	p.pulse.now = func() time.Time { return time.Now().Add(time.Hour) } // the next probe asks again
	must.OK(t, p.Store.Close())
	if got := p.liveness(t.Context()); got != (Liveness{Status: "the database does not answer"}) {
		t.Errorf("without a database: %+v", got)
	}
	if err := p.askDatabase(t.Context()); err == nil || errors.Is(err, context.Canceled) {
		t.Errorf("the database was closed: %v", err)
	}
}
