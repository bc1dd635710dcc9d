package oddbmc

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"io/fs"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/fstest"
	"time"

	"salvor/driver/redfish/link"
	"salvor/lab/odd"
	"salvor/problem"
	"salvor/test/must"
)

// combination is a verb behind one or two oddities.
type combination struct {
	verb     *verb
	oddities []odd.BMCOddity
	session  bool // the driver logs in by a session, not by name and password in each request
	tree     *tree
}

// tree is a recorded BMC by name.
type tree struct {
	name  string
	files fs.FS
}

// combine makes a combination. Oddities of sessions need a session; every second one of the others has one too.
func combine(of *tree, v *verb, oddities ...odd.BMCOddity) combination {
	c := combination{verb: v, oddities: oddities, tree: of}
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
	name := c.verb.name
	if c.tree != nil {
		name += " of " + c.tree.name
	}
	return name + " behind " + strings.Join(parts, " && ")
}

// profile is what a verb does behind a BMC in order.
type profile struct {
	gets    map[string]any // documents by path
	writes  map[string]map[string]bool
	results map[bool]string // by whether a session is used
}

// profiles runs each verb behind a BMC in order, which is that of a tree or else drivertest's. A verb that a recorded BMC cannot do has none.
func profiles(t *testing.T, of *tree) map[string]*profile {
	out := map[string]*profile{}
verbs:
	for i := range verbs {
		v := &verbs[i]
		if of != nil && !slices.Contains(verbsOfTrees, v.name) {
			continue
		}
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
			o := run(t, combination{verb: v, session: session, tree: of}, seen)
			if of != nil && o.err != nil {
				continue verbs
			}
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
func singles(of *tree, v *verb, p *profile) (out []combination) {
	add := func(k *odd.BMCKind, at odd.Place) {
		out = append(out, combine(of, v, odd.BMCOddity{Kind: k, Place: at}))
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
		case odd.ScopeOrder, odd.ScopePatch, odd.ScopeDirectPatch, odd.ScopeReset:
			for _, path := range slices.Sorted(maps.Keys(p.writes)) {
				suits := true
				switch k.Scope {
				case odd.ScopePatch:
					suits = p.writes[path][http.MethodPatch]
				case odd.ScopeDirectPatch:
					suits = p.writes[path][http.MethodPatch] && !p.isSettings(path)
				case odd.ScopeReset:
					suits = strings.HasSuffix(path, "/ComputerSystem.Reset")
				}
				if suits {
					add(k, odd.Place{Path: path})
				}
			}
		}
	}
	return out
}

// isSettings tells whether a path is the settings resource of a resource that the verb reads.
func (p *profile) isSettings(path string) bool {
	for _, doc := range p.gets {
		members, _ := doc.(map[string]any)
		settings, _ := members["@Redfish.Settings"].(map[string]any)
		if link.In(settings["SettingsObject"]) == path {
			return true
		}
	}
	return false
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
	is := worldOptions{session: c.session, oddities: c.oddities, seen: seen}
	if c.tree != nil {
		is.tree = c.tree.files
	}
	inWorld(t, is, func(ctx context.Context, w *world) {
		if c.verb.off {
			w.setOn(false)
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
		if o.err == nil && c.verb.check != nil && c.tree == nil && !mayHide(c) {
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
	case !w.isOn() && !c.verb.leavesOff && (o.err == nil || !c.verb.failureLeavesOff):
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
		free = free && one.Kind.Cost == odd.CostNothing && !(c.verb.partial && one.Kind.Partial)
	}
	switch {
	case o.fault == "STEP HANGS" && isWary(c):
		return "", o
	case o.fault != "":
		return o.fault, o
	case o.err == nil && free && !c.verb.raw && o.result != p.results[c.session]:
		return fmt.Sprintf("OTHER RESULT: %s, want %s", o.result, p.results[c.session]), o
	case o.err == nil:
		return "", o
	case !mayFail(c):
		return "FAILED", o
	case !named(c, p, o.err.Error()):
		return "ODD THING NOT NAMED", o
	}
	return "", o
}

// isWary tells whether an oddity hides something without which the verb does not claim that it is done.
func isWary(c combination) bool {
	return slices.ContainsFunc(c.oddities, func(o odd.BMCOddity) bool {
		if o.Kind.Scope == odd.ScopeCollection && o.Place == (odd.Place{}) && len(c.verb.wary) > 0 {
			return true // each collection is odd
		}
		return slices.ContainsFunc(c.verb.wary, func(prefix string) bool {
			return strings.HasPrefix(o.Place.Path+"#"+o.Place.Member, prefix) || o.Place.Path == prefix
		})
	})
}

// mayFail tells whether the verb may fail behind the oddities: one of them takes away what the verb needs.
func mayFail(c combination) bool {
	slow := 0
	for _, o := range c.oddities {
		if strings.HasPrefix(o.Kind.Name, "slow:") {
			slow++
		}
	}
	if isWary(c) || slow > 1 || slow > 0 && c.verb.hurries {
		return true
	}
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
		if o.Place.Path == systemPath && o.Kind.Cost == odd.CostResource || c.tree != nil {
			return true // needs are paths of drivertest's BMC
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

// named tells whether an error says what is odd: a word of the kind, or the resource, or its member. Where all of a recorded document is odd, each of
// its members is.
func named(c combination, p *profile, text string) bool {
	return slices.ContainsFunc(c.oddities, func(o odd.BMCOddity) bool {
		words := slices.Clone(o.Kind.Words)
		for _, path := range []string{o.Place.Path, o.Place.Member} {
			if name := path[strings.LastIndexByte(path, '/')+1:]; name != "" {
				words = append(words, name)
			}
		}
		members := []string{o.Place.Member}
		if doc, ok := p.gets[o.Place.Path].(map[string]any); ok && c.tree != nil && o.Place.Member == "" {
			members = slices.Collect(maps.Keys(doc))
			words = append(words, slices.DeleteFunc(slices.Clone(members), func(m string) bool { return len(m) < 4 })...)
		}
		for member, word := range map[string]string{"PowerState": "power", "Actions": "reset", "Boot": "boot", "ManagedBy": "manager"} {
			if slices.ContainsFunc(members, func(m string) bool { return strings.Contains(m, member) }) {
				words = append(words, word)
			}
		}
		for _, part := range strings.Split(o.Place.Member, "/") {
			if _, err := strconv.Atoi(part); err != nil && len(part) > 2 {
				words = append(words, strings.TrimPrefix(part, "#"))
			}
		}
		if o.Kind.Scope == odd.ScopeCollection && o.Place == (odd.Place{}) { // each list has the odd member
			words = append(words, "/Ghost", "no links", "no member", "be read whole")
		}
		text := plainLetters(text)
		return slices.ContainsFunc(words, func(w string) bool { return strings.Contains(text, strings.TrimSuffix(plainLetters(w), "s")) })
	})
}

// plainLetters has "SecureBoot" and "secure boot" be the same.
func plainLetters(text string) string { return strings.ReplaceAll(strings.ToLower(text), " ", "") }

// The sizes of a run: how many combinations go test takes, how many pairs all of them have, and the same of one recorded BMC.
const (
	sampled       = 400
	wholePairs    = 8000
	sampledOfTree = 20
	wholeOfTree   = 1000
)

func seedOf(t *testing.T) uint64 {
	// A sample of few is the same each time, because a kind that is known and not mended yet is no bad luck of a change. make odd, make soak
	// and SALVOR_SEED choose others.
	seed := uint64(1)
	if os.Getenv("SALVOR_SWEEP") == "whole" || os.Getenv("SALVOR_SOAK") != "" {
		seed = uint64(time.Now().UnixNano())
	}
	if text := os.Getenv("SALVOR_SEED"); text != "" {
		var err error
		if seed, err = strconv.ParseUint(text, 10, 64); err != nil {
			t.Fatalf("SALVOR_SEED: %v", err)
		}
	}
	t.Logf("SALVOR_SEED=%d", seed)
	return seed
}

// chosen are the combinations of a run: those whose text has all parts of SALVOR_ODD, which are separated by " & "; all, with SALVOR_SWEEP=whole;
// else a sample.
func chosen(t *testing.T, of *tree, known map[string]*profile, seed uint64, sample, pairs int) []combination {
	var all []combination
	for i := range verbs {
		if p := known[verbs[i].name]; p != nil {
			all = append(all, singles(of, &verbs[i], p)...)
		}
	}
	whole := os.Getenv("SALVOR_SWEEP") == "whole"
	random := rand.New(rand.NewPCG(seed, 0))
	pair := func() combination {
		one := all[random.IntN(len(all))]
		for {
			// Two oddities of one resource hide each other.
			if two := all[random.IntN(len(all))]; two.verb == one.verb && two.oddities[0].Place.Path != one.oddities[0].Place.Path {
				return combine(of, one.verb, one.oddities[0], two.oddities[0])
			}
		}
	}
	t.Logf("%d kinds, %d verbs, %d combinations of one oddity", len(odd.BMCKinds), len(known), len(all))
	if text := os.Getenv("SALVOR_ODD"); text != "" {
		return slices.DeleteFunc(all, func(c combination) bool {
			return slices.ContainsFunc(strings.Split(text, " & "), func(part string) bool { return !strings.Contains(c.String(), strings.TrimSpace(part)) })
		})
	}
	var out []combination
	if whole && of == nil {
		out = all
		for range pairs {
			out = append(out, pair())
		}
		return out
	}
	if n, err := strconv.Atoi(os.Getenv("SALVOR_ODD_SAMPLE")); err == nil {
		sample = n
	} else if whole {
		sample = pairs
	}
	byKind := map[string][]combination{} // a kind with few places is as likely as one with many
	for _, c := range all {
		byKind[c.oddities[0].Kind.Name] = append(byKind[c.oddities[0].Kind.Name], c)
	}
	kinds := slices.Sorted(maps.Keys(byKind))
	first := random.IntN(len(kinds))
	for i := range sample * 3 / 4 {
		places := byKind[kinds[(first+i)%len(kinds)]]
		out = append(out, places[random.IntN(len(places))])
	}
	for range sample / 4 {
		out = append(out, pair())
	}
	return out
}

// TestOddBMCs runs every verb behind odd BMCs: it is done, or one sentence names what is odd, and the machine is as it was.
func TestOddBMCs(t *testing.T) {
	known := profiles(t, nil)
	work := chosen(t, nil, known, seedOf(t), sampled, wholePairs)
	report(t, judgeAll(t, work, known), len(work))
}

// TestOddBMCsForLong runs one sample after another, each with the next seed, for SALVOR_LENGTH: in the soak a day.
func TestOddBMCsForLong(t *testing.T) {
	if os.Getenv("SALVOR_SOAK") == "" {
		t.Skip("a run of a day: make soak, or SALVOR_SOAK=1 SALVOR_LENGTH=10m")
	}
	length := 24 * time.Hour
	if text := os.Getenv("SALVOR_LENGTH"); text != "" {
		length = must.Get(time.ParseDuration(text))(t)
	}
	known, began, of := profiles(t, nil), time.Now(), 0
	for seed := seedOf(t); time.Since(began) < length && !t.Failed(); seed++ {
		work := chosen(t, nil, known, seed, 4*sampled, 0)
		of += len(work)
		t.Logf("SALVOR_SEED=%d: %d combinations so far in %s", seed, of, time.Since(began).Round(time.Second))
		report(t, judgeAll(t, work, known), len(work))
	}
}

// TestKindsOfOddities wants of each kind a name of its own, a source and a place at which a verb meets the kind; of one that may fail a verb in
// an order or in the whole service also the words for the error.
func TestKindsOfOddities(t *testing.T) {
	known := profiles(t, nil)
	places := map[string]int{}
	for i := range verbs {
		for _, c := range singles(nil, &verbs[i], known[verbs[i].name]) {
			places[c.oddities[0].Kind.Name]++
		}
	}
	names := map[string]bool{}
	for _, k := range odd.BMCKinds {
		needsWords := k.Cost == odd.CostResource && k.Scope >= odd.ScopeOrder && !strings.HasPrefix(k.Name, "order: always cut")
		if names[k.Name] || k.Source == "" || places[k.Name] == 0 || needsWords && len(k.Words) == 0 {
			t.Errorf("kind %q: source %q, %d places, words %q, a second row with this name: %t", k.Name, k.Source, places[k.Name], k.Words, names[k.Name])
		}
		names[k.Name] = true
	}
	if len(names) < 60 {
		t.Errorf("%d kinds, want 60 at least", len(names))
	}
}

// verbsOfTrees are the verbs that recorded BMCs answer.
var verbsOfTrees = []string{
	"manage", "power state", "power on", "power off", "boot devices", "boot device", "set boot device once", "boot mode", "rescue and unrescue", "list media", "inspect", "volumes",
	"BIOS settings", "firmware", "indicators", "event log", "health", "probe",
}

// TestOddTrees does the same with recorded BMCs: those of driver/redfish, and those below SALVOR_TREES, which are directories with redfish/v1.
func TestOddTrees(t *testing.T) {
	for _, of := range trees(t) {
		t.Run(of.name, func(t *testing.T) {
			known := profiles(t, of)
			work := append(chosen(t, of, known, seedOf(t), sampledOfTree, wholeOfTree), foundBehind(t, of, known)...)
			report(t, judgeAll(t, work, known), len(work))
		})
	}
}

func trees(t *testing.T) (out []*tree) {
	for _, file := range must.Get(filepath.Glob("../../driver/redfish/testdata/trees/*.json"))(t) {
		var docs map[string]json.RawMessage
		must.OK(t, json.Unmarshal(must.Get(os.ReadFile(file))(t), &docs))
		files := fstest.MapFS{}
		for at, doc := range docs {
			files[strings.TrimPrefix(at, "/")+"/index.json"] = &fstest.MapFile{Data: doc}
		}
		out = append(out, &tree{strings.TrimSuffix(filepath.Base(file), ".json"), files})
	}
	if root := os.Getenv("SALVOR_TREES"); root != "" {
		for _, dir := range must.Get(filepath.Glob(root + "/*/redfish"))(t) {
			out = append(out, &tree{filepath.Base(filepath.Dir(dir)), os.DirFS(filepath.Dir(dir))})
		}
	}
	return out
}

// judgeAll judges combinations, some at once, and shrinks those that go wrong. It takes half of the test's time at most, so the order is by
// chance: make prove has less time than make odd.
func judgeAll(t *testing.T, work []combination, known map[string]*profile) (findings []finding) {
	began := time.Now()
	end := began.Add(24 * time.Hour)
	if deadline, ok := t.Deadline(); ok {
		end = began.Add(time.Until(deadline) / 2)
	}
	rand.Shuffle(len(work), func(i, j int) { work[i], work[j] = work[j], work[i] })
	var mu sync.Mutex
	judged := 0
	const workers = 4
	t.Run("combinations", func(t *testing.T) {
		for i := range workers {
			t.Run(fmt.Sprint(i), func(t *testing.T) {
				t.Parallel()
				for at := i; at < len(work) && time.Now().Before(end); at += workers {
					c := work[at]
					mu.Lock()
					judged++
					mu.Unlock()
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
	t.Logf("%d of %d combinations in %s, %d went wrong", judged, len(work), time.Since(began).Round(time.Millisecond), len(findings))
	return findings
}
