// Package libvirt drives the guests of one host through its libvirt daemon (QEMU), by the
// contract of package hypervisor. It knows libvirt's protocol and XML, and keeps nothing: what a
// guest is lies in its definition, with a mark that says whose it is. It makes no disk, fetches no
// image, and does not know what a server is for.
package libvirt

import (
	"cmp"
	"context"
	"net/url"
	"path/filepath"
	"sync"
	"time"

	"github.com/google/uuid"

	rpc "github.com/digitalocean/go-libvirt"

	"salvor/hypervisor"
	"salvor/problem"
	"salvor/secret"
)

// Options of a connection. The zero value of a field means its default.
type Options struct {
	// URI of the daemon: "qemu:///system", "qemu:///system?socket=PATH", or the path of its socket.
	URI string
	// KVM uses hardware virtualization. Whoever sets it has proved that it works: /dev/kvm alone proves nothing.
	KVM bool
	// InitiatorIQN is the name by which guests' volumes are logged in to; empty: each guest's own, as its spec says.
	InitiatorIQN string
	// NVRAM is the directory of UEFI guests' variables; libvirt's own.
	NVRAM string
	// Status is the directory of libvirt's notes of running guests, Proc that of processes; their usual places.
	Status, Proc string
	// Timeout bounds calls that only read or change a definition: 40 s, as libvirt itself waits 30 s for a busy guest.
	Timeout time.Duration
	// LongTimeout bounds starting, saving and ending a guest: 10 min.
	LongTimeout time.Duration
}

const (
	systemURI      = "qemu:///system"
	defaultNVRAM   = "/var/lib/libvirt/qemu/nvram"
	defaultTimeout = 40 * time.Second
	defaultLong    = 10 * time.Minute
)

// Hypervisor is one libvirt daemon. It is safe for use by several goroutines.
type Hypervisor struct {
	opts    Options
	name    rpc.ConnectURI
	sockets []string

	mu   sync.Mutex
	line *libvirtConnection
	// chap are the passwords of volumes by their secret's UUID: libvirt keeps them in memory only, so a daemon
	// that was restarted must be told again.
	chap map[uuid.UUID]chapSecret
	// drift is what was found in the definitions that were seen last, by UUID.
	drift map[string]knownDrift

	// ends has the guests whose QEMU a signal of the host ended.
	ends struct {
		sync.Mutex
		byHost map[uuid.UUID]bool
	}
}

type chapSecret struct {
	usage string
	value secret.Value
}

var (
	_ hypervisor.Hypervisor = (*Hypervisor)(nil)
	_ hypervisor.Plugger    = (*Hypervisor)(nil)
	_ hypervisor.Watcher    = (*Hypervisor)(nil)

	_ hypervisor.Autostarter = (*Hypervisor)(nil)
)

// New reads the options. It connects to nothing: the first call does. Invalid: a URI that is none of a local QEMU.
func New(opts Options) (*Hypervisor, error) {
	if opts.URI == "" {
		opts.URI = systemURI
	}
	if opts.NVRAM == "" {
		opts.NVRAM = defaultNVRAM
	}
	opts.Status, opts.Proc = cmp.Or(opts.Status, defaultStatus), cmp.Or(opts.Proc, defaultProc)
	if opts.Timeout <= 0 {
		opts.Timeout = defaultTimeout
	}
	if opts.LongTimeout <= 0 {
		opts.LongTimeout = defaultLong
	}
	h := &Hypervisor{opts: opts, name: systemURI, chap: map[uuid.UUID]chapSecret{}, drift: map[string]knownDrift{}}
	if filepath.IsAbs(opts.URI) {
		h.sockets = []string{opts.URI}
		return h, nil
	}
	u, err := url.Parse(opts.URI)
	if err != nil {
		return nil, problem.Invalidf("libvirt URI %q: %w", opts.URI, err)
	}
	if (u.Scheme != "qemu" && u.Scheme != "qemu+unix") || u.Host != "" || u.Path != "/system" {
		return nil, problem.Invalidf("libvirt URI %q: want qemu:///system, qemu:///system?socket=PATH or the path of a socket", opts.URI)
	}
	if socket := u.Query().Get("socket"); socket != "" {
		h.sockets = []string{socket}
		return h, nil
	}
	// The second is that of a daemon for QEMU alone.
	h.sockets = []string{"/run/libvirt/libvirt-sock", "/run/libvirt/virtqemud-sock"}
	return h, nil
}

// Close ends the connection; the next call would make another.
func (h *Hypervisor) Close() {
	h.mu.Lock()
	l := h.line
	h.line = nil
	h.mu.Unlock()
	if l != nil {
		l.close()
	}
}

// find looks a guest up by its UUID. NotFound: there is none.
func (h *Hypervisor) find(ctx context.Context, id string) (rpc.Domain, error) {
	u, err := uuid.Parse(id)
	if err != nil {
		return rpc.Domain{}, problem.Invalidf("guest %q: not a UUID", id)
	}
	return callLibvirt(ctx, h, "find guest "+id, h.opts.Timeout, func(c *rpc.Libvirt) (rpc.Domain, error) {
		return c.DomainLookupByUUID(rpc.UUID(u))
	})
}
