//go:build e2e && upgrade

package evacuate

import (
	"path/filepath"
	"strings"
	"testing"

	"salvor/test/evacuate/journal"
	"salvor/test/program"
	"salvor/version"
)

// TestUpgradeOfHosts: guests that a former release defined run through an upgrade of the control plane and of the agents, through the return to the
// former release, and through the next upgrade. No guest is called changed by somebody else, none loses its memory while programs are
// exchanged, and each release stops, starts and moves the guests that the other one defined. SALVOR_BIN lists the former release and this one.
func TestUpgradeOfHosts(t *testing.T) {
	former := program.Former(t, "salvor")
	w := newForeignWorld(t, former)
	u := &upgrade{foreignWorld: w, guests: []*foreignScene{w.begin("BIOS", "system"), w.begin("UEFI", "uefi")}}
	u.agents(former)
	u.use("as the former release defined it")
	for _, at := range []struct {
		release, agent string
	}{
		{"this release", program.Path(t, "salvor")},
		{"the former release again", former},
		{"this release again", program.Path(t, "salvor")},
	} {
		before := u.written()
		// An agent of a release speaks with the control plane of its own and of the next release, so the agents go back first.
		if at.agent == former {
			u.agents(at.agent)
			u.keepMemory(before, "the agents are of "+at.release)
			u.Server.Stop()
			u.Server.Start(t)
		} else {
			u.Server.Stop()
			u.Server.Start(t)
			u.keepMemory(before, "the control plane is "+at.release)
			u.agents(at.agent)
		}
		u.keepMemory(before, "all programs are of "+at.release)
		if at.agent != former {
			u.calm(at.release)
		}
		u.use("under " + at.release)
	}
}

// upgrade is a world whose programs are exchanged under its guests.
type upgrade struct {
	*foreignWorld
	guests []*foreignScene
}

// agents exchanges the program of all hosts' agents, and waits until each host tells that it is up by that program.
func (u *upgrade) agents(path string) {
	u.Helper()
	u.agent = path
	for _, h := range u.status().Hosts {
		u.service(h.Name, u.agentOf(filepath.Join(u.Dir, h.Name))...)
	}
	for _, h := range u.status().Hosts {
		u.Await("host "+h.Name+" is up by another agent", func() bool {
			inventory, _ := u.Show("host", h.Name)["inventory"].(map[string]any)
			told, _ := inventory["agent_version"].(string)
			return u.hostIs(h.Name, "up") && strings.HasSuffix(told, "/"+version.Release) == (path == program.Path(u.T, "salvor"))
		})
	}
}

func (u *upgrade) written() map[string][]journal.Run {
	out := map[string][]journal.Run{}
	for _, g := range u.guests {
		out[g.server] = g.written()
	}
	return out
}

// keepMemory proves that each guest writes on from the boot in which it was before.
func (u *upgrade) keepMemory(before map[string][]journal.Run, when string) {
	u.Helper()
	for _, g := range u.guests {
		g.row = g.guest + ", " + when
		g.keepsMemory(before[g.server])
	}
}

// calm proves that no guest is told to be changed by somebody else.
func (u *upgrade) calm(release string) {
	u.Helper()
	for _, h := range u.status().Hosts {
		if n := u.Show("host", h.Name)["drifted"]; n != 0.0 {
			u.Errorf("host %s under %s: %v servers are told to be changed by someone else, want none", h.Name, release, n)
		}
	}
	for _, g := range u.guests {
		why, err := u.TryCLI("", "why", "server:"+g.server)
		if err != nil || strings.Contains(why, "someone else") || strings.Contains(why, "was added") {
			u.Errorf("why server %s under %s: want no word of a change, got %v: %s", g.server, release, err, why)
		}
	}
}

// use stops and starts each guest, moves it and ends its QEMU by force: what it wrote stays.
func (u *upgrade) use(when string) {
	u.Helper()
	for _, g := range u.guests {
		g.row = g.guest + ", " + when
		for _, operation := range []struct {
			name string
			run  func() (string, refusal)
		}{
			{"stop and start", g.stopAndStart},
			{"live move", g.moveLive},
			{"crash", g.killed("KILL")},
		} {
			before := g.written()
			g.cell(operation.name, nil, operation.run, func() { g.keepsWrites(before) })
		}
	}
}
