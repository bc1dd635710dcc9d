//go:build e2e

package evacuate

import (
	"cmp"
	"encoding/json"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"salvor/compute"
	"salvor/hypervisor"
	"salvor/hypervisor/libvirt"
	"salvor/lab"
	"salvor/test/machine"
	"salvor/test/must"
	"salvor/test/program"
)

// TestSecondGuard: if false evidence passes the first guard, the second one prevents two guests from writing to one disk. A file in a shared store has
// its owner lease, a volume has the list of initiators of its target. QEMU locks nothing here.
func TestSecondGuard(t *testing.T) {
	times := 1
	if soak {
		times = 10
	}
	for name, c := range map[string]struct {
		create func(w *world, server string)
		// falseWord is a receipt that is not true, while the guest writes on.
		falseWord func(*scene)
	}{
		"shared file": {func(w *world, server string) { w.create(server, "--image", "system") }, (*scene).falseWord},
		"iSCSI":       {func(w *world, server string) { w.create(server, "--volume", w.bootVolume("root")) }, (*scene).falseAttestation},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.group()
			c.create(w, "web")
			chance := rand.New(rand.NewPCG(uint64(time.Now().UnixNano()), 0))
			for range times {
				s := w.scene(chance, "web")
				c.falseWord(s)
				s.settled()
			}
			// Each of these takes a host's identity away, so they come last.
			w.scene(chance, "web").rejoinedIdentity()
			w.scene(chance, "web").removedHost(3 * times)
		})
	}
}

// agentOf is the command of a host's agent with this state directory, and a token of its own.
func (w *world) agentOf(stateDir string) []string {
	w.Helper()
	token := stateDir + ".token"
	must.OK(w, os.WriteFile(token, []byte(w.CLI("host", "token", "create", "-f", "value", "-c", "token")), 0o600))
	return []string{
		cmp.Or(w.agent, program.Path(w.T, "salvor")), "host", "--controller", "https://10.77.0.1:6387", "--join-file", token,
		"--state-dir", stateDir, "--shared-store", "shared=" + w.store,
	}
}

func (w *world) service(name string, command ...string) {
	w.Helper()
	w.lay(w.Lab.HostService(w.Context(), name, command, os.Environ()))
}

// power is that of the only guest of a host; empty: there is not one, or it is not known.
func (w *world) power(host string, change compute.Power) compute.Power {
	w.Helper()
	v := must.Get(libvirt.New(libvirt.Options{URI: w.host(host).Socket}))(w)
	defer v.Close()
	all, err := v.Guests(w.Context())
	if err != nil || len(all) != 1 {
		return ""
	}
	if change != "" {
		if _, err := v.SetPower(w.Context(), all[0].ID, hypervisor.Power{State: change}); err != nil {
			w.Logf("%s: %v", host, err)
		}
	}
	return all[0].Power
}

// stays proves that the server writes on from where it was, from the same boot, and that nobody else wrote.
func (s *scene) stays() {
	s.Helper()
	s.writes(20)
	if e, _ := s.last(s.anyDisk()); e.Boot != s.before.Boot {
		s.Errorf("another boot writes")
	}
	must.OK(s, s.sound())
}

// falseWord is a BMC that lies, of a host that is cut off and whose guest writes on: there is a receipt, and it is false.
func (s *scene) falseWord() {
	s.Helper()
	s.fault("lie-power")
	s.harm(lab.HostCut)
	s.CLI("fence", s.source, "--wait")
	out, err := s.TryCLI("", "evacuate", "run", s.source, "--wait")
	s.Logf("evacuate: %v %s", err, out)
	s.Await("the move has ended", func() bool { return s.idle() })
	s.named("renews its lease now", s.host(s.source).BootID)
	s.stays()
	if at := s.hostOf(s.server); at != s.source {
		s.Errorf("the server is on %s", at)
	}
}

// falseAttestation is an attestation that a live host is off. The host's agent has ended, so nobody ends its guest, and its BMC is
// dead. Nor does the storage answer while the host is fenced and the move begins, so the guest still has its volume.
func (s *scene) falseAttestation() {
	s.Helper()
	s.service(s.source, "sleep", "infinity")
	s.fault("down")
	s.harmed = time.Now()
	s.lapsed()
	answers := s.silentStorage()
	s.attest(s.source, "the plug is pulled")
	before := s.refusals()
	s.CLI("evacuate", "run", s.source)
	s.Await("the move asks the storage", func() bool { return s.refusals() > before+2 })
	s.stays()
	answers()
	s.moved(s.source)
	s.writes(20)
	s.letsInOnly(s.hostOf(s.server))
	must.OK(s, s.sound())
	s.join(s.host(s.source))
}

// attest fences a host by an attestation that disputes all live evidence that may be disputed.
func (s *scene) attest(host, words string) {
	s.Helper()
	s.Await("a receipt by the word of a person", func() bool {
		args := []string{"fence", host, "--wait", "--attest", words}
		_, err := s.TryCLI("", args...)
		if err == nil {
			return true
		}
		var codes []string
		for _, code := range []compute.ContradictionCode{compute.NeighboursReachIt, compute.JoinedAgain, compute.BMCReadsOn} {
			if strings.Contains(err.Error(), string(code)) {
				codes = append(codes, string(code))
			}
		}
		_, err = s.TryCLI("", append(args, "--dispute", strings.Join(codes, ","))...)
		s.Logf("disputed %v: %v", codes, err)
		return err == nil
	})
}

// letsInOnly proves that the targets let in initiators of one host only, and have no connection of another.
func (w *world) letsInOnly(host string) {
	w.Helper()
	shown := must.Get(w.tgt("--mode", "target", "--op", "show"))(w)
	id, _ := w.Show("host", host)["id"].(string)
	names := regexp.MustCompile(`iqn\.2026-11\.org\.salvor:[^\s]*`).FindAllString(shown, -1)
	if len(names) == 0 || slices.ContainsFunc(names, func(name string) bool { return !strings.Contains(name, id) }) {
		w.Errorf("the target lets in or has connections of %v; want those of host %s only", names, id)
	}
}

// idle tells whether nothing works on the server.
func (s *scene) idle() bool {
	shown := s.Show("server", s.server)
	return shown != nil && shown["OS-EXT-STS:task_state"] == nil
}

// named looks for words among the server's events.
func (s *scene) named(words ...string) {
	s.Helper()
	out, err := s.TryCLI("", "events", "server:"+s.server, "--last", "50", "-f", "json")
	for _, word := range words {
		if err != nil || !strings.Contains(out, word) {
			s.Errorf("no event tells %q: %v %s", word, err, machine.Tail(out, 2000))
		}
	}
}

// rejoinedIdentity is a host whose agent lost its state directory. It joins again; its old row is attested as dead, and its guest runs on.
func (s *scene) rejoinedIdentity() {
	s.Helper()
	old, _ := s.Show("host", s.source)["id"].(string)
	s.fault("down") // its BMC cannot cut the power
	s.harmed = time.Now()
	s.service(s.source, s.agentOf(filepath.Join(s.Dir, s.source+"-again"))...)
	s.Await("the new identity is up", func() bool { return len(s.rows(s.source)) == 2 })
	s.Await("the old row is down", func() bool { return s.Show("host", old)["state"] == "down" })
	if out, err := s.TryCLI("", "fence", old, "--wait", "--attest", "it was reinstalled"); err != nil {
		s.Logf("the first guard holds: %v %s", err, out)
	} else {
		out, err := s.TryCLI("", "evacuate", "run", old, "--wait")
		s.Logf("evacuate: %v %s", err, out)
		s.Await("the move has ended", func() bool { return s.idle() })
	}
	s.stays()
	if p := s.power(s.source, ""); p != compute.PowerOn {
		s.Errorf("the guest of %s is %q", s.source, p)
	}
	// It is off at last: the same receipt is true now, and the lease is free.
	s.power(s.source, compute.PowerOff)
	s.Await("a move of the server", func() bool {
		if s.hostOf(s.server) != s.source {
			return true
		}
		// Its machine lives under the new identity, and who attests knows it.
		_, _ = s.TryCLI("", "fence", old, "--wait", "--attest", "its guest is off", "--dispute", "neighbours-reach-it,joined-again")
		_, _ = s.TryCLI("", "evacuate", "run", old, "--wait")
		return s.hostOf(s.server) != s.source
	})
	s.moved(s.source)
	must.OK(s, s.sound())
}

// rows are the ids of the hosts of that name.
func (w *world) rows(name string) []string {
	w.Helper()
	var all []struct{ ID, Name, State string }
	if out, err := w.TryCLI("", "host", "list", "-f", "json"); err != nil || json.Unmarshal([]byte(out), &all) != nil {
		w.Fatalf("%v %s", err, out)
	}
	var ids []string
	for _, h := range all {
		if h.Name == name {
			ids = append(ids, h.ID)
		}
	}
	return ids
}

// removedHost is a host that died, was evacuated and removed. It returns, and somebody starts its old guest by hand, again and again.
func (s *scene) removedHost(times int) {
	s.Helper()
	s.harm(lab.HostOff)
	s.recover(s.source)
	if out, err := s.TryCLI("", "host", "remove", s.source); err != nil {
		s.Logf("the first guard holds: %v %s", err, out)
	}
	s.do(s.source, lab.HostOn)
	for n := range times {
		time.Sleep(time.Duration(s.chance.Int64N(int64(time.Second)))) // the time is the test
		s.Await("someone starts the old guest", func() bool {
			p := s.power(s.source, compute.PowerOn)
			return p != "" || s.guests(s.source) == 0
		})
		s.Await("the old guest is off", func() bool { p := s.power(s.source, ""); return p == compute.PowerOff || s.guests(s.source) == 0 })
		s.Logf("started by hand %d times", n+1)
	}
	s.writes(20)
	must.OK(s, s.sound())
}
