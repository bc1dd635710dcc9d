// Package keyring reads the keys that seal secrets, from salvor's key file or from a command that prints them. It also carries out a change
// of the key. During a change, each of the processes over one database reads the new key; one of them reseals the secrets, and all of them
// forget the old key. The package must not know which data is sealed, nor who asks for a change.
package keyring

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"

	"salvor/problem"
	"salvor/secret"
	"salvor/store"
	"salvor/wire/native"
)

// Ring sees to it that this process knows the keys that it needs, and carries a change of the key on: whichever process is
// killed, another one, or the next start, goes on where the rows say. It is safe for use by several goroutines.
type Ring struct {
	Config
	self  store.KeyHolder
	woken chan struct{}

	mu          sync.Mutex
	heartbeats  map[string]heartbeatSeen
	lastProblem string

	// clean is the old key with which nothing is sealed any more, and nothing can be: what is left to wait for is asked for at asked again.
	clean string
	asked time.Time
	// dropped are the retired keys that our source was looked through for.
	dropped []string
}

// Config is what a Ring stands on.
type Config struct {
	Source Source
	// Key is what the process seals with.
	Key   *secret.Key
	Store Store
	// Host is told to people who look for a process that lacks a key.
	Host string
	// Alone: no other process can use the database.
	Alone bool
	// Now times the silence of others; it is never compared with theirs.
	Now func() time.Time
	Log *slog.Logger
}

// New makes the Ring of this process. Run works.
func New(c Config) *Ring {
	return &Ring{Config: c, self: store.KeyHolder{ID: uuid.NewString(), Host: c.Host}, woken: make(chan struct{}, 1), heartbeats: map[string]heartbeatSeen{}}
}

// Store is what a change of the key needs of the database.
type Store interface {
	SealKeys(ctx context.Context) ([]store.SealKey, error)
	KeyHolders(ctx context.Context) ([]store.KeyHolder, error)
	SaveKeyHolder(ctx context.Context, h store.KeyHolder) error
	DropKeyHolder(ctx context.Context, id string, beats int64) error
	ProposeKey(ctx context.Context, id string) error
	PromoteKey(ctx context.Context) error
	Reseal(ctx context.Context) (int, error)
	SealedWith(ctx context.Context, id string) (int, error)
	OldKeyUse(ctx context.Context, k store.SealKey) (store.KeyUse, error)
	ForgetKey(ctx context.Context, k store.SealKey) error
}

// heartbeatSeen is when a process was last seen to live, on our own clock.
type heartbeatSeen struct {
	beats int64
	at    time.Time
}

const (
	keyTurn = 2 * time.Second
	// keySilence is how long a process may say nothing before it is taken for dead. A mistake costs it a pause, and nothing is lost:
	// a process that has not read the key that seals seals nothing.
	keySilence = 10 * time.Second
	// heldTurn is how long it takes from one question for who holds tokens of an old key to the next: they may live for days.
	heldTurn = 10 * time.Second
)

// Run works until ctx ends.
func (r *Ring) Run(ctx context.Context) error {
	ticker := time.NewTicker(keyTurn)
	defer ticker.Stop()
	// Apart from the turns, which may last: whoever says nothing for long is taken for dead.
	var holding sync.WaitGroup
	holding.Go(func() { r.keepHolding(ctx) })
	for {
		if err := r.turn(ctx); err != nil && ctx.Err() == nil {
			r.logOnce(slog.LevelWarn, "the keys that seal secrets", err.Error())
		}
		select {
		case <-ctx.Done():
			holding.Wait()
			bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), keyTurn)
			defer cancel()
			return r.leave(bounded)
		case <-ticker.C:
		case <-r.woken:
		}
	}
}

// logOnce logs a word once, not at each turn.
func (r *Ring) logOnce(level slog.Level, what, why string) {
	r.mu.Lock()
	again := r.lastProblem == why
	r.lastProblem = why
	r.mu.Unlock()
	if !again {
		r.Log.Log(context.Background(), level, what, "why", why)
	}
}

// leave takes our row back, so that nobody waits for us.
func (r *Ring) leave(ctx context.Context) error {
	holders, err := r.Store.KeyHolders(ctx)
	for _, h := range holders {
		if h.ID == r.self.ID {
			err = r.Store.DropKeyHolder(ctx, h.ID, h.Beats)
		}
	}
	return ignoreUnavailable(err)
}

func ignoreUnavailable(err error) error {
	if problem.Is(err, problem.Unavailable) {
		return nil
	}
	return err
}

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

func (r *Ring) wake() {
	select {
	case r.woken <- struct{}{}:
	default:
	}
}

// Rotate begins to change the key: for one that the source gives beside those that were used, or for a new one.
func (r *Ring) Rotate(ctx context.Context) error {
	keys, err := r.Store.SealKeys(ctx)
	if err != nil {
		return err
	}
	var fresh []string
	for try := 0; len(fresh) == 0; try++ {
		if try > 0 {
			if err := r.Source.extend(ctx); err != nil {
				return err
			}
		}
		if r.Source.Command == "" {
			if err := r.reload(ctx, keys); err != nil {
				return err
			}
		}
		fresh = slices.DeleteFunc(r.Key.IDs(), func(id string) bool {
			return slices.ContainsFunc(keys, func(k store.SealKey) bool { return k.ID == id })
		})
		if try > 1 {
			return errors.New("the key that was made is not in the key file")
		}
		if slices.ContainsFunc(keys, func(k store.SealKey) bool { return k.State == store.NextKey || k.State == store.OldKey }) {
			return problem.Conflictf("The change to another key is not over yet: see salvor secret status.")
		}
	}
	if len(fresh) > 1 {
		return problem.Conflictf("There are several new keys (%s): leave one of them.", strings.Join(fresh, ", "))
	}
	if err := r.Store.ProposeKey(ctx, fresh[0]); err != nil {
		return err
	}
	r.wake()
	return nil
}

// Status tells how far a change of the key is.
func (r *Ring) Status(ctx context.Context) (native.Seal, error) {
	out := native.Seal{State: "steady", Keys: []native.SealKey{}, Processes: []native.SealProcess{}}
	keys, err := r.Store.SealKeys(ctx)
	if err != nil {
		return out, err
	}
	holders, err := r.Store.KeyHolders(ctx)
	if err != nil {
		return out, err
	}
	next := ""
	for _, k := range keys {
		out.Keys = append(out.Keys, native.SealKey{ID: k.ID, State: string(k.State), Since: k.Since.Format(time.RFC3339)})
		switch k.State {
		case store.NextKey:
			out.State, next = "waiting", k.ID
			if behind := lacking(holders, k.ID); len(behind) > 0 {
				out.WaitsFor = waitsForKey(k.ID, behind)
			}
		case store.OldKey:
			use, err := r.Store.OldKeyUse(ctx, k)
			if err == nil {
				use.Sealed, err = r.Store.SealedWith(ctx, k.ID)
			}
			if err != nil {
				return out, err
			}
			out.State, out.Old = "sealing", &native.SealUse{Rows: use.Sealed, Ramdisks: use.Boots, Operations: use.Operations}
			if use.Sealed == 0 && use != (store.KeyUse{}) {
				out.WaitsFor = "operations that began before the change, and ramdisks that run, to end: they hold tokens of the old key"
			}
		}
	}
	for _, h := range holders {
		out.Processes = append(out.Processes, native.SealProcess{ID: h.ID, Host: h.Host, Keys: h.Keys, Behind: next != "" && !slices.Contains(h.Keys, next)})
	}
	return out, nil
}
