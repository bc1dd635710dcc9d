package driver

import (
	"context"
	"time"
)

type gateKey struct{}

// WithGate makes every request to a BMC or an agent under the returned context ask
// fn first: the conductor's lease says there whether enough of it is left to send.
// An error of fn keeps the request from being sent.
func WithGate(ctx context.Context, fn func() error) context.Context {
	return context.WithValue(ctx, gateKey{}, fn)
}

// CheckLease asks the context's gate; a context without one lets everything through.
// Whatever sends to a machine calls it right before each request.
func CheckLease(ctx context.Context) error {
	if fn, ok := ctx.Value(gateKey{}).(func() error); ok {
		if err := fn(); err != nil {
			return leaseLostError{err}
		}
	}
	return ctx.Err()
}

// leaseLostError tells that the gate kept a request from being sent.
type leaseLostError struct{ why error }

func (e leaseLostError) Error() string { return "request not sent: " + e.why.Error() }

func (e leaseLostError) Unwrap() error { return e.why }

// RequestObserver is told of an exchange with a machine: the protocol, how long it took and why it failed, if it did.
type RequestObserver func(ctx context.Context, protocol string, took time.Duration, err error)

type meterKey struct{}

// WithMeter has fn told of every exchange with a BMC or an agent under the returned context.
func WithMeter(ctx context.Context, fn RequestObserver) context.Context {
	return context.WithValue(ctx, meterKey{}, fn)
}

// Measured tells the context's meter of an exchange that began then. Whatever speaks to a machine calls it at the end.
func Measured(ctx context.Context, protocol string, began time.Time, err error) {
	if fn, ok := ctx.Value(meterKey{}).(RequestObserver); ok {
		fn(ctx, protocol, time.Since(began), err)
	}
}
