package service

import "context"

// TendSuspects is one turn of what RunLeases does each second of silent hosts.
func (s *Leases) TendSuspects(ctx context.Context) error { return s.detector.tend(ctx) }

// ListenOnce is one turn of what RunLeases does each second to hear hosts.
func (s *Liveness) ListenOnce(ctx context.Context) error { return s.keepListening(ctx) }
