package serve

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"salvor/config"
	"salvor/durable"
	"salvor/problem"
	"salvor/record"
)

const (
	// historyTurn is the period at which a process checks whether the database is held or went back.
	historyTurn = time.Second
	// raiseEvery is the period at which the counter rises while the process writes.
	raiseEvery = 10 * time.Second
)

// witnessFile is the name of the witness in the state directory.
const witnessFile = "witness.json"

func witnessFiles(c *config.Config) []string {
	out := []string{filepath.Join(c.Default.StatePath, witnessFile)}
	if c.Database.WitnessFile != "" {
		out = append(out, c.Database.WitnessFile)
	}
	return out
}

// readWitness reads a witness file. A missing file gives an empty witness.
func readWitness(path string) (w record.Witness, err error) {
	b, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return w, nil
	}
	if err == nil {
		err = json.Unmarshal(b, &w)
	}
	if err != nil {
		return w, problem.Invalidf("witness file %s cannot be read: %w; it remembers how far the database had come: to go on without it, remove it", path, err)
	}
	return w, nil
}

// writeWitness stores the incarnation and the counter. Other processes may write the same file, so it never lowers the counter of an
// incarnation.
func writeWitness(path string, w record.Witness) error {
	if old, err := readWitness(path); err == nil && old.ID == w.ID && old.Counter >= w.Counter {
		return nil
	}
	b, err := json.Marshal(w)
	if err != nil {
		return err
	}
	return durable.Replace(path, append(b, '\n'), 0o600)
}

// compareHistory holds the database before anything acts on it, if a witness contradicts it. Then it raises the counter.
func (p *ControlPlane) compareHistory(ctx context.Context) error {
	for _, path := range witnessFiles(p.cfg) {
		w, err := readWitness(path)
		if err == nil {
			err = p.Store.Compare(ctx, w, path)
		}
		if err != nil {
			return err
		}
	}
	if err := p.awaitHosts(ctx); err != nil {
		return err
	}
	return p.raise(ctx)
}

// raise increments the counter unless the database is held, and then writes the witnesses.
func (p *ControlPlane) raise(ctx context.Context) error {
	i, err := p.Store.Incarnation(ctx)
	if err != nil {
		return err
	}
	if i.Held == nil {
		if i, err = p.Store.Raise(ctx); err != nil {
			return err
		}
	}
	p.remember(ctx, i)
	return nil
}

// rememberEnd increments the counter and writes the witnesses after all tasks of the process have ended. If a standby that lacks the last
// seconds takes over before the next start, its counter is lower than that of the witnesses.
func (p *ControlPlane) rememberEnd() {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	if err := p.raise(ctx); err != nil {
		p.log.Warn("remember how far the database has come: at the end", "error", err)
	}
}

// remember writes the committed incarnation to the witness files. It writes nothing while the database is held.
func (p *ControlPlane) remember(ctx context.Context, i record.Incarnation) {
	w := record.Witness{ID: i.ID, Counter: i.Counter}
	if held := i.Held != nil; held != p.heldBefore {
		if p.heldBefore = held; held {
			p.log.Error("the database is held: nothing acts on it, and nothing is changed", "why", i.Held.Summary(), "detail", i.Held.Detail, "next", record.HeldNext)
		} else {
			p.log.Info("the database is not held any more")
		}
	}
	if i.Held != nil || w == p.witnessed {
		return
	}
	p.witnessed = w
	for _, path := range witnessFiles(p.cfg) {
		if old, err := readWitness(path); err == nil && old.ID != "" && old.ID != w.ID {
			if empty, err := p.Store.IsEmpty(ctx); err != nil || empty {
				p.witnessed = record.Witness{} // an empty database may be there by mistake
				continue
			}
		}
		err := writeWitness(path, w)
		if err != nil {
			p.witnessed = record.Witness{}
		}
		p.sayRemembered(path, err)
	}
}

// sayRemembered logs that a witness file cannot be written, at once and then each minute. It also logs when writing works again.
func (p *ControlPlane) sayRemembered(path string, err error) {
	const words = "remember how far the database has come"
	said, failing := p.unwritten[path]
	switch {
	case err != nil && (!failing || time.Since(said) >= time.Minute):
		if p.unwritten == nil {
			p.unwritten = map[string]time.Time{}
		}
		p.unwritten[path] = time.Now()
		p.log.Error(words, "file", path, "error", err)
	case err == nil && failing:
		delete(p.unwritten, path)
		p.log.Info(words+": it works again", "file", path)
	}
}

// watchHistory checks every second whether the database is held or went back. It raises the counter while this process writes.
func (p *ControlPlane) watchHistory(ctx context.Context) error {
	raised := time.Now()
	everyTurn(ctx, historyTurn, historyTurn, func(ctx context.Context) {
		bounded, cancel := context.WithTimeout(ctx, 5*time.Second)
		defer cancel()
		i, err := p.Store.Incarnation(bounded)
		if err != nil {
			return // another part logs that the database is away
		}
		if i.Held == nil && time.Since(raised) >= raiseEvery && p.Store.Wrote() {
			if i, err = p.Store.Raise(bounded); err != nil {
				return
			}
			raised = time.Now()
		}
		p.remember(bounded, i)
	})
	return nil
}
