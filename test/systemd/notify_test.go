// Package systemd proves what systemd sees of salvor: the messages of its services, and the life of its Debian packages on a booted system.
package systemd

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"salvor/test/must"
	"salvor/test/program"
)

// longest bounds each wait; an idle machine takes a tenth of it.
const longest = 30 * time.Second

// notifySocket is where a service that systemd started sends its messages.
type notifySocket struct {
	*net.UnixConn
	name string
}

func newNotifySocket(t *testing.T, name string) notifySocket {
	t.Helper()
	conn := must.Get(net.ListenUnixgram("unixgram", &net.UnixAddr{Name: name, Net: "unixgram"}))(t)
	t.Cleanup(func() { conn.Close() })
	return notifySocket{conn, name}
}

// await reads messages until one has the line, and returns those before it.
func (s notifySocket) await(t *testing.T, line string, within time.Duration) (before []string) {
	t.Helper()
	must.OK(t, s.SetReadDeadline(time.Now().Add(within)))
	buffer := make([]byte, 4096)
	for {
		n, err := s.Read(buffer)
		if err != nil {
			t.Fatalf("no %s after %q: %v", line, before, err)
		}
		message := string(buffer[:n])
		if strings.Contains("\n"+message+"\n", "\n"+line+"\n") {
			return before
		}
		before = append(before, message)
	}
}

// TestNotify starts salvor serve as systemd does, by a socket in the file system and by an abstract one.
func TestNotify(t *testing.T) {
	for name, address := range map[string]string{
		"path":     filepath.Join(t.TempDir(), "notify"),
		"abstract": fmt.Sprintf("@salvor-test-%d-notify", os.Getpid()),
	} {
		t.Run(name, func(t *testing.T) {
			socket := newNotifySocket(t, address)
			server := program.Serve(t, "[DEFAULT]\nauth_strategy = noauth\n", "env", "NOTIFY_SOCKET="+address, "WATCHDOG_USEC=200000")
			if before := socket.await(t, "READY=1", longest); len(before) > 0 {
				t.Errorf("messages before READY=1: %q", before)
			}
			answer := must.Get(http.Get(server.URL + "/v1/nodes"))(t)
			answer.Body.Close()
			if answer.StatusCode != http.StatusOK {
				t.Errorf("the API answers %s after READY=1", answer.Status)
			}
			for range 3 {
				socket.await(t, "WATCHDOG=1", longest)
			}
			socket.await(t, "STATUS=serving api, conductor, netboot", longest)
			must.OK(t, server.Signal(syscall.SIGTERM))
			socket.await(t, "STOPPING=1", longest)
			select {
			case <-server.Ended():
			case <-time.After(longest):
				t.Error("the server did not end")
			}
		})
	}
}

// TestNoWatchdogWhileStopped stops the whole process, as a hang would: nothing may speak for it.
func TestNoWatchdogWhileStopped(t *testing.T) {
	socket := newNotifySocket(t, filepath.Join(t.TempDir(), "notify"))
	server := program.Serve(t, "", "env", "NOTIFY_SOCKET="+socket.name, "WATCHDOG_USEC=100000")
	socket.await(t, "WATCHDOG=1", longest)
	must.OK(t, server.Signal(syscall.SIGSTOP))
	// What was sent before the signal is read first; then a second without a message is twenty that were not sent.
	buffer := make([]byte, 4096)
	quiet := errors.New("messages go on")
	for range 20 {
		_ = socket.SetReadDeadline(time.Now().Add(time.Second))
		if _, err := socket.Read(buffer); errors.Is(err, os.ErrDeadlineExceeded) {
			quiet = nil
			break
		}
	}
	if quiet != nil {
		t.Error(quiet)
	}
	must.OK(t, server.Signal(syscall.SIGCONT))
	socket.await(t, "WATCHDOG=1", longest)
}
