package keyring

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"salvor/problem"
	"salvor/secret"
	"salvor/store"
)

// turn does what there is to do now.
func (r *Ring) turn(ctx context.Context) error {
	keys, err := r.Store.SealKeys(ctx)
	if err != nil {
		return err
	}
	if err := r.learn(ctx, keys); err != nil {
		return err
	}
	if err := r.hold(ctx); err != nil {
		return err
	}
	living, err := r.living(ctx)
	if err != nil {
		return err
	}
	for _, k := range keys {
		if k.State == store.NextKey {
			return r.promote(ctx, k, living)
		}
	}
	for _, k := range keys {
		if k.State == store.OldKey && living[0].ID == r.self.ID {
			return r.finish(ctx, k)
		}
	}
	return nil
}

// hold says which keys we know, and that we live.
func (r *Ring) hold(ctx context.Context) error {
	self := r.self
	self.Keys = r.Key.IDs()
	return r.Store.SaveKeyHolder(ctx, self)
}

func (r *Ring) keepHolding(ctx context.Context) {
	ticker := time.NewTicker(keyTurn)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			_ = r.hold(ctx) // the turn meets the same error, and says it
		}
	}
}

// learn reads the keys that the database names and we lack, and forgets those that are of no use any more.
func (r *Ring) learn(ctx context.Context, keys []store.SealKey) error {
	var retired []string
	for _, k := range keys {
		if k.State == store.RetiredKey {
			retired = append(retired, k.ID)
			continue
		}
		if r.Source.Command == "" && !slices.Contains(r.Key.IDs(), k.ID) {
			if err := r.reload(ctx, keys); err != nil {
				return err
			}
		}
		switch k.State {
		case store.CurrentKey:
			r.Key.Use(k.ID)
		case store.OldKey:
			r.Key.End(k.ID, k.Since)
		}
	}
	for _, id := range retired { // after another one seals: the one that seals is not forgotten
		r.Key.Forget(id)
	}
	if slices.Equal(retired, r.dropped) {
		return nil
	}
	gone, err := r.Source.forget(ctx, retired)
	if err != nil {
		return err
	}
	for _, id := range gone {
		r.Log.Info("a key that sealed secrets is forgotten", "key", id)
	}
	r.dropped = retired
	return nil
}

// reload reads the key file again. Retired keys stay out.
func (r *Ring) reload(ctx context.Context, keys []store.SealKey) error {
	masters, err := r.Source.Read(ctx)
	if err != nil {
		return err
	}
	for _, m := range masters {
		id, err := secret.KeyID(m)
		if err != nil {
			return err
		}
		if slices.ContainsFunc(keys, func(k store.SealKey) bool { return k.ID == id && k.State == store.RetiredKey }) {
			continue
		}
		if _, err := r.Key.Add(m); err != nil {
			return err
		}
	}
	return nil
}

// living are the processes that live, as far as can be told, in one order for all of them. We are among them.
func (r *Ring) living(ctx context.Context) ([]store.KeyHolder, error) {
	holders, err := r.Store.KeyHolders(ctx)
	if err != nil {
		return nil, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	now := r.Now()
	var out []store.KeyHolder
	for _, h := range holders {
		was, seen := r.heartbeats[h.ID]
		if !seen || was.beats != h.Beats {
			was = heartbeatSeen{h.Beats, now}
			r.heartbeats[h.ID] = was
		}
		if h.ID == r.self.ID || !r.Alone && now.Sub(was.at) < keySilence {
			out = append(out, h)
			continue
		}
		delete(r.heartbeats, h.ID)
		if err := r.Store.DropKeyHolder(ctx, h.ID, h.Beats); err != nil {
			return nil, err
		}
	}
	if len(out) == 0 {
		return nil, problem.Unavailablef("our own row of keys was dropped; it comes back at the next turn")
	}
	return out, nil
}

// promote makes the next key seal when all that live have read it.
func (r *Ring) promote(ctx context.Context, next store.SealKey, living []store.KeyHolder) error {
	if behind := lacking(living, next.ID); len(behind) > 0 {
		return problem.Unavailablef("%s", waitsForKey(next.ID, behind))
	}
	if err := r.Store.PromoteKey(ctx); err != nil {
		return err
	}
	r.Key.Use(next.ID)
	r.Log.Info("another key seals secrets from now on", "key", next.ID)
	r.wake()
	return nil
}

func waitsForKey(id string, hosts []string) string {
	return fmt.Sprintf("key %s has to be read first by salvor serve on: %s; copy the key file there, or restart it where [secrets]key_command gives the key", id, strings.Join(hosts, ", "))
}

// lacking names the hosts of processes that have not read a key.
func lacking(living []store.KeyHolder, id string) []string {
	var out []string
	for _, h := range living {
		if !slices.Contains(h.Keys, id) && !slices.Contains(out, h.Host) {
			out = append(out, h.Host)
		}
	}
	return out
}

// finish seals anew what the old key sealed, and forgets it when nothing needs it.
func (r *Ring) finish(ctx context.Context, old store.SealKey) error {
	if r.clean != old.ID {
		if err := r.reseal(ctx, old); err != nil {
			return err
		}
	} else if r.Now().Sub(r.asked) < heldTurn {
		return nil
	}
	r.asked = r.Now()
	held, err := r.Store.OldKeyUse(ctx, old)
	if err != nil {
		return err
	}
	if held != (store.KeyUse{}) {
		return problem.Unavailablef("key %s opens on: %d ramdisks and %d operations from before the change hold tokens of it", old.ID, held.Boots, held.Operations)
	}
	if err := r.Store.ForgetKey(ctx, old); err != nil {
		return err
	}
	r.wake()
	return nil
}

// reseal seals anew what the old key sealed, until nothing is left.
func (r *Ring) reseal(ctx context.Context, old store.SealKey) error {
	n, err := r.Store.Reseal(ctx)
	if n > 0 {
		r.Log.Info("sealed anew", "rows", n)
	}
	if err != nil {
		return err
	}
	left, err := r.Store.SealedWith(ctx, old.ID)
	if err == nil && left > 0 {
		err = problem.Unavailablef("%d rows are sealed with key %s still", left, old.ID)
	}
	if err == nil {
		r.clean = old.ID
	}
	return err
}
