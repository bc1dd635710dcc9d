package serve

import (
	"context"

	"salvor/keyring"
)

// readKeys reads the keys of the configuration.
func (p *ControlPlane) readKeys(ctx context.Context) (keyring.Source, error) {
	c := p.cfg.Secrets
	source, key, err := keyring.Open(ctx, keyring.Source{File: c.KeyFile, Command: c.KeyCommand, Timeout: c.KeyCommandTimeout})
	p.key = key
	return source, err
}
