package agent

import (
	"context"
	"net/http"
	"sync"
	"time"

	"salvor/client"
	wire "salvor/wire/agent"
	"salvor/wire/ironic"
)

const (
	shortestBeat = 5 * time.Second
	busyRetry    = time.Second
	errorRetry   = 5 * time.Second // and up to twice that
)

// agentEndpoint is where the server reaches the agent.
type agentEndpoint struct {
	url  string
	ca   string        // PEM of the own certificate; empty without TLS
	done chan struct{} // closed by a finalize that was answered
	once bool          // end after the first heartbeat that the server took
	stop func()

	kick   chan struct{} // a heartbeat is wanted now
	locked chan struct{} // closed by system.lockdown
	lock   sync.Once
}

// beatSoon lets the next heartbeat go at once: a command has ended.
func (d *agentEndpoint) beatSoon() {
	select {
	case d.kick <- struct{}{}:
	default:
	}
}

func (d *agentEndpoint) close() {
	if d.stop != nil {
		d.stop()
	}
}

// heartbeats says that the agent is alive until it has nothing more to wait for.
func (a *Agent) heartbeats(ctx context.Context, at *agentEndpoint) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	finished := make(chan struct{})
	defer close(finished)
	go func() {
		select {
		case <-at.done: // a nil channel never is
			cancel()
		case <-at.locked:
			cancel()
		case <-finished:
		}
	}()
	for {
		err := a.sendHeartbeat(ctx, at)
		if isClosed(at.done) || isClosed(at.locked) || (err == nil && at.once) {
			return nil
		}
		delay := a.nextBeat(err)
		if err != nil && ctx.Err() == nil {
			a.log.Warn("heartbeat failed", "node", a.session.node, "error", err, "again in", delay.Round(100*time.Millisecond))
		}
		if err := a.sleepOr(ctx, delay, at.kick); err != nil {
			if isClosed(at.done) || isClosed(at.locked) {
				return nil
			}
			return err
		}
	}
}

// sleepOr pauses until it is called.
func (a *Agent) sleepOr(ctx context.Context, delay time.Duration, call <-chan struct{}) error {
	inner, wake := context.WithCancel(ctx)
	defer wake()
	called := make(chan struct{})
	go func() {
		defer close(called)
		select {
		case <-call: // a nil channel never is
			wake()
		case <-inner.Done():
		}
	}()
	err := a.sleep(inner, delay)
	wake()
	<-called
	if ctx.Err() == nil {
		return nil
	}
	return err
}

func isClosed(done <-chan struct{}) bool {
	select {
	case <-done:
		return true
	default:
		return false
	}
}

// nextBeat is how long to wait after a heartbeat with this outcome. A server may call
// back only at a heartbeat, so one that is busy is asked again soon.
func (a *Agent) nextBeat(err error) time.Duration {
	switch {
	case err == nil:
		factor := 0.3 + 0.3*a.jitter()
		return max(time.Duration(factor*float64(a.session.timeout)), shortestBeat)
	case client.StatusOf(err) == http.StatusConflict:
		return busyRetry
	}
	return errorRetry + time.Duration(a.jitter()*float64(errorRetry))
}

// sendHeartbeat sends one heartbeat, by the endpoint that answered before.
func (a *Agent) sendHeartbeat(ctx context.Context, at *agentEndpoint) error {
	s := &a.session
	old := ironic.PassthruHeartbeat{AgentURL: at.url}
	if s.legacy {
		return s.api.PassthruHeartbeat(ctx, s.node, old)
	}
	version := pickMicroversion(s.served, heartbeatVersion)
	err := s.api.Heartbeat(ctx, version, s.node, a.heartbeat(version, at))
	if err == nil {
		a.log.Info("heartbeat taken", "node", s.node, "callback", at.url)
		return nil
	}
	if isMissingEndpoint(err) && s.api.PassthruHeartbeat(ctx, s.node, old) == nil {
		s.legacy = true
		return nil
	}
	return err
}

// heartbeat fills in what the version knows and nothing else.
func (a *Agent) heartbeat(version client.Version, at *agentEndpoint) ironic.Heartbeat {
	body := ironic.Heartbeat{CallbackURL: at.url}
	if version >= versionSince {
		body.AgentVersion = a.version()
	}
	if version >= tokenSince && !a.session.token.Empty() {
		token := a.session.token.Reveal()
		body.AgentToken = &token
	}
	if version >= caSince {
		body.AgentVerifyCA = at.ca
	}
	return body
}

func (a *Agent) version() string { return wire.Product + a.config.Version }
