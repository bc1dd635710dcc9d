package serve

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"net"
	"os"
	"strings"

	"salvor/config"
	"salvor/problem"
	"salvor/secret"
	"salvor/store"
)

// ErrServed is the error of OpenLocal while a running salvor serve holds the SQLite file.
var ErrServed = errors.New("a running salvor serve has the database")

// OpenLocal opens the database of a control plane on this machine, with its key. The key is returned with ErrServed too.
func OpenLocal(ctx context.Context, cfg *config.Config) (*store.Store, *secret.Key, error) {
	if err := os.MkdirAll(cfg.Default.StatePath, 0o700); err != nil {
		return nil, nil, problem.Invalidf("state directory: %w", err)
	}
	p := &ControlPlane{cfg: cfg, log: slog.New(slog.DiscardHandler), state: &stateDir{path: cfg.Default.StatePath}}
	if _, err := p.readKeys(ctx); err != nil {
		return nil, nil, err
	}
	connection := cfg.Database.Connection.Reveal()
	s, err := store.Open(ctx, connection, p.key, p.storeOptions(connection))
	if problem.Is(err, problem.Conflict) && isSQLite(connection) {
		return nil, p.key, ErrServed
	}
	return s, p.key, err
}

// OwnURL is the URL by which this machine reaches the API that listens at an address. With TLS it has the name of the certificate, if one is
// configured.
func OwnURL(c *config.Config, at net.Addr) string {
	if c.API.TLS.Enabled {
		return cmp.Or(strings.TrimRight(c.API.PublicEndpoint, "/"), "https://"+localListenerAddress(at))
	}
	return "http://" + localListenerAddress(at)
}
