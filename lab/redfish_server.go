package lab

import (
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"time"
)

// httpBMC is a Redfish service on an address, which can be closed and opened again.
type httpBMC struct {
	at      netip.AddrPort
	service *redfishBMC

	mu     sync.Mutex
	server *http.Server
}

func newHTTPBMC(at netip.AddrPort, service *redfishBMC) *httpBMC {
	return &httpBMC{at: at, service: service}
}

func (b *httpBMC) start() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.server != nil {
		return nil
	}
	listener, err := net.Listen("tcp", b.at.String())
	if err != nil {
		return fmt.Errorf("serve Redfish: %w", err)
	}
	b.server = &http.Server{
		Handler: b.service.handler(), ReadHeaderTimeout: 10 * time.Second, IdleTimeout: time.Minute, MaxHeaderBytes: 64 << 10,
	}
	go func() { _ = b.server.Serve(listener) }() // ends by Close
	return nil
}

func (b *httpBMC) stop() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.server != nil {
		b.server.Close()
		b.server = nil
	}
}

func (b *httpBMC) setFault(f Fault) error {
	if f.Kind == FaultDown {
		b.stop()
		return nil
	}
	return b.start()
}
