package tgt

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"salvor/problem"
	"salvor/test/must"
)

// shown is what tgtadm says of a target with one initiator.
const shown = `Target 1: iqn.2026-11.org.salvor.test:a
    System information:
        Driver: iscsi
        State: ready
    I_T nexus information:
        I_T nexus: 8
            Initiator: iqn.2026-11.org.salvor.test:one alias: none
            Connection: 0
                IP Address: 127.0.0.1
    LUN information:
        LUN: 0
            Type: controller
            Backing store path: None
        LUN: 1
            Type: disk
            Backing store path: /srv/a.raw
            Backing store flags: 
    Account information:
        chap
    ACL information:
        ALL
        10.0.0.0/8
        iqn.2026-11.org.salvor.test:one
`

const connected = "Session: 8\n    Connection: 0\n        Initiator: iqn.2026-11.org.salvor.test:one\n        IP Address: 127.0.0.1\n"

func TestShow(t *testing.T) {
	t.Parallel()
	all, err := parseTargets(shown + strings.Replace(shown, "Target 1: ", "Target 2: ", 1))
	if err != nil || len(all) != 2 {
		t.Fatal(all, err)
	}
	x := all[0]
	if x.tid != 1 || x.name != "iqn.2026-11.org.salvor.test:a" || x.address() != "ALL" || !slices.Equal(x.allowed, []string{"ALL", "10.0.0.0/8", "iqn.2026-11.org.salvor.test:one"}) ||
		len(x.luns) != 2 || x.luns[1] != (lun{1, "/srv/a.raw"}) {
		t.Errorf("%+v", x)
	}
	list, err := parseConnections(connected + strings.Replace(connected, "Session: 8", "Session: 9", 1))
	if err != nil || len(list) != 2 || list[1] != (connection{"9", "0", "iqn.2026-11.org.salvor.test:one", "127.0.0.1"}) {
		t.Errorf("%+v %v", list, err)
	}
	if list, err := parseConnections(""); err != nil || len(list) != 0 {
		t.Errorf("%+v %v", list, err)
	}
}

// TestOdd: text that an initiator could have made up, or that was cut off, is not read as if nothing were there.
func TestOdd(t *testing.T) {
	t.Parallel()
	for name, text := range map[string]string{
		"cut off":             shown[:strings.Index(shown, "    ACL")],
		"a second ACL":        strings.Replace(shown, "alias: none", "alias: x\n    ACL information:", 1),
		"an alias in the ACL": shown + "        I_T nexus: 9\n",
		"no heading":          strings.TrimPrefix(shown, "Target 1: iqn.2026-11.org.salvor.test:a\n"),
		"another heading":     "Goal 1: x\n",
		"headings in a row":   "Target 1: a\nTarget 2: b\n",
	} {
		if all, err := parseTargets(text); !problem.Is(err, problem.Unavailable) {
			t.Errorf("%s: %+v %v", name, all, err)
		}
	}
	for name, text := range map[string]string{
		"no session":       strings.TrimPrefix(connected, "Session: 8\n"),
		"no initiator":     "Session: 8\n    Connection: 0\n",
		"an odd line":      connected + "oops\n",
		"an odd initiator": strings.Replace(connected, "iqn.", "x ", 1),
	} {
		if all, err := parseConnections(text); !problem.Is(err, problem.Unavailable) {
			t.Errorf("%s: %+v %v", name, all, err)
		}
	}
}

func TestNames(t *testing.T) {
	t.Parallel()
	for _, o := range []Options{{Control: -1}, {Files: "/srv/x.raw", Portal: "a:1"}, {Files: "VOLUMEID", Portal: "a:1"}, {Files: "/srv/VOLUMEID"}} {
		if _, err := New(o); !problem.Is(err, problem.Invalid) {
			t.Errorf("%+v: %v", o, err)
		}
	}
	s := must.Get(New(Options{Command: "/nowhere/tgtadm", Files: "/srv/VOLUMEID.raw", Portal: "192.0.2.1:3260"}))(t)
	for _, bad := range []string{"", "-x", "a b", "x.y", "iqn." + strings.Repeat("a", 300)} {
		if err := s.Revoke(t.Context(), bad); !problem.Is(err, problem.Invalid) {
			t.Errorf("%.20q: %v", bad, err)
		}
	}
	for _, command := range []string{"/nowhere/tgtadm", "no-such-tgtadm"} { // no answer is worth waiting for
		missing := must.Get(New(Options{Command: command}))(t)
		if err := missing.Revoke(t.Context(), "iqn.2026-11.test:a"); !problem.Is(err, problem.Conflict) || !strings.Contains(err.Error(), "the storage tgt") {
			t.Errorf("without %s: %v", command, err)
		}
	}
	for _, bad := range []string{"", "..", "a/b", "../x", "a.raw"} {
		if _, err := s.Export(t.Context(), bad, "iqn.2026-11.test:a"); !problem.Is(err, problem.Invalid) {
			t.Errorf("%q: %v", bad, err)
		}
	}
	if _, err := s.Export(t.Context(), fmt.Sprint("none-", os.Getpid()), "iqn.2026-11.test:a"); !problem.Is(err, problem.NotFound) {
		t.Error(err)
	}
}

// FuzzShow: whatever is said, each connection that is told has an initiator, and each target its name.
func FuzzShow(f *testing.F) {
	f.Add(shown)
	f.Add(connected)
	f.Fuzz(func(t *testing.T, text string) {
		all, err := parseTargets(text)
		for _, x := range all {
			if err == nil && (x.name == "" || x.tid <= 0) {
				t.Errorf("%+v", x)
			}
		}
		list, err := parseConnections(text)
		if err == nil && len(list) < strings.Count("\n"+text, "\n    Connection: ") {
			t.Errorf("%q: %+v", text, list)
		}
	})
}
