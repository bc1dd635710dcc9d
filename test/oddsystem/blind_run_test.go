//go:build causes

package oddsystem

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"salvor/test/must"
)

// TestBlindFaults makes each change of the list on its system, asks the rules, and then the system's programs and a start of the machine.
// What the file of results has is not asked again, so that the rules are asked once. With SALVOR_BLIND_RULES only the rules are asked; a later run asks
// the rest, and writes the section of docs/blind-faults.md.
func TestBlindFaults(t *testing.T) {
	r := newOddRun(t)
	faults, done := readBlind(t)
	results := make([]BlindResult, len(faults))
	var workers sync.WaitGroup
	room := make(chan struct{}, workersAtOnce)
	for n, f := range faults {
		at := slices.IndexFunc(installations, func(i installation) bool { return i.name == f.System })
		if at < 0 {
			t.Fatalf("%s: there is no system %q", f.Name, f.System)
		}
		workers.Go(func() {
			room <- struct{}{}
			defer func() { <-room }()
			one, found := done[f.Name]
			one.Fault, one.System = f, f.System
			i, change := installations[at], func(place string) error { return script(f.Change, place) }
			asks := one.Truth == nil && os.Getenv("SALVOR_BLIND_RULES") == ""
			if !found || asks {
				err := r.withChange(i, change, func(o *overlay) (err error) {
					if !found {
						err = r.diagnose(i, o, &one.Result)
					}
					if err == nil && asks {
						err = r.askPrograms(i, o, &one.Result, true, change)
					}
					return err
				})
				if err != nil {
					t.Errorf("%s: %v", f.Name, err)
					return
				}
				r.keepBlind(t, one)
			}
			one.Truth = one.Truth.without(r.cleanTruth(installations[at]))
			results[n] = one
		})
	}
	workers.Wait()
	section := BlindSection(slices.DeleteFunc(results, func(r BlindResult) bool { return r.Fault.Name == "" }))
	t.Log(section)
	if os.Getenv("SALVOR_BLIND_RULES") == "" && !t.Failed() {
		before, _, _ := strings.Cut(string(must.Get(os.ReadFile(blindPage))(t)), BlindTitle)
		must.OK(t, os.WriteFile(blindPage, []byte(before+section), 0o644))
	}
}

// keepBlind appends a result to a file. The last line about a fault counts.
func (r *oddRun) keepBlind(t *testing.T, one BlindResult) {
	r.mu.Lock()
	defer r.mu.Unlock()
	f := must.Get(os.OpenFile(blindResults, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644))(t)
	one.Fault = BlindFault{Name: one.Fault.Name} // the list has the rest
	must.Get(f.Write(append(must.Get(json.Marshal(one))(t), '\n')))(t)
	must.OK(t, f.Close())
}

// script runs lines of bash that change the system below a root.
func script(lines, place string) error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "bash", "-euc", lines)
	cmd.Env, cmd.Dir = append(os.Environ(), "R="+place), place
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("the change: %w: %.300s", err, out)
	}
	return nil
}
