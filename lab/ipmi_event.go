package lab

import (
	"context"
	"encoding/binary"
	"time"

	"github.com/bougou/go-ipmi/pkg/client"
	"github.com/bougou/go-ipmi/pkg/types"

	"salvor/problem"
)

// Commands of the System Event Log (IPMI 2.0, chapter 31).
const (
	netFnStorage  = 0x0a
	commandAddSEL = 0x44
	commandSetSEL = 0x49 // sets the clock, with whose time the BMC logs
)

const (
	// maxQueued bounds the events that wait for a BMC that hangs.
	maxQueued = 64
	// eventTimeout bounds the logging of one event.
	eventTimeout = 10 * time.Second
)

// forwardEvent has the simulator log an event, as the firmware of a machine does: by a session of its own. It does not wait, because the
// simulator may be waiting for us.
func (b *ipmiBMC) forwardEvent(e loggedEvent) error {
	if b.spec.Like.UsesPyghmi() {
		return problem.Unsupportedf("event %s of machine %s: a BMC like %s has no event log", e.kind, b.spec.Name, b.spec.Like)
	}
	select {
	case b.events <- e:
		return nil
	default:
		return problem.Unavailablef("event %s of machine %s: %d events wait for its BMC", e.kind, b.spec.Name, maxQueued)
	}
}

// logEvents logs events until the context ends.
func (b *ipmiBMC) logEvents(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case e := <-b.events:
			if err := b.logEvent(ctx, e); err != nil && ctx.Err() == nil {
				b.log.Warn("IPMI BMC did not log an event", "machine", b.spec.Name, "event", e.kind, "err", err)
			}
		}
	}
}

func (b *ipmiBMC) logEvent(ctx context.Context, e loggedEvent) error {
	ctx, cancel := context.WithTimeout(ctx, eventTimeout)
	defer cancel()
	api, err := client.NewClient(b.process.Addr().String(), int(b.process.Port()), b.spec.User, b.spec.Password)
	if err != nil {
		return err
	}
	api.WithCipherSuiteID(types.CipherSuiteID3)
	if err := api.Connect(ctx); err != nil {
		return err
	}
	defer func() {
		bye, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		_ = api.Close(bye)
	}()
	if _, err := api.RawCommand(ctx, netFnStorage, commandSetSEL, binary.LittleEndian.AppendUint32(nil, uint32(e.at.Unix())), "set SEL time"); err != nil {
		return err
	}
	_, err = api.RawCommand(ctx, netFnStorage, commandAddSEL, append([]byte{0, 0}, e.record()...), "add SEL entry")
	return err
}
