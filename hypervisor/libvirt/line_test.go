package libvirt

import (
	"context"
	"errors"
	"io"
	"net"
	"path/filepath"
	"testing"
	"time"

	rpc "github.com/digitalocean/go-libvirt"

	"salvor/hypervisor"
	"salvor/problem"
	"salvor/test/must"
)

// A daemon that hangs, hangs up, or is not there is Unavailable, soon after its caller has had enough.
func TestNoAnswer(t *testing.T) {
	for name, serve := range map[string]func(net.Conn){
		"hangs":    func(c net.Conn) { _, _ = io.Copy(io.Discard, c) },
		"hangs up": func(c net.Conn) { c.Close() },
		"rubbish":  func(c net.Conn) { _, _ = c.Write([]byte{0, 0, 0, 30, 1, 2, 3}); c.Close() },
		"absent":   nil,
	} {
		t.Run(name, func(t *testing.T) {
			socket := filepath.Join(t.TempDir(), "s")
			if serve != nil {
				listener := must.Get(net.Listen("unix", socket))(t)
				defer listener.Close()
				go func() {
					for {
						c, err := listener.Accept()
						if err != nil {
							return
						}
						go serve(c)
					}
				}()
			}
			h, err := New(Options{URI: socket})
			if err != nil {
				t.Fatal(err)
			}
			defer h.Close()
			ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
			defer cancel()
			start := time.Now()
			_, err = h.Guests(ctx)
			if !problem.Is(err, problem.Unavailable) {
				t.Errorf("guests: %v", err)
			}
			if err := h.Watch(ctx, make(chan string)); !problem.Is(err, problem.Unavailable) {
				t.Errorf("watch: %v", err)
			}
			if _, err := h.SetPower(ctx, serverID, hypervisor.Power{}); !problem.Is(err, problem.Unavailable) {
				t.Errorf("power: %v", err)
			}
			if took := time.Since(start); took > dialTimeout/2 {
				t.Errorf("it took %s", took)
			}
		})
	}
}

func TestExplained(t *testing.T) {
	for want, err := range map[problem.Kind]error{
		problem.NotFound:    rpc.Error{Code: uint32(rpc.ErrNoDomain), Message: "no domain"},
		problem.Conflict:    rpc.Error{Code: uint32(rpc.ErrInternalError), Message: `Failed to get "write" lock`},
		problem.Invalid:     rpc.Error{Code: uint32(rpc.ErrXMLError), Message: "bad"},
		problem.Unsupported: rpc.ErrUnsupported,
		problem.Unavailable: rpc.ErrInterrupted,
		problem.Internal:    rpc.Error{Code: uint32(rpc.ErrInternalError), Message: "QEMU ended"},
	} {
		got := classifyLibvirtError("do it", err)
		if problem.KindOf(got) != want || !errors.Is(got, err) {
			t.Errorf("%v is explained as %s: %v", err, problem.KindOf(got), got)
		}
	}
}
