package service

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"math/big"
	"slices"
	"strings"
	"time"

	"salvor/compute"
	"salvor/job"
	"salvor/problem"
	"salvor/record"
	"salvor/rescue"
	"salvor/secret"
)

// Groups of symbols of generated passwords; what is easily taken for another symbol is left out.
var passwordGroups = []string{"23456789", "ABCDEFGHJKLMNPQRSTUVWXYZ", "abcdefghijkmnopqrstuvwxyz"}

// rescueCredential of a rescue system, in clear until the request is answered, and as it is kept.
type rescueCredential struct{ clear, hash secret.Value }

// NewPassword makes a password with a symbol of each group.
func NewPassword(length int) (secret.Value, error) {
	all := strings.Join(passwordGroups, "")
	out := make([]byte, 0, length)
	for _, group := range passwordGroups {
		c, err := randomChar(group)
		if err != nil {
			return secret.Value{}, err
		}
		out = append(out, c)
	}
	for len(out) < length {
		c, err := randomChar(all)
		if err != nil {
			return secret.Value{}, err
		}
		out = append(out, c)
	}
	for i := len(out) - 1; i > 0; i-- {
		j, err := rand.Int(rand.Reader, big.NewInt(int64(i+1)))
		if err != nil {
			return secret.Value{}, err
		}
		out[i], out[j.Int64()] = out[j.Int64()], out[i]
	}
	return secret.New(string(out)), nil
}

func randomChar(from string) (byte, error) {
	i, err := rand.Int(rand.Reader, big.NewInt(int64(len(from))))
	if err != nil {
		return 0, err
	}
	return from[i.Int64()], nil
}

// credential hashes the password of a rescue before its transaction begins, for hashing takes its time.
func (s *Actions) credential(a *compute.Act) (*rescueCredential, error) {
	p := &rescueCredential{}
	if a.Action != compute.Rescue || a.Password == nil && a.Rescue.Password.Empty() {
		return p, nil
	}
	var err error
	if p.clear = a.Rescue.Password; p.clear.Empty() {
		if p.clear, err = NewPassword(s.opts.PasswordLength); err != nil {
			return nil, err
		}
	}
	p.hash, err = rescue.HashPassword(p.clear, s.opts.HashAlgorithm)
	return p, err
}

// openSession begins a rescue session. One that was open before (a rescue or an unrescue failed) gives on what it saved.
func (s *Actions) openSession(ctx context.Context, tx job.Tx, st *pendingAct, cred *rescueCredential) error {
	if err := checkRequest(st.Rescue); err != nil {
		return err
	}
	src, err := s.rescueSource(ctx, tx, st, cred)
	if err != nil {
		return err
	}
	old := st.server.Rescue
	now := s.now()
	n := &rescue.Session{StartedAt: now, State: rescue.Preparing, Image: src.Name, Source: src}
	if old != nil && old.State.Open() {
		n.Saved, n.SavedKnown, n.SavedSettings = old.Saved, old.SavedKnown, old.SavedSettings
	} else {
		n.Saved = rescue.Boot{Power: savedPower(st.server), Mode: string(st.server.Firmware)}
	}
	if len(st.Rescue.Keys) > 0 && src.Access == rescue.ByNode {
		return problem.Invalidf("rescue: server %s is a machine, whose endpoint takes a password and no ssh key; ask for rescue without a key", st.server.ID)
	}
	if src.Access != rescue.NoAccess && src.Access != rescue.ByNode {
		keys := slices.Clone(st.Rescue.Keys)
		if own := st.server.PublicKey; own != "" && !slices.Contains(keys, own) {
			keys = append(keys, own)
		}
		n.Credential = rescue.Credential{Hash: cred.hash, Keys: keys}
		if cred.hash.Empty() && len(keys) == 0 {
			return problem.Invalidf("rescue: nobody could log in to rescue image %s: server %s has no key pair, and no password or key is given; "+
				"name another image, give a key, or rescue through the Compute API, which makes a password", src.Name, st.server.ID)
		}
	}
	lasts := st.Rescue.Expires
	if most := s.opts.RescueTimeout; !st.who.Admin && most > 0 && lasts > most {
		return problem.Forbiddenf("rescue of server %s: only administrators let a session last longer than %s ([compute]rescue_timeout); ask for less", st.server.ID, most)
	}
	if lasts == 0 {
		lasts = s.opts.RescueTimeout
	}
	if lasts > 0 {
		n.ExpiresAt = now.Add(lasts)
	}
	st.server.Rescue = n
	return nil
}

// rescueSource is what the session boots. A machine has a ramdisk of its own, and its endpoint wants the password as it is: it lies in
// the job until it was handed on, and nowhere else.
func (s *Actions) rescueSource(ctx context.Context, tx job.Tx, st *pendingAct, cred *rescueCredential) (*rescue.Source, error) {
	if !st.server.Metal() {
		return s.images.Select(ctx, tx, st.Rescue, st.server, st.who)
	}
	st.secret = compute.JobSecret{Password: cred.clear.Reveal()}
	return compute.MetalSource(), nil
}

// checkRequest holds a request to what a rescue system can be given.
func checkRequest(r rescue.Request) error {
	if r.Expires < 0 || r.Expires > rescue.MaxLasting {
		return problem.Invalidf("rescue: a session lasts at most %s", rescue.MaxLasting)
	}
	if len(r.Keys) > rescue.MaxKeys {
		return problem.Invalidf("rescue: at most %d ssh keys are taken", rescue.MaxKeys)
	}
	for _, k := range r.Keys {
		if k == "" || len(k) > compute.MaxPublicKey || strings.ContainsAny(k, "\n\r\x00") {
			return problem.Invalidf("rescue: an ssh key is one line of at most %d bytes", compute.MaxPublicKey)
		}
	}
	return nil
}

func savedPower(s *compute.Server) string {
	if s.State == compute.Active || s.State != compute.Stopped && s.Power == compute.PowerOn {
		return "on"
	}
	return "off"
}

// leaveSession begins the end of a session and tells which power the server has in the end.
func (s *Actions) leaveSession(srv *compute.Server, restore bool) compute.UnrescueArgs {
	args := compute.UnrescueArgs{Power: compute.PowerOn, Within: int(s.opts.SoftOffTimeout / time.Second)}
	if restore && srv.Rescue.Saved.Power != "on" {
		args.Power = compute.PowerOff
	}
	srv.Rescue.State = rescue.Leaving
	srv.Wanted = args.Power
	return args
}

// expireAgain is how long an expired session whose unrescue failed is left alone before the next try.
const expireAgain = time.Minute

// ExpireSessions asks for the unrescue of every server whose session is over; one that is busy, or whose unrescue has just failed,
// waits for a later turn. An error about one holds up no other.
func (s *Actions) ExpireSessions(ctx context.Context) error {
	due, err := s.store.Servers().List(ctx, nil, compute.ServerFilter{RescueExpired: s.now()}, record.Page{})
	if err != nil {
		return err
	}
	var failed []error
	for _, srv := range due {
		if !s.expires(srv) {
			continue
		}
		err := s.expire(ctx, srv.ID)
		if busy := (*compute.StateError)(nil); err != nil && !errors.As(err, &busy) {
			failed = append(failed, fmt.Errorf("end the rescue session of server %s: %w", srv.ID, err))
		}
	}
	return errors.Join(failed...)
}

// expires tells whether the server's session is to be ended now.
func (s *Actions) expires(srv *compute.Server) bool {
	if !srv.InSession() || srv.Rescue.ExpiresAt.IsZero() || s.now().Before(srv.Rescue.ExpiresAt) {
		return false
	}
	if srv.Rescue.State == rescue.Failed && s.now().Sub(srv.UpdatedAt) < expireAgain {
		return false
	}
	_, err := compute.Allow(srv, compute.Unrescue, compute.NovaSemantics, true)
	return err == nil
}

func (s *Actions) expire(ctx context.Context, id string) error {
	return s.change(ctx, func(tx job.Tx) error {
		srv, err := s.store.Servers().Get(ctx, tx, id)
		if problem.Is(err, problem.NotFound) {
			return nil
		}
		if err != nil {
			return err
		}
		st := &pendingAct{Act: &compute.Act{Action: compute.Unrescue, Restore: true}, server: srv}
		if !s.expires(srv) {
			return nil
		}
		if st.rule, err = compute.Allow(srv, compute.Unrescue, compute.NovaSemantics, true); err != nil {
			return err
		}
		if err := s.reports.holdChange(ctx, tx, srv, true); err != nil {
			if problem.Is(err, problem.Conflict) {
				return nil // a later sweep tries again, and `salvor why` shows the guest
			}
			return err
		}
		args := s.leaveSession(srv, true)
		args.Expired = true
		st.args = args
		srv.Task = st.rule.Task
		if err := s.insert(tx, st); err != nil {
			return err
		}
		if err := s.save(tx, srv); err != nil {
			return err
		}
		return s.note(tx, id, st.who.Asker, "state", "the rescue session is over: back to its own disks")
	})
}
