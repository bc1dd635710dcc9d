package tgt

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"salvor/problem"
	"salvor/test/must"
)

// played is a daemon that is only a file: the test program is its tgtadm. It may be told to lie.
type played struct {
	Targets []playedTarget
	// LiesUnbind: an unbind is taken and not done. LateAfter: an initiator whose login was under way is in after so many looks at connections.
	LiesUnbind bool
	LateAfter  int
	Late       string
	Looks      int
	// Shared counts how often an initiator was let in while another one was connected.
	Shared int
}

type playedTarget struct {
	Tid     int
	Name    string
	File    string
	Allowed []string
	Conns   []string // initiators; their sessions are numbered from 1
}

// TestMain lets the test program be tgtadm, which is always called with the daemon's number first.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "-C" {
		if err := playTgtadm(os.Args[1:]); err != nil {
			fmt.Fprintln(os.Stderr, "tgtadm:", err)
			syscall.Exit(1)
		}
		syscall.Exit(0) // os.Exit sleeps for a second in a program that was built with the race detector
	}
	os.Exit(m.Run())
}

func playTgtadm(args []string) error {
	path := os.Getenv("TGT_IPC_SOCKET")
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	var p played
	if err := json.Unmarshal(text, &p); err != nil {
		return err
	}
	given := map[string]string{}
	for i := 0; i+1 < len(args); i += 2 {
		given[args[i]] = args[i+1]
	}
	if err := p.do(given); err != nil {
		return err
	}
	text, err = json.Marshal(p)
	if err != nil {
		return err
	}
	return os.WriteFile(path, text, 0o600)
}

func (p *played) do(given map[string]string) error {
	op := given["--op"] + " " + given["--mode"]
	if op == "show target" {
		for _, x := range p.Targets {
			fmt.Print(x.shown())
		}
		return nil
	}
	tid, _ := strconv.Atoi(given["--tid"])
	if op == "new target" {
		p.Targets = append(p.Targets, playedTarget{Tid: tid, Name: given["-T"]})
		return nil
	}
	i := slices.IndexFunc(p.Targets, func(x playedTarget) bool { return x.Tid == tid })
	if i < 0 {
		return fmt.Errorf("can't find the target")
	}
	x, who := &p.Targets[i], given["--initiator-name"]+given["--initiator-address"]
	switch op {
	case "show conn":
		for n, initiator := range x.Conns {
			fmt.Printf("Session: %d\n    Connection: 0\n        Initiator: %s\n        IP Address: 127.0.0.1\n", n+1, initiator)
		}
		if p.Looks++; p.Looks == p.LateAfter {
			x.Conns = append(x.Conns, p.Late)
		}
	case "new logicalunit":
		x.File = given["-b"]
	case "bind target":
		x.Allowed = append(x.Allowed, who)
		if slices.ContainsFunc(x.Conns, func(c string) bool { return c != who }) {
			p.Shared++
		}
	case "unbind target":
		if !p.LiesUnbind {
			x.Allowed = slices.DeleteFunc(x.Allowed, func(s string) bool { return s == who })
		}
	case "delete conn":
		n, _ := strconv.Atoi(given["--sid"])
		x.Conns = slices.Delete(x.Conns, n-1, n)
	case "delete target":
		p.Targets = slices.Delete(p.Targets, i, i+1)
	default:
		return fmt.Errorf("%q is not played", op)
	}
	return nil
}

func (x playedTarget) shown() string {
	unit := ""
	if x.File != "" {
		unit = "        LUN: 1\n            Backing store path: " + x.File + "\n"
	}
	allowed := ""
	for _, a := range x.Allowed {
		allowed += "        " + a + "\n"
	}
	return fmt.Sprintf("Target %d: %s\n    %s\n    %s\n    %s\n        LUN: 0\n%s    %s\n    %s\n%s", x.Tid, x.Name, system, nexus, units, unit, account, acl, allowed)
}

const (
	alice = "iqn.2026-11.org.salvor.test:alice"
	bob   = "iqn.2026-11.org.salvor.test:bob"
	v1    = targets + "v1"
)

// play begins a daemon in this state, with volumes v1 and v2.
func play(t *testing.T, p played) (s *Tgt, now func() played) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for i := range p.Targets {
		p.Targets[i].File = filepath.Join(dir, filepath.Base(p.Targets[i].File))
	}
	state := filepath.Join(dir, "state")
	text, err := json.Marshal(p)
	if err != nil {
		t.Fatal(err)
	}
	for name, content := range map[string][]byte{"state": text, "v1.raw": nil, "v2.raw": nil} {
		must.OK(t, os.WriteFile(filepath.Join(dir, name), content, 0o600))
	}
	if s, err = New(Options{Command: self, Socket: state, Files: filepath.Join(dir, VolumeWord+".raw"), Portal: "127.0.0.1:3260"}); err != nil {
		t.Fatal(err)
	}
	return s, func() played {
		t.Helper()
		var p played
		text, err := os.ReadFile(state)
		if err == nil {
			err = json.Unmarshal(text, &p)
		}
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
}

// held is a target of v1 that alice has.
func held() []playedTarget {
	return []playedTarget{{Tid: 1, Name: v1, File: "v1.raw", Allowed: []string{alice}, Conns: []string{alice}}}
}

// TestExportLetsNobodyElseIn: an export to another initiator takes the former one's leave and its connection, before the other is let in.
func TestExportLetsNobodyElseIn(t *testing.T) {
	t.Parallel()
	for name, p := range map[string]played{
		"new":                            {},
		"held by another":                {Targets: held()},
		"a connection without leave":     {Targets: []playedTarget{{Tid: 1, Name: v1, File: "v1.raw", Conns: []string{alice}}}},
		"another and its late login":     {Targets: held(), LateAfter: 3, Late: alice},
		"cut off after it was let in":    {Targets: []playedTarget{{Tid: 1, Name: v1, File: "v1.raw", Allowed: []string{bob}, Conns: []string{alice}}}},
		"everybody is let in, one is in": {Targets: []playedTarget{{Tid: 1, Name: v1, File: "v1.raw", Allowed: []string{everybody}, Conns: []string{alice}}}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, now := play(t, p)
			for range 2 {
				must.Get(s.Export(t.Context(), "v1", bob))(t)
			}
			got := now()
			if len(got.Targets) != 1 || !slices.Equal(got.Targets[0].Allowed, []string{bob}) || len(got.Targets[0].Conns) != 0 || got.Shared != 0 {
				t.Errorf("%+v", got)
			}
		})
	}
}

// TestExportThatCannotBeExclusive: a target that shows another file, lets in an address, or keeps whom it was told to drop, is no export.
func TestExportThatCannotBeExclusive(t *testing.T) {
	t.Parallel()
	lied := played{Targets: held(), LiesUnbind: true}
	for name, c := range map[string]struct {
		p    played
		kind problem.Kind
		word string
	}{
		"another file": {played{Targets: []playedTarget{{Tid: 1, Name: v1, File: "v2.raw"}}}, problem.Conflict, "v2.raw"},
		"an address":   {played{Targets: []playedTarget{{Tid: 1, Name: v1, File: "v1.raw", Allowed: []string{"10.0.0.0/8"}}}}, problem.Conflict, "10.0.0.0/8"},
		"a lie":        {lied, problem.Unavailable, "still allows " + alice},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, now := play(t, c.p)
			_, err := s.Export(t.Context(), "v1", bob)
			if !problem.Is(err, c.kind) || !strings.Contains(err.Error(), c.word) {
				t.Errorf("%v, want %s with %q", err, c.kind, c.word)
			}
			if x := now().Targets[0]; name != "an address" && slices.Contains(x.Allowed, bob) {
				t.Errorf("someone was let in: %+v", x)
			}
		})
	}
	s, _ := play(t, lied)
	if err := s.Unexport(t.Context(), "v1", alice); !problem.Is(err, problem.Unavailable) {
		t.Errorf("an unexport that was not done: %v", err)
	}
}

// TestUnexportDropsConnections: also those that were left without leave.
func TestUnexportDropsConnections(t *testing.T) {
	t.Parallel()
	for name, allowed := range map[string][]string{"with leave": {alice}, "without": nil, "beside another": {alice, bob}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := played{Targets: held()}
			p.Targets[0].Allowed = allowed
			s, now := play(t, p)
			must.OK(t, s.Unexport(t.Context(), "v1", alice))
			if got := now().Targets; len(got) != 0 && len(got[0].Conns) != 0 || (len(got) != 0) != (name == "beside another") {
				t.Errorf("%+v", got)
			}
		})
	}
}

// TestExcludeTakesSingleNamesOff: with and without a place on the list, on this target alone. A call that tgtd accepts and does not carry out is an error.
func TestExcludeTakesSingleNamesOff(t *testing.T) {
	t.Parallel()
	isAlice := func(name string) bool { return name == alice }
	p := played{Targets: append(held(), playedTarget{Tid: 2, Name: targets + "v2", File: "v2.raw", Allowed: []string{alice}, Conns: []string{alice}}), LateAfter: 2, Late: alice}
	p.Targets[0].Allowed, p.Targets[0].Conns = []string{alice, bob, everybody}, []string{alice, bob}
	s, now := play(t, p)
	for range 2 {
		must.OK(t, s.Exclude(t.Context(), v1, isAlice))
	}
	got := now()
	if x := got.Targets[0]; !slices.Equal(x.Allowed, []string{bob, everybody}) || !slices.Equal(x.Conns, []string{bob}) {
		t.Errorf("%+v", x)
	}
	if x := got.Targets[1]; len(x.Allowed) != 1 || len(x.Conns) != 1 {
		t.Errorf("another target: %+v", x)
	}
	if err := s.Exclude(t.Context(), targets+"none", isAlice); !problem.Is(err, problem.NotFound) {
		t.Errorf("a target that is not there: %v", err)
	}
	s, _ = play(t, played{Targets: held(), LiesUnbind: true})
	if err := s.Exclude(t.Context(), v1, isAlice); !problem.Is(err, problem.Unavailable) || !strings.Contains(err.Error(), v1+" still allows "+alice) {
		t.Errorf("an unbind that was not done: %v", err)
	}
}

// TestOneTargetOfAFile: each target has its own list of initiators, so two targets of a file would let in two writers.
func TestOneTargetOfAFile(t *testing.T) {
	t.Parallel()
	p := played{Targets: []playedTarget{{Tid: 1, Name: "iqn.2001-04.com.example:own", File: "v1.raw", Allowed: []string{alice}, Conns: []string{alice}}}}
	s, now := play(t, p)
	if _, err := s.Export(t.Context(), "v1", bob); !problem.Is(err, problem.Conflict) || !strings.Contains(err.Error(), "iqn.2001-04.com.example:own") {
		t.Errorf("%v", err)
	}
	if got := now(); slices.ContainsFunc(got.Targets, func(x playedTarget) bool { return slices.Contains(x.Allowed, bob) }) {
		t.Errorf("someone was let in: %+v", got)
	}
	must.OK(t, os.Symlink("v1.raw", s.opts.Files[:len(s.opts.Files)-len(VolumeWord+".raw")]+"v3.raw"))
	if _, err := s.Export(t.Context(), "v3", bob); !problem.Is(err, problem.Conflict) {
		t.Errorf("by another name of the file: %v", err)
	}
}

// TestRevokeReadsBack: a login that was under way is found by the second look, and a daemon that takes an unbind and does nothing is told.
func TestRevokeReadsBack(t *testing.T) {
	t.Parallel()
	// The first reading ends with the first look that finds nobody.
	p := played{Targets: held(), LateAfter: 2, Late: alice}
	s, now := play(t, p)
	must.OK(t, s.Revoke(t.Context(), alice))
	if got := now(); got.Looks < 3 || len(got.Targets[0].Conns) != 0 || len(got.Targets[0].Allowed) != 0 {
		t.Errorf("%+v", got)
	}
	s, _ = play(t, played{Targets: held(), LiesUnbind: true})
	if err := s.Revoke(t.Context(), alice); !problem.Is(err, problem.Unavailable) || !strings.Contains(err.Error(), v1+" still allows "+alice) {
		t.Errorf("an unbind that was not done: %v", err)
	}
}

// TestRevokeTellsOfAddresses: if a target admits an address, a revoked initiator comes back by another name.
func TestRevokeTellsOfAddresses(t *testing.T) {
	t.Parallel()
	for _, address := range []string{everybody, "192.0.2.0/24"} {
		open := held()
		open[0].Allowed = append(open[0].Allowed, address)
		s, now := play(t, played{Targets: open})
		if err := s.Revoke(t.Context(), alice); !problem.Is(err, problem.Conflict) || !strings.Contains(err.Error(), v1+" admits "+address) {
			t.Errorf("%s: %v", address, err)
		}
		if got := now(); slices.Contains(got.Targets[0].Allowed, alice) || len(got.Targets[0].Conns) != 0 {
			t.Errorf("%s: the initiator was left in: %+v", address, got)
		}
	}
}
