package host

import (
	"bufio"
	"fmt"
	"net"
	"path/filepath"
	"testing"

	"go.uber.org/goleak"

	"salvor/test/must"
)

// TestAskLeavesNobodyBehind: who still wrote the credential, or held it, after the answer would do so for ten seconds more.
func TestAskLeavesNobodyBehind(t *testing.T) {
	before := goleak.IgnoreCurrent()
	socket := filepath.Join(t.TempDir(), "channel")
	l := must.Get(net.Listen("unix", socket))(t)
	served := make(chan error, 1)
	go func() {
		c, err := l.Accept()
		if err == nil {
			_, err = bufio.NewReader(c).ReadBytes('\n')
			fmt.Fprint(c, "{\"version\":1,\"fingerprint\":\"SHA256:abc\",\"agent\":\"salvor-agent/0.1.0\"}\n")
			c.Close()
		}
		served <- err
	}()
	if answer, err := queryGuestChannel(t.Context(), socket, []byte("{}\n")); err != nil || answer.Fingerprint != "SHA256:abc" {
		t.Errorf("%+v, %v", answer, err)
	}
	if err := <-served; err != nil {
		t.Error(err)
	}
	l.Close()
	await(t, "the end of all goroutines", func() bool { return goleak.Find(before) == nil })
}
