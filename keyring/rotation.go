// Package keyring reads the keys that seal secrets, from salvor's key file or from a command that prints them. It also carries out a change
// of the key. During a change, each of the processes over one database reads the new key; one of them reseals the secrets, and all of them
// forget the old key. The package must not know which data is sealed, nor who asks for a change.
package keyring

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"

	"salvor/problem"
	"salvor/record"
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
	ProposeKey(ctx context.Context, id string, asker record.Asker) error
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

func (r *Ring) wake() {
	select {
	case r.woken <- struct{}{}:
	default:
	}
}

// Rotate begins to change the key: for one that the source gives beside those that were used, or for a new one.
func (r *Ring) Rotate(ctx context.Context, asker record.Asker) error {
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
	if err := r.Store.ProposeKey(ctx, fresh[0], asker); err != nil {
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
