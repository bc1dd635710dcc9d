package metal

import (
	"context"
	"errors"
	"fmt"
	"time"

	"salvor/problem"
	"salvor/record"
	"salvor/rescue"
	"salvor/secret"
)

// rescueCredential is what a job of a rescue holds of the password and the keys that came with the request.
func (s *Nodes) rescueCredential(n *Node, args ProvisionArgs) (secret.Value, error) {
	if args.RescueLasts < 0 || args.RescueLasts > rescue.MaxLasting {
		return secret.Value{}, problem.Invalidf("rescue of node %s: a session lasts at most %d days", n.ID, rescue.MaxLasting/(24*time.Hour))
	}
	c := rescue.Credential{Keys: args.RescueKeys, LUKSKeys: args.LUKSKeys}
	if len(c.Keys) > 0 && s.opts.RescuePasswordInLookup {
		return secret.Value{}, problem.Invalidf("rescue of node %s: no ssh key can be handed over, because with [agent]rescue_password_in_lookup = true the ramdisk takes a password and no command; give a password alone", n.ID)
	}
	if err := rescue.CheckKeys(c.Keys); err != nil {
		return secret.Value{}, err
	}
	if len(c.Keys) == 0 || !args.RescuePassword.Empty() {
		var err error
		if c.Hash, err = rescue.HashPassword(args.RescuePassword, s.opts.HashAlgorithm); err != nil {
			return secret.Value{}, err
		}
	}
	return c.Pack()
}

// leaveRamdisk voids the boot of a ramdisk, and what the session shows of the rescue system in it.
func (n *Node) leaveRamdisk() {
	n.VoidRamdisk()
	if n.Rescue != nil {
		n.Rescue = n.Rescue.Locked()
	}
}

// EditRescue changes the session of a node in rescue; of any other it changes nothing.
func (n *Node) EditRescue(change func(*rescue.Session)) {
	if n.Rescue != nil {
		session := *n.Rescue
		change(&session)
		n.Rescue = &session
	}
}

// beginSession opens the session of a rescue, or goes on with the one that an earlier rescue left.
func (n *Node) beginSession(now time.Time, args ProvisionArgs) {
	old := rescue.Session{}
	if n.Rescue != nil {
		old = *n.Rescue
	}
	n.Rescue = old.Begin(now, args.RescueLasts)
	n.Rescue.Diagnosis, n.Rescue.Repair = args.Diagnosis, args.Repair
}

// entry says how the user of a rescue gets in.
func (s *StatusInput) entry(w *record.Why) {
	if r := s.Node.Rescue; r != nil {
		w.Notes = append(w.Notes, r.Entry(r.Addresses)...)
		if r.HostKey != "" && len(r.Addresses) > 0 {
			w.Next = append(w.Next, record.Command{Run: "salvor node ssh " + s.Node.label(), For: "log in to its rescue system"})
		}
	}
}

// expireEvery is how often rescue sessions are looked at that end by themselves.
const expireEvery = 10 * time.Second

// RunRescueExpiry ends expired rescue sessions until ctx ends. onError is told of what failed; it is no end.
func (s *Nodes) RunRescueExpiry(ctx context.Context, held func() bool, onError func(error)) {
	turn := time.NewTicker(expireEvery)
	defer turn.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-turn.C:
		}
		if held() {
			continue
		}
		if err := s.ExpireRescues(ctx); err != nil && ctx.Err() == nil {
			onError(err)
		}
	}
}

// ExpireRescues asks for the unrescue of each node whose rescue session is over. A node that is busy or in maintenance waits for a later
// turn. An unrescue that failed is left to people, as any other is. An error about one node holds up no other.
func (s *Nodes) ExpireRescues(ctx context.Context) error {
	var failed []error
	for _, state := range []State{Rescue, RescueFailed} {
		for marker := ""; ; {
			page := record.Page{Limit: 1000, Marker: marker}
			found, err := s.List(ctx, NodeFilter{ProvisionState: state, RescueExpires: true}, page)
			if err != nil {
				return errors.Join(append(failed, err)...)
			}
			for _, n := range found {
				if err := s.expireRescue(ctx, n); err != nil {
					failed = append(failed, fmt.Errorf("end the rescue session of node %s: %w", n.ID, err))
				}
			}
			if len(found) < page.Limit {
				break
			}
			marker = found[len(found)-1].ID
		}
	}
	return errors.Join(failed...)
}

func (s *Nodes) expireRescue(ctx context.Context, n *Node) error {
	if n.Rescue == nil || n.Rescue.ExpiresAt.IsZero() || s.now().Before(n.Rescue.ExpiresAt) || n.Maintenance || n.Reservation != "" {
		return nil
	}
	err := s.Provision(ctx, n.ID, Unrescue, "unrescue, because its rescue session is over", ProvisionArgs{}, record.Asker{})
	if problem.Is(err, problem.Conflict) || problem.Is(err, problem.NotFound) {
		return nil // another process was first, or an operation has just begun
	}
	return err
}
