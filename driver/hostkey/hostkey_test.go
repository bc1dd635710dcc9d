package hostkey_test

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/rsa"
	"net"
	"testing"

	"golang.org/x/crypto/ssh"

	"salvor/driver/hostkey"
	"salvor/problem"
	"salvor/test/must"
)

// newServer serves handshakes with a host key, and lets nobody in.
func newServer(t *testing.T, key any) (address, public string) {
	t.Helper()
	signer := must.Get(ssh.NewSignerFromKey(key))(t)
	config := &ssh.ServerConfig{PasswordCallback: func(ssh.ConnMetadata, []byte) (*ssh.Permissions, error) {
		t.Error("someone tries to log in")
		return nil, problem.Forbiddenf("no")
	}}
	config.AddHostKey(signer)
	listener := must.Get(net.Listen("tcp", "127.0.0.1:0"))(t)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			_, _, _, _ = ssh.NewServerConn(conn, config)
			_ = conn.Close()
		}
	}()
	t.Cleanup(func() { _ = listener.Close(); <-done })
	return listener.Addr().String(), string(ssh.MarshalAuthorizedKey(signer.PublicKey()))
}

// A server proves its own host key and no other one.
func TestCheck(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	_, edwards, err := ed25519.GenerateKey(rand.Reader)
	must.OK(t, err)
	first, firstKey := newServer(t, edwards)
	second, secondKey := newServer(t, must.Get(rsa.GenerateKey(rand.Reader, 2048))(t))
	_, other, err := ed25519.GenerateKey(rand.Reader)
	must.OK(t, err)
	_, otherKey := newServer(t, other)
	for _, c := range []struct {
		server string
		keys   []string
		kind   problem.Kind
	}{
		{first, []string{otherKey}, problem.Conflict},
		{first, []string{secondKey}, problem.Unavailable}, // the server has no key of that type
		{first, []string{"no key"}, problem.Invalid},
		{first, nil, problem.Conflict},
		{second, nil, problem.Conflict},
		{"127.0.0.1:1", nil, problem.Unavailable},
		{"127.0.0.1:1", []string{firstKey}, problem.Unavailable},
	} {
		if err := hostkey.CheckServer(ctx, c.server, c.keys, nil); !problem.Is(err, c.kind) {
			t.Errorf("%s with %q: %v", c.server, c.keys, err)
		}
	}
	must.OK(t, hostkey.CheckServer(ctx, first, []string{otherKey, firstKey}, nil))
	must.OK(t, hostkey.CheckServer(ctx, second, []string{secondKey}, nil))
}
