package netboot

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"salvor/durable"
	"salvor/metal"
	"salvor/problem"
	"salvor/secret"
	wire "salvor/wire/native"
)

// Run keeps the plans of the site, and takes what was seen to the centre, until ctx ends.
func (s *Site) Run(ctx context.Context) error {
	defer s.files.close()
	sync, reports := time.NewTicker(syncEvery), time.NewTicker(reportEvery)
	defer sync.Stop()
	defer reports.Stop()
	for {
		s.Sync(ctx)
		for due := false; !due; {
			select {
			case <-ctx.Done():
				return nil
			case <-sync.C:
				due = true
			case <-reports.C:
				s.sendContacts(ctx)
			}
		}
	}
}

// Sync reads all plans, and fetches the boot files that they name.
func (s *Site) Sync(ctx context.Context) {
	bounded, cancel := context.WithTimeout(ctx, syncTimeout)
	defer cancel()
	s.mu.Lock()
	s.learned = map[string]bool{}
	header := http.Header{}
	if s.mark != "" {
		header.Set("If-None-Match", s.mark)
	}
	s.mu.Unlock()
	resp, err := s.open(bounded, http.MethodGet, wire.SitePlansPath, header, nil)
	var all wire.SitePlans
	var mark string
	if err == nil {
		mark = resp.Header.Get("Etag")
		if resp.StatusCode != http.StatusNotModified {
			err = decodeAnswer(resp.Body, &all)
		}
		resp.Body.Close()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	learned := s.learned
	s.learned = nil
	if ctx.Err() != nil {
		return
	}
	if err != nil && !problem.Is(err, problem.Forbidden) && !errors.Is(err, errAway) {
		err = problem.Unavailablef("%w: %v", errAway, err)
	}
	s.setAway(err)
	switch now := s.now(); {
	case problem.Is(err, problem.Forbidden):
		// Who is trusted no more forgets what it was trusted with.
		s.cfg.Log.Error("nothing is answered any more", "error", err)
		s.cached, s.mark = cachedPlans{map[string]cachedPlan{}}, ""
		s.save()
	case err != nil:
	case resp.StatusCode == http.StatusNotModified:
		for id, p := range s.cached.Plans {
			p.ConfirmedAt = now
			s.cached.Plans[id] = p
		}
		if now.Sub(s.saved) > time.Minute {
			s.save()
		}
	default:
		s.takeAll(all.Plans, mark, learned)
	}
}

// takeAll keeps all plans as the centre gave them, but for those of which it said something newer meanwhile; s.mu is held.
func (s *Site) takeAll(all []wire.SitePlan, mark string, learned map[string]bool) {
	cached, now := make(map[string]cachedPlan, len(all)), s.now()
	for _, p := range all {
		cached[p.NodeID] = cachedPlan{p, now}
	}
	for id := range learned {
		mark = "" // what is kept is not what the centre marked
		if p, ok := s.cached.Plans[id]; ok {
			cached[id] = p
		} else {
			delete(cached, id)
		}
	}
	s.cached, s.mark = cachedPlans{cached}, mark
	plans := make([]wire.SitePlan, 0, len(cached))
	for _, p := range cached {
		s.files.prefetch(p.SitePlan)
		plans = append(plans, p.SitePlan)
	}
	s.files.keepOnly(plans)
	s.save()
}

// Away tells whether the centre did not answer last.
func (s *Site) Away() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.away
}

// RecordBootProgress is Config.RecordProgress's.
func (s *Site) RecordBootProgress(n *metal.Node, what string) {
	s.report(wire.SiteReport{NodeID: n.ID, BootNumber: n.BootNumber, Progress: what})
}

// Failed is Config.Failed's.
func (s *Site) Failed(_ context.Context, n *metal.Node, why string) {
	s.report(wire.SiteReport{NodeID: n.ID, BootNumber: n.BootNumber, Failed: why})
}

// Refused is Config.Refused's.
func (s *Site) Refused(_ context.Context, n *metal.Node, r metal.BootRefusal) {
	s.report(wire.SiteReport{NodeID: n.ID, BootNumber: n.BootNumber, Refused: r.File, RefusedWhy: r.Why, RefusedFinal: r.Final})
}

// report keeps a word for the centre; of too many the newest are dropped: they tell how machines boot, and change nothing.
func (s *Site) report(w wire.SiteReport) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.reports) < maxWords {
		s.reports = append(s.reports, w)
	}
}

func (s *Site) sendContacts(ctx context.Context) {
	s.mu.Lock()
	reports := s.reports
	if s.away || len(reports) == 0 {
		s.mu.Unlock()
		return
	}
	s.reports = nil
	s.mu.Unlock()
	text, err := json.Marshal(wire.SiteReports{Reports: reports})
	if err == nil {
		bounded, cancel := context.WithTimeout(ctx, askTimeout)
		defer cancel()
		var resp *http.Response
		if resp, err = s.open(bounded, http.MethodPost, wire.SiteReportsPath, http.Header{"Content-Type": {"application/json"}}, bytes.NewReader(text)); err == nil {
			resp.Body.Close()
		}
	}
	if errors.Is(err, errAway) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.setAway(err)
		s.reports = append(reports, s.reports...)
		s.reports = s.reports[:min(len(s.reports), maxWords)]
	} else if err != nil {
		s.cfg.Log.Warn("tell the centre what was seen", "error", err)
	}
}

// The plans lie on the disk sealed by a key that comes from the site token: they hold agent tokens and
// the secrets of volumes, and a copy of the directory without the token's file gives none of them away.
const (
	keptName  = "plans.sealed"
	keptPlace = "site plans"
)

func (s *Site) key() (*secret.Key, error) {
	sum := sha256.Sum256([]byte("salvor site plans:" + s.cfg.Token.Reveal()))
	return secret.NewKey(sum[:])
}

// save writes the kept plans; s.mu is held.
func (s *Site) save() {
	s.saved = s.now()
	err := func() error {
		text, err := json.Marshal(s.cached)
		if err != nil {
			return err
		}
		key, err := s.key()
		if err != nil {
			return err
		}
		return durable.Write(filepath.Join(s.cfg.Dir, keptName), []byte(key.Seal(secret.New(string(text)), keptPlace)), 0o600)
	}()
	if err != nil {
		s.cfg.Log.Error("keep the boot plans", "error", err)
	}
}

func (s *Site) load() error {
	text, err := os.ReadFile(filepath.Join(s.cfg.Dir, keptName))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	key, err := s.key()
	if err != nil {
		return err
	}
	plain, err := key.Open(string(text), keptPlace)
	if err != nil {
		return err
	}
	var cached cachedPlans
	if err := json.Unmarshal([]byte(plain.Reveal()), &cached); err != nil || cached.Plans == nil {
		return problem.Invalidf("%s is not what was written", keptName)
	}
	s.cached = cached
	return nil
}
