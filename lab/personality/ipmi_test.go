package personality

import (
	"bytes"
	"net"
	"testing"
	"time"

	"salvor/test/must"
)

// openWith is a request of a session with some algorithms: authentication, integrity, confidentiality.
func openWith(algorithms [3]byte) []byte {
	b := append([]byte{6, 0, 0xff, 7, rmcpPlus, openRequest, 0, 0, 0, 0, 0, 0, 0, 0, openRequestSize, 0}, make([]byte, openRequestSize)...)
	p := b[atPayload:]
	p[0] = 9
	copy(p[4:], "sess")
	p[12], p[20], p[28] = algorithms[0], algorithms[1], algorithms[2]
	return b
}

// TestFilter: the filter answers, passes on or drops what the rows say, and nothing else.
func TestFilter(t *testing.T) {
	loopback := &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)}
	plain := must.Get(net.ListenUDP("udp", loopback))(t)
	defer plain.Close()
	refusedLogin := append([]byte{6, 0, 0xff, 7, rmcpPlus, rakp2, 0, 0, 0, 0, 0, 0, 0, 0, 8, 0}, 9, 0x0d, 0, 0, 's', 'e', 's', 's')
	takenLogin := bytes.Clone(refusedLogin)
	takenLogin[atPayload+1] = 0
	suite3, suite17 := openWith([3]byte{1, 1, 1}), openWith([3]byte{3, 4, 1})
	refusedSuite := append([]byte{6, 0, 0xff, 7, rmcpPlus, openAnswer, 0, 0, 0, 0, 0, 0, 0, 0, 8, 0}, 9, noMatchingSuite, 0, 0, 's', 'e', 's', 's')
	short := []byte{6, 0, 0xff, 7, rmcpPlus, openRequest}
	for _, c := range []struct {
		what    string
		name    Name
		request []byte
		answer  []byte // of the plain BMC; nil: it is not asked
		want    []byte // nil: silence
	}{
		{"suite 3", Suite3Only, suite3, takenLogin, takenLogin},
		{"suite 17", Suite3Only, suite17, nil, refusedSuite},
		{"suite 17 elsewhere", SilentOnWrongUser, suite17, takenLogin, takenLogin},
		{"a request that is too short", Suite3Only, short, short, short},
		{"a refused login", SilentOnWrongUser, suite3, refusedLogin, nil},
		{"a login that is taken", SilentOnWrongUser, suite3, takenLogin, takenLogin},
		{"a refused login elsewhere", Suite3Only, suite3, refusedLogin, refusedLogin},
	} {
		t.Run(c.what, func(t *testing.T) {
			f := must.Get(NewFilter(c.name, loopback, plain.LocalAddr().(*net.UDPAddr)))(t)
			defer f.Close()
			asker := must.Get(net.DialUDP("udp", nil, f.Address()))(t)
			defer asker.Close()
			must.Get(asker.Write(c.request))(t)
			in := make([]byte, maxDatagram)
			if c.answer != nil {
				n, from, err := plain.ReadFromUDP(in)
				must.OK(t, err)
				if !bytes.Equal(in[:n], c.request) {
					t.Errorf("the BMC was asked %x", in[:n])
				}
				must.Get(plain.WriteToUDP(c.answer, from))(t)
				if c.want == nil { // what follows shows that nothing came before it
					must.Get(plain.WriteToUDP(short, from))(t)
					c.want = short
				}
			}
			must.OK(t, asker.SetReadDeadline(time.Now().Add(10*time.Second)))
			if n := must.Get(asker.Read(in))(t); !bytes.Equal(in[:n], c.want) {
				t.Errorf("answer %x, want %x", in[:n], c.want)
			}
		})
	}
}
