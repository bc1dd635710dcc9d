package drivertest

import (
	"context"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
)

// memoryHost is the name of the BMC of a Network.
const memoryHost = "bmc.test"

// Network joins the clients of a BMC and its server in memory. A test that runs both in a bubble of testing/synctest has a clock of its own,
// so that pauses and deadlines cost no time. driver.WithDial takes Dial.
type Network struct {
	// URL is the address of the BMC.
	URL string

	server *http.Server
	served chan struct{}
	end    context.CancelFunc

	mu     sync.Mutex
	all    []net.Conn
	conns  chan net.Conn
	closed chan struct{}
	once   sync.Once
	count  atomic.Int64
}

// NewNetwork starts to serve a BMC, until Close.
func NewNetwork(bmc http.Handler) *Network {
	life, end := context.WithCancel(context.Background())
	n := &Network{URL: "http://" + memoryHost, conns: make(chan net.Conn), closed: make(chan struct{}), served: make(chan struct{}), end: end}
	n.server = &http.Server{Handler: bmc, ErrorLog: log.New(io.Discard, "", 0), BaseContext: func(net.Listener) context.Context { return life }}
	go func() {
		defer close(n.served)
		_ = n.server.Serve(memoryListener{n})
	}()
	return n
}

// Dial connects to the BMC. A BMC that is down refuses the connection.
func (n *Network) Dial(ctx context.Context, network, address string) (net.Conn, error) {
	if !strings.HasPrefix(address, memoryHost+":") {
		return nil, fmt.Errorf("dial %s: the driver leaves the BMC", address)
	}
	near, far := net.Pipe()
	n.mu.Lock()
	n.all = append(n.all, near, far)
	n.mu.Unlock()
	select {
	case n.conns <- namedConn{far, fmt.Sprint("client:", n.count.Add(1))}:
		return near, nil
	case <-n.closed:
		return nil, &net.OpError{Op: "dial", Net: network, Addr: memoryAddress(address), Err: os.NewSyscallError("connect", syscall.ECONNREFUSED)}
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// Close ends the BMC, its requests and its connections. It may be called twice.
func (n *Network) Close() {
	n.end()
	_ = n.server.Close()
	<-n.served
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, c := range n.all {
		_ = c.Close()
	}
}

// memoryListener gives the server of a Network its connections.
type memoryListener struct{ network *Network }

func (l memoryListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.network.conns:
		return c, nil
	case <-l.network.closed:
		return nil, net.ErrClosed
	}
}

func (l memoryListener) Close() error {
	l.network.once.Do(func() { close(l.network.closed) })
	return nil
}

func (l memoryListener) Addr() net.Addr { return memoryAddress(memoryHost + ":80") }

// namedConn has an address of its own, as connections of a real network.
type namedConn struct {
	net.Conn
	name string
}

func (c namedConn) RemoteAddr() net.Addr { return memoryAddress(c.name) }

type memoryAddress string

func (memoryAddress) Network() string  { return "memory" }
func (a memoryAddress) String() string { return string(a) }
