// Package repair carries repairs of the machine's installed systems out: on overlays in memory first, then on its disks. It keeps the overlays
// of one repair between the commands of the control plane. It must not know HTTP endpoints, tokens, or how the server was found.
package repair

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"sync"
	"time"

	"salvor/agent/examine"
	"salvor/agent/sandbox"
	"salvor/diagnose"
	"salvor/problem"
	"salvor/repair"
	wire "salvor/wire/agent"
)

const (
	// maxFiles bounds the contents of files that an undo gets, in bytes.
	maxFiles = 2 << 20
	// leastMemory and memoryShare say what a program of the system may take of the free memory.
	leastMemory = 128 << 20
	memoryShare = 2
)

// Repairer carries out one repair at a time.
type Repairer struct {
	Log *slog.Logger

	mu      sync.Mutex
	current *openRepair // nil without one
}

// openRepair is a plan with its overlays.
type openRepair struct {
	id      string
	session *examine.OverlaySession
	plan    *repair.Plan
	chunks  []changedChunk
	disks   []examine.CoveredDisk
	files   []wire.RestoreFile
	// now was the time by the server's clock when the plan began, at planned by the machine's own.
	now, planned time.Time
}

// Plan mends the machine's systems on overlays and keeps those until End. A former repair ends first.
func (r *Repairer) Plan(ctx context.Context, q Request) (plan *repair.Plan, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := r.end(ctx); err != nil {
		return nil, err
	}
	q.Log = r.Log
	planned := time.Now()
	if q.Now.IsZero() {
		q.Now = planned
	}
	session, err := examine.Open(ctx, q.Request)
	if err != nil {
		return nil, err
	}
	defer func() { // also where a panic leaves the plan
		q.ClearKeys()
		if r.current == nil {
			err = errors.Join(err, session.Close(ctx))
		}
	}()
	p := &planner{Request: q, session: session, sandbox: sandbox.New(r.Log, max(examine.AvailableMemory()/memoryShare, leastMemory))}
	chunks, disks, err := p.make(ctx)
	if err != nil {
		return nil, err
	}
	if err := checkSize(p.plan); err != nil {
		return nil, err
	}
	r.current = &openRepair{id: q.ID, session: session, plan: p.plan, chunks: chunks, disks: disks, files: keptFiles(p.editors, p.plan), now: q.Now, planned: planned}
	return p.plan, nil
}

// checkSize refuses a plan that no answer holds.
func checkSize(p *repair.Plan) error {
	b, err := json.Marshal(p)
	if err == nil && len(b) > MaxPlan {
		err = problem.Unsupportedf("the plan has %d bytes, and an answer holds %d: repair fewer findings at once", len(b), MaxPlan)
	}
	return err
}

// keptFiles are what an undo by files needs, in the order of the plan. Files that it cannot put back follow, each with the reason. It is empty where
// it could put none back.
func keptFiles(editors []*systemEditor, plan *repair.Plan) []wire.RestoreFile {
	kept, leftOut := []wire.RestoreFile{}, []wire.RestoreFile{}
	size := 0
	for _, f := range plan.Files {
		for _, e := range editors {
			n := e.files[f.Path]
			if n == nil || n.Root != f.Root {
				continue
			}
			why := ""
			switch {
			case f.MadeBy != "":
				why = "a program of the system made it, and an undo by files puts back what salvor wrote"
			case isLarge(n.Before, n.content):
				why = fmt.Sprintf("it had more than %d bytes, or no memory was left for its former content", maxKept)
			case size+len(n.content) > maxFiles:
				why = fmt.Sprintf("the former contents of all files have more than %d bytes", maxFiles)
			}
			if why != "" {
				leftOut = append(leftOut, wire.RestoreFile{Root: f.Root, Path: f.Path, LeftOut: why})
				continue
			}
			size += len(n.content)
			kept = append(kept, wire.RestoreFile{Root: f.Root, Path: f.Path, Before: f.Before, After: f.After, Content: n.content})
		}
	}
	if len(kept) == 0 {
		return kept
	}
	out := slices.Concat(kept, leftOut)
	return out[:min(len(out), maxChanges)]
}

// find returns the repair with that id. problem.NotFound: there is none, or the agent has restarted since.
func (r *Repairer) find(id string) (*openRepair, error) {
	if r.current == nil || r.current.id != id {
		return nil, problem.NotFoundf("repair %.40q has no overlays in this ramdisk: plan it again", id)
	}
	return r.current, nil
}

// Images gives a page of what the changed chunks hold on the disks.
func (r *Repairer) Images(id, cursor string) (*wire.ImagePage, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	o, err := r.find(id)
	if err != nil {
		return nil, err
	}
	return imagePage(o.chunks, o.plan.Disks, cursor)
}

// Files gives the contents of files before the repair.
func (r *Repairer) Files(id string) ([]wire.RestoreFile, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	o, err := r.find(id)
	if err != nil {
		return nil, err
	}
	return o.files, nil
}

// Write writes the changed chunks to the disks and then carries the settings of the firmware out. Where one of them fails it is an error, though the
// chunks are written: the control plane puts them back then. Called again, it goes on.
func (r *Repairer) Write(ctx context.Context, id, digest string) (*wire.WrittenRepair, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	o, err := r.find(id)
	if err != nil {
		return nil, err
	}
	if o.plan.Digest != digest {
		return nil, problem.Conflictf("repair %s: the plan has the digest %s, and not %.64q: consent to that one", id, o.plan.Digest, digest)
	}
	answer := &wire.WrittenRepair{}
	if answer.Chunks, err = writeOverlays(ctx, o.chunks, o.disks, o.session.SetWritable); err != nil {
		return nil, err
	}
	if answer.Settings, err = applySettings("", o.plan.Settings, o.now.Add(time.Since(o.planned))); err != nil {
		return nil, err
	}
	if len(answer.Settings) > 0 {
		answer.SettingsUndo = "none"
	}
	answer.At = time.Now().UTC()
	return answer, nil
}

// writeOverlays writes the chunks of all disks from their overlays. setWritable lets writes to a disk in.
func writeOverlays(ctx context.Context, chunks []changedChunk, covered []examine.CoveredDisk, setWritable func(disk string) error) (int64, error) {
	var disks []*diskWrite
	for _, part := range splitByDisk(chunks) {
		d := covered[part[0].disk]
		if err := setWritable(d.Path); err != nil {
			return 0, err
		}
		f, err := openDirect(d.Path, os.O_RDWR)
		if err != nil {
			return 0, err
		}
		defer f.Close()
		overlay, err := openDirect(d.Overlay, os.O_RDONLY)
		if err != nil {
			return 0, err
		}
		defer overlay.Close()
		disks = append(disks, &diskWrite{chunkWriter: chunkWriter{disk: f, name: d.Path, content: overlayContent(overlay, overlay.buffer, d.Path)}, chunks: part})
	}
	return writeDisks(ctx, disks, false)
}

// Restore writes a page of before-images back, or only compares. A repair whose overlays are open ends first.
func (r *Repairer) Restore(ctx context.Context, p wire.RestoreImagesParams) (*wire.WrittenRepair, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := r.end(ctx); err != nil {
		return nil, err
	}
	release, err := examine.TakeDown(ctx, r.Log)
	if err != nil {
		return nil, err
	}
	answer, err := restoreImages(ctx, "", p)
	return answer, errors.Join(err, release())
}

// End takes the overlays of a repair down. Without any it does nothing.
func (r *Repairer) End(ctx context.Context, id string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.current == nil || r.current.id != id {
		return nil
	}
	return r.end(ctx)
}

func (r *Repairer) end(ctx context.Context) error {
	if r.current == nil {
		return nil
	}
	if err := r.current.session.Close(ctx); err != nil {
		return err
	}
	r.current = nil
	return nil
}

// ParseConsents reads the consents of an owner.
func ParseConsents(texts []string) ([]diagnose.Consent, error) {
	var out []diagnose.Consent
	for _, text := range texts {
		switch c := diagnose.Consent(text); c {
		case diagnose.ConsentSettings, diagnose.ConsentFiles, diagnose.ConsentBoot:
			out = append(out, c)
		default:
			return nil, problem.Invalidf("parameter consents: %.40q is none of settings, files and boot", text)
		}
	}
	return out, nil
}
