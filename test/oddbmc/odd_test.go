package oddbmc

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"salvor/lab/odd"
	"salvor/problem"
)

// combination is a verb behind one or two oddities.
type combination struct {
	verb     *verb
	oddities []odd.BMCOddity
	session  bool // the driver logs in by a session, not by name and password in each request
}

// combine makes a combination. Oddities of sessions need a session; every second one of the others has one too.
func combine(v *verb, oddities ...odd.BMCOddity) combination {
	c := combination{verb: v, oddities: oddities}
	h := fnv.New32a()
	_, _ = h.Write([]byte(c.String()))
	c.session = h.Sum32()%2 == 1 || slices.ContainsFunc(oddities, func(o odd.BMCOddity) bool { return o.Kind.Scope == odd.ScopeSession })
	return c
}

func (c combination) String() string {
	parts := []string{}
	for _, o := range c.oddities {
		parts = append(parts, o.String())
	}
	return c.verb.name + " behind " + strings.Join(parts, " && ")
}

// profile is what a verb does behind a BMC in order.
type profile struct {
	gets    map[string]any // documents by path
	writes  map[string]map[string]bool
	results map[bool]string // by whether a session is used
}

// profiles runs each verb behind a BMC in order.
func profiles(t *testing.T) map[string]*profile {
	out := map[string]*profile{}
	for i := range verbs {
		v := &verbs[i]
		p := &profile{gets: map[string]any{}, writes: map[string]map[string]bool{}, results: map[bool]string{}}
		for _, session := range []bool{false, true} {
			var mu sync.Mutex
			seen := func(r *http.Request, a *httptest.ResponseRecorder) {
				mu.Lock()
				defer mu.Unlock()
				path := strings.TrimRight(r.URL.Path, "/")
				switch {
				case strings.Contains(path, "/SessionService/"):
				case r.Method == http.MethodGet && a.Code == http.StatusOK:
					var doc any
					if json.Unmarshal(a.Body.Bytes(), &doc) == nil {
						p.gets[path] = doc
					}
				case r.Method != http.MethodGet:
					if p.writes[path] == nil {
						p.writes[path] = map[string]bool{}
					}
					p.writes[path][r.Method] = true
				}
			}
			o := run(t, combination{verb: v, session: session}, seen)
			if o.fault != "" || o.err != nil {
				t.Fatalf("%s behind a BMC in order: %s %v", v.name, o.fault, o.err)
			}
			p.results[session] = o.result
		}
		out[v.name] = p
	}
	return out
}

// singles are all combinations of a verb with one oddity.
func singles(v *verb, p *profile) (out []combination) {
	add := func(k *odd.BMCKind, at odd.Place) {
		out = append(out, combine(v, odd.BMCOddity{Kind: k, Place: at}))
	}
	for _, k := range odd.BMCKinds {
		switch k.Scope {
		case odd.ScopeService, odd.ScopeSession:
			add(k, odd.Place{})
		case odd.ScopeResource, odd.ScopeCollection, odd.ScopeMember:
			for _, path := range slices.Sorted(maps.Keys(p.gets)) {
				doc, _ := p.gets[path].(map[string]any)
				if k.Scope == odd.ScopeCollection && doc["Members"] == nil {
					continue
				}
				if k.Scope != odd.ScopeMember {
					add(k, odd.Place{Path: path})
					continue
				}
				members := k.Members(doc)
				if len(members) > 1 {
					add(k, odd.Place{Path: path})
				}
				for _, m := range members {
					add(k, odd.Place{Path: path, Member: m})
				}
			}
		case odd.ScopeOrder, odd.ScopePatch, odd.ScopeReset:
			for _, path := range slices.Sorted(maps.Keys(p.writes)) {
				if k.Scope == odd.ScopePatch && !p.writes[path][http.MethodPatch] || k.Scope == odd.ScopeReset && !strings.HasSuffix(path, "/ComputerSystem.Reset") {
					continue
				}
				add(k, odd.Place{Path: path})
			}
		}
	}
	return out
}

// outcome is what became of a combination.
type outcome struct {
	err    error
	fault  string // what is wrong with it; empty: nothing
	result string
	took   time.Duration
}

// run does the verb behind the oddities and looks at the machine afterwards.
func run(t *testing.T, c combination, seen func(*http.Request, *httptest.ResponseRecorder)) (o outcome) {
	inWorld(t, worldOptions{session: c.session, oddities: c.oddities, seen: seen}, func(ctx context.Context, w *world) {
		if c.verb.off {
			w.bmc.SetOn(false)
		}
		if c.verb.image != nil {
			w.bmc.SetImage(c.verb.image(w))
		}
		began := time.Now()
		defer func() {
			if r := recover(); r != nil {
				o.fault = fmt.Sprintf("panic: %v", r)
			}
		}()
		var result any
		result, o.err = c.verb.run(ctx, w)
		o.took = time.Since(began)
		o.result = shown(result)
		if o.err == nil && c.verb.check != nil && !mayHide(c) {
			o.fault = c.verb.check(w)
		}
		w.pool.Close()
		time.Sleep(time.Minute)
		o.fault = firstOf(o.fault, leftovers(c, w, o))
	})
	return o
}

func firstOf(texts ...string) string {
	for _, text := range texts {
		if text != "" {
			return text
		}
	}
	return ""
}

// leftovers tells what a verb must never leave behind, and what no error may say.
func leftovers(c combination, w *world, o outcome) string {
	texts := append([]string{}, w.notes.Texts()...)
	if o.err != nil {
		texts = append(texts, o.err.Error())
	}
	for _, text := range append(texts, o.result) {
		for _, s := range secrets {
			if strings.Contains(text, s) {
				return "SECRET SHOWN: " + s
			}
		}
	}
	for _, text := range texts {
		for _, s := range wordsOfGo {
			if strings.Contains(text, s) {
				return fmt.Sprintf("WORDS OF GO: %q", s)
			}
		}
		if strings.ContainsAny(text, "\n\x00\x1b") || len(text) > 1500 {
			return "NOT ONE SENTENCE"
		}
	}
	switch {
	case !w.bmc.On() && !c.verb.leavesOff && (o.err == nil || !c.verb.failureLeavesOff):
		return "LEFT OFF: the machine was on"
	case w.bmc.Sessions() > 0 && !slices.ContainsFunc(c.oddities, func(o odd.BMCOddity) bool { return o.Kind.Leaks }):
		return fmt.Sprintf("SESSIONS LEFT: %d", w.bmc.Sessions())
	case errors.Is(o.err, errStepHangs):
		return "STEP HANGS"
	case w.late.Load():
		return "TOO LONG: an action took more than its time"
	case o.err != nil && problem.Is(o.err, problem.Internal):
		return "AN ERROR WITHOUT A KIND"
	}
	return ""
}

// judge tells what is wrong with a combination; empty: nothing.
func judge(t *testing.T, c combination, p *profile) (string, outcome) {
	o := run(t, c, nil)
	free := true // the result is the same
	for _, one := range c.oddities {
		free = free && one.Kind.Cost == odd.CostNothing && !(c.verb.partial && one.Kind.Passes)
	}
	switch {
	case o.fault != "":
		return o.fault, o
	case o.err == nil && free && !c.verb.raw && o.result != p.results[c.session]:
		return fmt.Sprintf("OTHER RESULT: %s, want %s", o.result, p.results[c.session]), o
	case o.err == nil:
		return "", o
	case !mayFail(c):
		return "FAILED", o
	case !named(c, o.err.Error()):
		return "ODD THING NOT NAMED", o
	}
	return "", o
}

// mayFail tells whether the verb may fail behind the oddities: one of them takes away what the verb needs.
func mayFail(c combination) bool {
	return slices.ContainsFunc(c.oddities, func(o odd.BMCOddity) bool {
		if o.Kind.Cost == odd.CostNothing && o.Kind.Scope != odd.ScopeCollection {
			return false
		}
		switch o.Kind.Scope {
		case odd.ScopeOrder, odd.ScopePatch, odd.ScopeReset, odd.ScopeService, odd.ScopeSession:
			return true
		}
		// A list of systems with one that nobody knows is a question to the operator.
		if o.Place.Path == collectionPath && !strings.HasPrefix(o.Kind.Name, "members: nextLink") && !strings.HasPrefix(o.Kind.Name, "members: second") {
			return true
		}
		if o.Kind.Cost == odd.CostNothing {
			return false
		}
		if o.Place.Path == systemPath && o.Kind.Cost == odd.CostResource {
			return true
		}
		return slices.ContainsFunc(c.verb.needs, func(need string) bool { return takesAway(o, need) })
	})
}

// mayHide tells whether the BMC hides from the verb what the verb should change: nobody can tell this from a BMC that has no such part.
func mayHide(c combination) bool {
	return slices.ContainsFunc(c.oddities, func(o odd.BMCOddity) bool {
		reads := o.Kind.Scope == odd.ScopeResource || o.Kind.Scope == odd.ScopeCollection || o.Kind.Scope == odd.ScopeMember
		return reads && o.Kind.Cost != odd.CostNothing && slices.ContainsFunc(c.verb.needs, func(need string) bool { return takesAway(o, need) })
	})
}

func takesAway(o odd.BMCOddity, need string) bool {
	path, member, _ := strings.Cut(need, "#")
	if path != o.Place.Path {
		return false
	}
	return o.Kind.Cost == odd.CostResource || member == "" || o.Place.Member == "" || strings.HasPrefix(o.Place.Member, member) || strings.HasPrefix(member, o.Place.Member)
}

// named tells whether an error says what is odd: a word of the kind, or the resource, or its member.
func named(c combination, text string) bool {
	return slices.ContainsFunc(c.oddities, func(o odd.BMCOddity) bool {
		words := slices.Clone(o.Kind.Words)
		for _, path := range []string{o.Place.Path, o.Place.Member} {
			if name := path[strings.LastIndexByte(path, '/')+1:]; name != "" {
				words = append(words, name)
			}
		}
		for _, part := range strings.Split(o.Place.Member, "/") {
			if _, err := strconv.Atoi(part); err != nil && len(part) > 2 {
				words = append(words, strings.TrimPrefix(part, "#"))
			}
		}
		text := plainLetters(text)
		return slices.ContainsFunc(words, func(w string) bool { return strings.Contains(text, strings.TrimSuffix(plainLetters(w), "s")) })
	})
}

// plainLetters has "SecureBoot" and "secure boot" be the same.
func plainLetters(text string) string { return strings.ReplaceAll(strings.ToLower(text), " ", "") }

// finding is a combination that went wrong.
type finding struct {
	of    combination
	fault string
	o     outcome
}

func (f finding) String() string {
	text := "done"
	if f.o.err != nil {
		text = f.o.err.Error()
	}
	return fmt.Sprintf("%s: %s: %s [session %t, %s]", f.of, f.fault, text, f.of.session, f.o.took.Round(time.Millisecond))
}

// shrink gives the smallest combination that still goes wrong: one oddity in place of two, one member in place of all.
func shrink(t *testing.T, f finding, p *profile) finding {
	for i := range f.of.oddities {
		if len(f.of.oddities) < 2 {
			break
		}
		one := combination{f.of.verb, []odd.BMCOddity{f.of.oddities[i]}, f.of.session}
		if fault, o := judge(t, one, p); fault != "" {
			f = finding{one, fault, o}
			break
		}
	}
	for i, at := range f.of.oddities {
		if at.Kind.Scope != odd.ScopeMember || at.Place.Member != "" {
			continue
		}
		doc, _ := p.gets[at.Place.Path]
		for _, member := range at.Kind.Members(doc) {
			smaller := combination{f.of.verb, slices.Clone(f.of.oddities), f.of.session}
			smaller.oddities[i].Place.Member = member
			if fault, o := judge(t, smaller, p); fault != "" {
				f = finding{smaller, fault, o}
				break
			}
		}
	}
	return f
}

// The sizes of a run: how many combinations go test takes, and how many pairs all of them have.
const (
	sampled    = 600
	wholePairs = 8000
)

func seedOf(t *testing.T) uint64 {
	seed := uint64(time.Now().UnixNano())
	if text := os.Getenv("SALVOR_SEED"); text != "" {
		var err error
		if seed, err = strconv.ParseUint(text, 10, 64); err != nil {
			t.Fatalf("SALVOR_SEED: %v", err)
		}
	}
	t.Logf("SALVOR_SEED=%d", seed)
	return seed
}

// chosen are the combinations of a run: those that SALVOR_ODD names by parts of VERB behind KIND at PLACE, separated by " & "; all with
// SALVOR_SWEEP=whole; else a sample.
func chosen(t *testing.T, known map[string]*profile) []combination {
	var all []combination
	for i := range verbs {
		all = append(all, singles(&verbs[i], known[verbs[i].name])...)
	}
	whole := os.Getenv("SALVOR_SWEEP") == "whole"
	random := rand.New(rand.NewPCG(seedOf(t), 0))
	pair := func() combination {
		one := all[random.IntN(len(all))]
		for {
			if two := all[random.IntN(len(all))]; two.verb == one.verb {
				return combine(one.verb, one.oddities[0], two.oddities[0])
			}
		}
	}
	t.Logf("%d kinds, %d verbs, %d combinations of one oddity", len(odd.BMCKinds), len(verbs), len(all))
	if text := os.Getenv("SALVOR_ODD"); text != "" {
		return slices.DeleteFunc(all, func(c combination) bool {
			return slices.ContainsFunc(strings.Split(text, " & "), func(part string) bool { return !strings.Contains(c.String(), strings.TrimSpace(part)) })
		})
	}
	var out []combination
	if whole {
		out = all
		for range wholePairs {
			out = append(out, pair())
		}
		return out
	}
	count := sampled
	if n, err := strconv.Atoi(os.Getenv("SALVOR_ODD_SAMPLE")); err == nil {
		count = n
	}
	byKind := map[string][]combination{} // a kind with few places is as likely as one with many
	for _, c := range all {
		byKind[c.oddities[0].Kind.Name] = append(byKind[c.oddities[0].Kind.Name], c)
	}
	for i := range count * 3 / 4 {
		of := byKind[odd.BMCKinds[i%len(odd.BMCKinds)].Name]
		out = append(out, of[random.IntN(len(of))])
	}
	for range count / 4 {
		out = append(out, pair())
	}
	return out
}

// TestOddBMCs runs every verb behind odd BMCs: it is done, or one sentence names what is odd, and the machine is as it was.
func TestOddBMCs(t *testing.T) {
	known := profiles(t)
	work := chosen(t, known)
	began := time.Now()
	var mu sync.Mutex
	var findings []finding
	const workers = 4
	t.Run("combinations", func(t *testing.T) {
		for i := range workers {
			t.Run(fmt.Sprint(i), func(t *testing.T) {
				t.Parallel()
				for at := i; at < len(work); at += workers {
					c := work[at]
					p := known[c.verb.name]
					fault, o := judge(t, c, p)
					if fault == "" {
						continue
					}
					f := finding{c, fault, o}
					if os.Getenv("SALVOR_SWEEP") != "whole" || len(c.oddities) > 1 {
						f = shrink(t, f, p)
					}
					mu.Lock()
					findings = append(findings, f)
					mu.Unlock()
				}
			})
		}
	})
	t.Logf("%d combinations in %s, %d went wrong", len(work), time.Since(began).Round(time.Millisecond), len(findings))
	report(t, findings, len(work))
}

// shownFindings bounds how many findings of one kind a report shows.
const shownFindings = 12

// report prints what went wrong by kind, the worst first. SALVOR_ODD_REPORT names a file that gets more of it.
func report(t *testing.T, findings []finding, of int) {
	byKind := map[string]map[string]finding{}
	for _, f := range findings {
		name := f.of.oddities[0].Kind.Name
		if len(f.of.oddities) > 1 {
			name = "pairs of which each alone is right"
		}
		if byKind[name] == nil {
			byKind[name] = map[string]finding{}
		}
		byKind[name][f.of.String()] = f
	}
	names := slices.SortedFunc(maps.Keys(byKind), func(a, b string) int {
		return cmp.Or(len(byKind[b])-len(byKind[a]), strings.Compare(a, b))
	})
	var all strings.Builder
	fmt.Fprintf(&all, "%d combinations, %d wrong; by kind:\n", of, len(findings))
	for _, name := range names {
		fmt.Fprintf(&all, "%6d  %-60s %s\n", len(byKind[name]), name, count(byKind[name], func(f finding) string { f.fault, _, _ = strings.Cut(f.fault, ":"); return f.fault }))
	}
	for _, name := range names {
		fmt.Fprintf(&all, "\n== %s: %d\nverbs: %s\n", name, len(byKind[name]), count(byKind[name], func(f finding) string { return f.of.verb.name }))
		shown := map[string]bool{}
		for _, key := range slices.Sorted(maps.Keys(byKind[name])) {
			f := byKind[name][key]
			if of := f.of.verb.name + f.fault; shown[of] || len(shown) >= shownFindings {
				continue
			} else {
				shown[of] = true
			}
			fmt.Fprintf(&all, "%.600s\n", f)
			if len(shown) <= 3 {
				t.Errorf("%s", f)
			}
		}
	}
	if file := os.Getenv("SALVOR_ODD_REPORT"); file != "" {
		if err := os.WriteFile(file, []byte(all.String()), 0o644); err != nil {
			t.Error(err)
		}
	}
}

// count tells how many findings have which property, the most frequent first.
func count(findings map[string]finding, of func(finding) string) string {
	n := map[string]int{}
	for _, f := range findings {
		n[of(f)]++
	}
	var out []string
	for _, name := range slices.SortedFunc(maps.Keys(n), func(a, b string) int { return cmp.Or(n[b]-n[a], strings.Compare(a, b)) }) {
		out = append(out, fmt.Sprintf("%s %d", name, n[name]))
	}
	return strings.Join(out, ", ")
}
