//go:build e2e

package evacuate

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"salvor/lab"
	"salvor/test/evacuate/journal"
	"salvor/test/must"
)

// round is one way in which a host dies, or seems to. It ends in recovery, or in a blocked state that has a name.
type round struct {
	name string
	run  func(s *scene)
}

// scene is a round as it goes on: one server, the host that it is on when all begins, and when the harm was done.
type scene struct {
	*world
	chance *rand.Rand
	server string
	source string
	before journal.Entry
	harmed time.Time
}

// rounds of a server with a disk in a shared file and one on a volume. Hosts that died are taken back at the end of each.
var rounds = []round{
	{"network cut", networkCut},
	{"host frozen", hostFrozen},
	{"libvirt killed", libvirtKilled},
	{"BMC dead", bmcDead},
	{"BMC lies", bmcLies},
	{"power-cycled in mid-move", cycledInMidMove},
	{"destination killed in mid-move", destinationKilled},
}

// volumeRounds are those of a server that has a volume only: its storage is the fence.
var volumeRounds = []round{
	{"frozen, its volume revoked, thawed", frozenThenThawed},
	{"cut off behind a BMC that lies, its volume revoked", liedAboutAndRevoked},
}

// TestRounds proves that two boots of one server never write at a time, whatever kills its host.
func TestRounds(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	if text := os.Getenv("SALVOR_SEED"); text != "" {
		var err error
		if seed, err = strconv.ParseUint(text, 10, 64); err != nil {
			t.Fatalf("SALVOR_SEED: %v", err)
		}
	}
	t.Logf("SALVOR_SEED=%d", seed)
	chance := rand.New(rand.NewPCG(seed, 0))
	batches, times := 1, 1
	if soak {
		batches, times = 3, 10 // a journal has room for so many
	}
	w := newWorld(t)
	for i := range batches {
		web, vol, data, root := fmt.Sprint("web", i), fmt.Sprint("vol", i), fmt.Sprint("data", i), fmt.Sprint("root", i)
		w.group()
		w.create(web, "--image", "system")
		path := makeVolume(t, filepath.Join(w.Dir, data+".img"))
		w.CLI("server", "add", "volume", web, w.volume(data, path))
		w.disks[data] = path
		w.play(chance, web, rounds, times)
		w.skippedFence(chance, web)
		w.forget(web, data)

		w.group("storage")
		w.create(vol, "--volume", w.bootVolume(root))
		w.play(chance, vol, volumeRounds, times)
		w.forget(vol, root)
	}
}

// group has every fence rest on this evidence; none: on any.
func (w *world) group(require ...string) {
	w.Helper()
	w.CLI("host", "group", "set", "rounds", "--require", strings.Join(require, ","))
	for _, h := range w.status().Hosts {
		w.CLI("host", "set", h.Name, "--group", "rounds")
	}
}

// chosen are the rounds that are played: all of them, or those that SALVOR_ROUND matches.
var chosen = regexp.MustCompile(os.Getenv("SALVOR_ROUND"))

// soak is for the long rounds.
var soak = os.Getenv("SALVOR_SOAK") != ""

// play goes through rounds, several times in an order by chance.
func (w *world) play(chance *rand.Rand, server string, all []round, times int) {
	for turn := range times {
		order := chance.Perm(len(all))
		for _, i := range order {
			r := all[i]
			if !chosen.MatchString(r.name) {
				continue
			}
			start := time.Now()
			w.Logf("round %d: %s", turn+1, r.name)
			s := w.scene(chance, server)
			r.run(s)
			if w.Failed() {
				w.FailNow()
			}
			s.settled()
			w.Logf("round %d: %s: %.1f s", turn+1, r.name, time.Since(start).Seconds())
		}
	}
}

// scene begins with a server that writes.
func (w *world) scene(chance *rand.Rand, server string) *scene {
	w.Helper()
	s := &scene{world: w, chance: chance, server: server, source: w.hostOf(server)}
	w.writes(10) // a volume that was attached a moment ago has no entry yet, so no boot
	s.before, _ = w.last(w.anyDisk())
	return s
}

// settled proves what holds at the end of each round: all hosts serve, one of them has the one guest, and no two boots ever wrote at a time.
func (s *scene) settled() {
	s.Helper()
	for _, h := range s.status().Hosts {
		s.restore(h.Name)
	}
	s.writes(10)
	at := s.hostOf(s.server)
	for _, h := range s.status().Hosts {
		want := 0
		if h.Name == at {
			want = 1
		}
		s.Await(fmt.Sprintf("%d guests on %s", want, h.Name), func() bool { return s.guests(h.Name) == want })
	}
	must.OK(s, s.sound())
}

// restore mends a host and takes it back.
func (w *world) restore(name string) {
	w.Helper()
	w.lay(w.Lab.Fault(w.Context(), name, "none"))
	h := w.host(name)
	if h.Frozen {
		w.do(name, lab.HostThaw)
	}
	w.do(name, lab.HostPlug)
	if shown := w.Show("host", name); shown["fenced"] != nil || shown["state"] != "up" {
		// The server writes a moment before the plan that moved it has ended.
		w.Await("no plan for "+name+" is under way", func() bool {
			_, err := w.TryCLI("", "host", "restore", name)
			if err != nil && !strings.Contains(err.Error(), "still runs") {
				w.Fatal(err)
			}
			return err == nil
		})
	}
	w.do(name, lab.HostOn)
	w.Await(name+" serves again", func() bool {
		shown := w.Show("host", name)
		return shown["state"] == "up" && shown["fenced"] == nil
	})
}

func (w *world) lay(err error) {
	w.Helper()
	if err != nil {
		w.Fatal(err)
	}
}

func (w *world) do(name string, verb lab.HostVerb) {
	w.Helper()
	w.lay(w.Lab.HostDo(w.Context(), name, verb))
}

// harm does something to the source.
func (s *scene) harm(verb lab.HostVerb) {
	s.Helper()
	s.do(s.source, verb)
	s.harmed = time.Now()
}

// fault changes what the source's BMC does.
func (s *scene) fault(fault string) {
	s.Helper()
	s.lay(s.Lab.Fault(s.Context(), s.source, fault))
}

// lapsed waits until the control plane shows the source as down.
func (s *scene) lapsed() {
	s.Helper()
	s.Await(s.source+" is shown as down", func() bool { return s.hostIs(s.source, "down") })
}

// recover fences a host and moves its server, and proves that it writes from elsewhere.
func (s *scene) recover(host string, more ...string) {
	s.Helper()
	s.CLI(append([]string{"fence", host, "--wait"}, more...)...)
	s.CLI("evacuate", "run", host, "--wait")
	s.moved(host)
}

// moved waits for a later boot of the server, on another host.
func (s *scene) moved(from string) {
	s.Helper()
	s.Await("a later boot writes", func() bool {
		for name := range s.disks {
			if e, _ := s.last(name); e.Boot == s.before.Boot {
				return false
			}
		}
		return true
	})
	if at := s.hostOf(s.server); at == from {
		s.Errorf("the server is on %s still", at)
	}
	s.Logf("from the harm to the first write elsewhere: %.1f s", time.Since(s.harmed).Seconds())
}

// blocked asks for a fence that must end within a bound, without a receipt and with reasons that name what is missing.
func (s *scene) blocked(want string) {
	s.Helper()
	start := time.Now()
	out, err := s.TryCLI("", "fence", s.source, "--wait")
	if err == nil {
		s.Fatalf("the fence has a receipt: %s", out)
	}
	if took := time.Since(start); took > longest || !strings.Contains(err.Error(), want) {
		s.Errorf("after %s: %v, want %q", took, err, want)
	}
	s.Logf("blocked after %.1f s: %v", time.Since(start).Seconds(), err)
	if out, err := s.TryCLI("", "evacuate", "run", s.source, "--wait"); err == nil || !strings.Contains(err.Error()+out, "salvor fence "+s.source) {
		s.Errorf("a run without a receipt: %v %s", err, out)
	}
}

func networkCut(s *scene) {
	s.harm(lab.HostCut)
	if s.chance.IntN(2) == 0 {
		s.lapsed()
	}
	s.recover(s.source)
}

func hostFrozen(s *scene) {
	s.harm(lab.HostFreeze)
	s.lapsed()
	s.recover(s.source)
}

func libvirtKilled(s *scene) {
	s.lay(s.Lab.KillLibvirt(s.Context(), s.source, true))
	s.harmed = time.Now()
	s.recover(s.source)
}

func bmcDead(s *scene) {
	s.fault([]string{"down", "503", "hang", "rubbish"}[s.chance.IntN(4)])
	s.harm(lab.HostCut)
	s.lapsed()
	s.blocked("power")
	s.do(s.source, lab.HostOff) // somebody goes there and pulls the plug
	s.recover(s.source, "--attest", "the plug is pulled")
}

// bmcLies is a host that lives while its BMC says that it is off: that is no evidence, and nothing is moved.
func bmcLies(s *scene) {
	s.fault([]string{"lie-off", "lie-power"}[s.chance.IntN(2)])
	s.blocked("lives")
	if e, _ := s.last(s.anyDisk()); e.Boot != s.before.Boot || s.hostOf(s.server) != s.source {
		s.Error("the server did not stay as it was")
	}
}

// cycledInMidMove has the old host come back while its server is on the way.
func cycledInMidMove(s *scene) {
	s.harm(lab.HostCut)
	s.CLI("fence", s.source, "--wait")
	s.CLI("evacuate", "run", s.source)
	time.Sleep(time.Duration(s.chance.Int64N(int64(2 * time.Second)))) // the time is the test
	s.do(s.source, lab.HostPlug)
	s.do(s.source, lab.HostOn)
	s.moved(s.source)
}

// destinationKilled cuts the power of the new host too, at any time of the move.
func destinationKilled(s *scene) {
	s.harm(lab.HostCut)
	s.CLI("fence", s.source, "--wait")
	s.CLI("evacuate", "run", s.source)
	var second string
	s.Await("a destination", func() bool { second = s.hostOf(s.server); return second != "" && second != s.source })
	time.Sleep(time.Duration(s.chance.Int64N(int64(4 * time.Second)))) // the time is the test
	s.do(second, lab.HostOff)
	s.CLI("fence", second, "--wait")
	s.Await("recovery by a third host", func() bool {
		at := s.hostOf(s.server)
		if at != "" && at != s.source && at != second {
			return true
		}
		_, _ = s.TryCLI("", "evacuate", "run", at, "--wait=20")
		return false
	})
	s.moved(s.source)
}

// frozenThenThawed lets the old host go on after the move: it has not been switched off, only its volume is out of its reach.
func frozenThenThawed(s *scene) {
	s.fault([]string{"down", "lie-power", "lie-off"}[s.chance.IntN(3)])
	s.harm(lab.HostFreeze)
	s.lapsed()
	s.recover(s.source)
	s.do(s.source, lab.HostThaw)
	s.Await("the old host's guest is gone", func() bool { return s.guests(s.source) == 0 })
}

// liedAboutAndRevoked has a BMC that takes the order, says off and does nothing, on a host that nobody hears: its server runs on there.
// Where that is feared, a fence rests on the storage.
func liedAboutAndRevoked(s *scene) {
	s.fault("lie-power")
	s.harm(lab.HostCut)
	s.recover(s.source)
	s.do(s.source, lab.HostPlug)
	s.Await("the old host's guest is gone", func() bool { return s.guests(s.source) == 0 })
}

// skippedFence proves that the journal tells: a false word, of a BMC or of a person, stands for a control plane without fences, and
// the host writes on, cut off from everything but its storage. Its agent is away, so nobody renews the owner lease of its disk.
func (w *world) skippedFence(chance *rand.Rand, server string) {
	w.Helper()
	if !chosen.MatchString("fence skipped") {
		return
	}
	s := w.scene(chance, server)
	s.service(s.source, "sleep", "infinity")
	if soak && chance.IntN(2) == 0 {
		s.fault("down")
		s.harm(lab.HostCut)
		s.lapsed()
		s.recover(s.source, "--attest", "it is off, word of honour")
	} else {
		s.fault("lie-power")
		s.harm(lab.HostCut)
		s.recover(s.source)
	}
	var err error
	w.Await("the journal tells that two guests wrote to one disk", func() bool { err = s.sound(); return err != nil })
	w.Logf("without a fence: %v", err)
	w.join(w.host(s.source))
	w.restore(s.source)
}
