//go:build e2e

package evacuate

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"salvor/test/evacuate/journal"
	"salvor/test/must"
)

// foreignTool moves the disk of a running guest to another file, as tools of others do.
type foreignTool struct {
	name string
	// run moves it and gives the file that the guest writes to from then on.
	run func(f *foreignScene) string
}

var foreignTools = []foreignTool{
	{"external snapshot", func(f *foreignScene) string {
		f.round++
		overlay := fmt.Sprintf("%s.ov%d", f.disk, f.round)
		f.virsh("snapshot-create-as", f.guest, "s", "--disk-only", "--no-metadata", "--diskspec", "vda,file="+overlay)
		return overlay
	}},
	{"blockcopy and pivot", func(f *foreignScene) string {
		f.round++
		moved := fmt.Sprintf("%s.moved%d", f.disk, f.round)
		f.virsh("blockcopy", f.guest, "vda", "--dest", moved, "--format", "raw", "--transient-job", "--wait", "--pivot")
		return moved
	}},
}

// foreignScene is one server whose disk a tool of others moves.
type foreignScene struct {
	*world
	server, guest, at, disk string
	round                   int
}

// TestToolsOfOthers has tools of others move the disk of a running guest, and then each operation of salvor: the guest goes on with all that it
// wrote, or the operation refuses in a sentence that names the file and a command. The command is run, and must end the difference.
func TestToolsOfOthers(t *testing.T) {
	w := newWorld(t)
	w.group()
	w.create("web", "--image", "system")
	id, _ := w.Show("server", "web")["id"].(string)
	f := &foreignScene{world: w, server: "web", guest: "salvor-" + id, at: w.hostOf("web"), disk: w.disks["web"]}
	delete(w.disks, "web") // its file is another one soon
	for _, tool := range foreignTools {
		for _, op := range foreignOperations {
			if !chosen.MatchString(tool.name + " " + op.name) {
				continue
			}
			file := tool.run(f)
			f.awaitNamed(file)
			before := f.growsBy(file, 8)
			said := op.run(f, file)
			after := f.growsBy(file, 8)
			if after.Sequence < before.Sequence {
				t.Fatalf("%s, then %s: the journal in %s ends at %d, and had %d", tool.name, op.name, file, after.Sequence, before.Sequence)
			}
			if source := f.source(); source != file {
				t.Errorf("%s, then %s: the guest uses %s, want %s", tool.name, op.name, source, file)
			}
			if op.refuses && !strings.Contains(said, file) {
				t.Errorf("%s, then %s: it says %q, which does not name %s", tool.name, op.name, said, file)
			}
			t.Logf("%s, then %s: %d entries before, %d after, none lost; said: %s", tool.name, op.name, before.Sequence, after.Sequence, said)
			f.mend()
			if t.Failed() {
				t.FailNow()
			}
		}
	}
	// What is deleted leaves nothing of the tenant behind.
	overlay := foreignTools[0].run(f)
	f.awaitNamed(overlay)
	f.CLI("server", "delete", "web", "--wait")
	left, _ := filepath.Glob(f.disk + "*")
	if len(left) > 0 {
		t.Errorf("after the deletion the store still has %q", left)
	}
}

var foreignOperations = []struct {
	name    string
	refuses bool
	// run does it and gives what salvor said.
	run func(f *foreignScene, file string) string
}{
	{"stop and start", false, func(f *foreignScene, _ string) string {
		f.CLI("server", "stop", f.server, "--wait")
		return f.CLI("server", "start", f.server, "--wait")
	}},
	{"hard reboot", false, func(f *foreignScene, _ string) string {
		return f.CLI("server", "reboot", "--hard", f.server, "--wait")
	}},
	{"crash", false, func(f *foreignScene, file string) string {
		before, _ := f.journalOf(file)
		f.killQEMU()
		f.Await("another boot writes", func() bool { e, _ := f.journalOf(file); return e.Boot != before.Boot })
		return "started again"
	}},
	{"drain", true, func(f *foreignScene, _ string) string {
		_, err := f.TryCLI("", "host", "drain", f.at, "--wait")
		out := f.CLI("events", "server:"+f.server, "--last", "20")
		f.CLI("host", "set", f.at, "--enable")
		return fmt.Sprint(err, " ", out)
	}},
	{"migration", true, func(f *foreignScene, _ string) string {
		id, _ := f.Show("server", f.server)["id"].(string)
		out, err := f.Inside(`{"migrate": null}`, "curl", "-sS", "--fail-with-body", "-H", "Content-Type: application/json",
			"--data-binary", "@-", f.Server.URL+"/compute/v2.1/servers/"+id+"/action")
		if err == nil {
			f.Errorf("a migration was accepted: %s", out)
		}
		return out
	}},
	{"rebuild", true, func(f *foreignScene, _ string) string {
		_, err := f.TryCLI("", "server", "rebuild", f.server, "--image", "system", "--wait")
		shown := f.Show("server", f.server)
		return fmt.Sprint(err, shown["fault"])
	}},
}

// virsh runs libvirt's own client on the host of the server.
func (f *foreignScene) virsh(args ...string) string {
	f.Helper()
	out, err := exec.CommandContext(f.Context(), "virsh", append([]string{"-q", "-c", "qemu:///system?socket=" + f.host(f.at).Socket}, args...)...).CombinedOutput()
	if err != nil {
		f.Fatalf("virsh %s: %v: %s", strings.Join(args, " "), err, out)
	}
	return strings.TrimSpace(string(out))
}

// source is the file of the guest's disk, as libvirt tells it.
func (f *foreignScene) source() string {
	f.Helper()
	for line := range strings.Lines(f.virsh("domblklist", f.guest)) {
		if fields := strings.Fields(line); len(fields) == 2 && fields[0] == "vda" {
			return fields[1]
		}
	}
	return ""
}

// awaitNamed waits until `why` names the file that the guest uses.
func (f *foreignScene) awaitNamed(file string) {
	f.Helper()
	f.Await("`why` names "+filepath.Base(file), func() bool {
		out, err := f.TryCLI("", "why", "server:"+f.server)
		return err == nil && strings.Contains(out, file)
	})
}

// mend runs the command that `why` prints, and waits until salvor sees nothing of others any more.
func (f *foreignScene) mend() {
	f.Helper()
	out := f.CLI("why", "server:"+f.server)
	command := regexp.MustCompile(`virsh block\S+ [^\n(”]*`).FindString(out)
	if command == "" {
		f.Fatalf("`why` prints no command of virsh:\n%s", out)
	}
	f.virsh(strings.Fields(command)[1:]...)
	f.Await("the disk is where salvor made it", func() bool {
		out, err := f.TryCLI("", "why", "server:"+f.server)
		return err == nil && f.source() == f.disk && !strings.Contains(out, "virsh")
	})
	left, _ := filepath.Glob(f.disk + ".[om]*")
	for _, file := range left {
		f.lay(os.RemoveAll(file))
	}
}

// journalOf is the newest entry of the journal in a file of any format, which a guest may be writing to.
func (f *foreignScene) journalOf(file string) (journal.Entry, uint64) {
	f.Helper()
	flat := filepath.Join(f.Dir, "flat")
	if out, err := exec.CommandContext(f.Context(), "qemu-img", "convert", "-U", "-O", "raw", file, flat).CombinedOutput(); err != nil {
		f.Logf("read %s: %v: %s", file, err, out)
		return journal.Entry{}, 0
	}
	disk := must.Get(os.Open(flat))(f)
	defer disk.Close()
	e, n, err := journal.Last(disk)
	if err != nil {
		f.Logf("read %s: %v", file, err)
	}
	return e, n
}

// growsBy waits until the journal in a file has so many entries more, and gives the newest.
func (f *foreignScene) growsBy(file string, more uint64) foreignEntry {
	f.Helper()
	_, had := f.journalOf(file)
	var now foreignEntry
	f.Await("the server writes to "+filepath.Base(file), func() bool {
		now.Entry, now.Sequence = f.journalOf(file)
		return now.Sequence >= had+more
	})
	return now
}

type foreignEntry struct {
	journal.Entry
	Sequence uint64
}

// killQEMU kills the guest's process on its host.
func (f *foreignScene) killQEMU() {
	f.Helper()
	out := must.Get(f.Inside("", "pgrep", "-f", "guest="+f.guest))(f)
	for pid := range strings.FieldsSeq(out) {
		must.Get(f.Inside("", "kill", "-9", pid))(f)
	}
}
