package service

import "context"

// TendSuspects is one turn of what RunLeases does each second of silent hosts.
func (s *Hosts) TendSuspects(ctx context.Context) error { return s.tendSuspects(ctx) }

// ListenOnce is one turn of what RunLeases does each second to hear hosts.
func (s *Hosts) ListenOnce(ctx context.Context) error { return s.keepListening(ctx) }
