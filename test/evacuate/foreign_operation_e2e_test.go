//go:build e2e

package evacuate

import (
	"cmp"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"salvor/lab"
	"salvor/test/evacuate/journal"
	"salvor/test/must"
)

func (f *foreignScene) stopAndStart() (string, refusal) {
	f.Helper()
	if said, refused := f.try("server", "stop", f.server, "--wait"); refused != nil {
		return said, refused
	}
	return f.try("server", "start", f.server, "--wait")
}

func (f *foreignScene) stop() (string, refusal) { return f.try("server", "stop", f.server, "--wait") }
func (f *foreignScene) hardReboot() (string, refusal) {
	return f.try("server", "reboot", "--hard", f.server, "--wait")
}
func (f *foreignScene) rebuild() (string, refusal) { return f.rebuildWith("system") }

// rebuildWith makes the root disk anew. The old one goes into quarantine, and the journal begins anew.
func (f *foreignScene) rebuildWith(image string) (string, refusal) {
	f.Helper()
	return f.try("server", "rebuild", f.server, "--image", image, "--wait")
}

func (f *foreignScene) rescue() (string, refusal) {
	f.Helper()
	if said, refused := f.try("server", "rescue", f.server, "--image", "system", "--wait"); refused != nil {
		if strings.Contains(refused.Error(), "salvor why") {
			refused = refusal(fmt.Errorf("%s", f.newest("failed: ")))
		}
		return said, refused
	}
	if f.file != "" {
		f.growsBy(f.file, 8) // the rescue system keeps a journal on each disk
	}
	return f.try("server", "unrescue", f.server, "--wait")
}

// killed ends the QEMU by a signal, and waits for the next boot.
func (f *foreignScene) killed(signal string) func() (string, refusal) {
	return func() (string, refusal) {
		f.Helper()
		before, _ := f.journalOf(f.file)
		f.signalQEMU(signal)
		f.Await("another boot writes", func() bool { e, n := f.journalOf(f.file); return n > 0 && e.Boot != before.Boot })
		return "started again", nil
	}
}

// drain empties the host. A server that stays is a refusal.
func (f *foreignScene) drain() (string, refusal) {
	f.Helper()
	from := f.at
	out, err := f.TryCLI("", "host", "drain", from, "--wait", "-f", "json")
	f.CLI("host", "set", from, "--enable")
	said := f.planLine(out)
	if f.hostOf(f.server) != from {
		return said, nil
	}
	if err == nil {
		f.Errorf("%s, then drain: the server stays, and the drain ends well: %s", f.row, out)
	}
	return "", refusal(fmt.Errorf("%s", said))
}

// planLine is what a plan, as JSON, says of the server.
func (f *foreignScene) planLine(text string) string {
	f.Helper()
	var plan struct {
		Items []struct {
			Name, Disposition, Why, Problem string
			Destination                     string
			MoveState                       string `json:"move_state"`
		}
	}
	if err := json.Unmarshal([]byte(text), &plan); err != nil {
		f.Errorf("%s: the plan is not understood: %v: %s", f.row, err, text)
	}
	for _, i := range plan.Items {
		if i.Name == f.server {
			return strings.TrimSpace(strings.Join([]string{i.Disposition, i.MoveState, cmp.Or(i.Problem, i.Why)}, " "))
		}
	}
	return "nothing of the server"
}

// moveLive asks for a live migration alone.
func (f *foreignScene) moveLive() (string, refusal) {
	return f.move(`{"os-migrateLive": {"host": null, "block_migration": "auto"}}`)
}

// moveCold asks for a migration that switches the server off.
func (f *foreignScene) moveCold() (string, refusal) { return f.move(`{"migrate": null}`) }

func (f *foreignScene) move(action string) (string, refusal) {
	f.Helper()
	from := f.at
	if said, refused := f.ask(action); refused != nil {
		return said, refused
	}
	f.Await("the move has ended", func() bool {
		shown := f.Show("server", f.server)
		return shown != nil && shown["OS-EXT-STS:task_state"] == nil
	})
	if f.hostOf(f.server) == from {
		return "", refusal(fmt.Errorf("%s", f.newest("")))
	}
	return "", nil
}

// evacuate cuts the power of the server's host, fences it, and moves its servers. Then the host comes back.
func (f *foreignScene) evacuate() (string, refusal) {
	f.Helper()
	from := f.at
	plan := f.lose(from)
	out, err := f.TryCLI("", "evacuate", "run", from, "--wait")
	at := f.hostOf(f.server)
	f.Logf("the run: %v %s", err, out)
	f.restore(from)
	if at == from {
		return "", refusal(fmt.Errorf("%s", f.planLine(plan)))
	}
	return f.moved(plan), nil
}

// lose cuts the power of a host and fences it. It gives the plan for its servers.
func (f *foreignScene) lose(host string) string {
	f.Helper()
	f.do(host, lab.HostOff)
	f.CLI("fence", host, "--wait")
	return f.CLI("evacuate", "plan", host, "-f", "json")
}

// moved is what the plan and the timeline say of an evacuation.
func (f *foreignScene) moved(plan string) string {
	f.Helper()
	return fmt.Sprintf("plan: %s; timeline: %s", f.planLine(plan), f.newest("its host was fenced"))
}

// remove deletes the server. Nothing that belongs to it may be left in the store.
func (f *foreignScene) remove() {
	f.Helper()
	at := f.at
	start := time.Now()
	_, refused := f.try("server", "delete", f.server, "--wait")
	if refused != nil {
		f.Errorf("%s, then removal: %v", f.row, refused)
	}
	if left := must.Get(filepath.Glob(f.disk + "*"))(f); len(left) > 0 {
		f.Errorf("%s, then removal: the store still has %q", f.row, left)
	}
	if left := must.Get(filepath.Glob(filepath.Join(f.hostDir(at), "lib", "qemu", "*", "*"+f.id+"*")))(f); len(left) > 0 {
		f.Errorf("%s, then removal: host %s still has %q", f.row, at, left)
	}
	f.cells = append(f.cells, foreignCell{f.row, "removal", "goes on: nothing is left", time.Since(start)})
}

func (f *foreignScene) hostDir(name string) string {
	f.Helper()
	dir := f.host(name).Dir
	if !filepath.IsAbs(dir) {
		dir = filepath.Join(filepath.Dir(f.host(name).Socket), "..", "..") // run/libvirt/libvirt-sock
		dir = filepath.Dir(dir)
	}
	return dir
}

// events are the newest of the server's timeline.
func (f *foreignScene) events(last int) string {
	out, _ := f.TryCLI("", "events", "server:"+f.server, "--last", fmt.Sprint(last))
	return out
}

// newest is the newest event that matches.
func (f *foreignScene) newest(pattern string) string {
	f.Helper()
	match := regexp.MustCompile(pattern)
	for _, line := range slices.Backward(strings.Split(strings.TrimSpace(f.events(30)), "\n")) {
		if match.MatchString(line) {
			return strings.TrimSpace(regexp.MustCompile(`^\s*\S+ \S+\s+`).ReplaceAllString(line, ""))
		}
	}
	return ""
}

// virsh runs libvirt's own client on the host of the server.
func (f *foreignScene) virsh(args ...string) string {
	f.Helper()
	out, err := f.tryVirsh(f.at, args...)
	if err != nil {
		f.Fatalf("virsh %s: %v: %s", strings.Join(args, " "), err, out)
	}
	return out
}

func (f *foreignScene) tryVirsh(host string, args ...string) (string, error) {
	f.Helper()
	out, err := exec.CommandContext(f.Context(), "virsh", append([]string{"-q", "-c", "qemu:///system?socket=" + f.host(host).Socket}, args...)...).CombinedOutput()
	return strings.TrimSpace(string(out)), err
}

// source is the file of a disk of the guest, as libvirt tells it.
func (f *foreignScene) source(target string) string {
	f.Helper()
	for line := range strings.Lines(f.virsh("domblklist", f.guest)) {
		if fields := strings.Fields(line); len(fields) == 2 && fields[0] == target {
			return fields[1]
		}
	}
	return ""
}

// awaitWhy waits until `why` says something.
func (f *foreignScene) awaitWhy(words string) {
	f.Helper()
	f.Await("`why` says "+strings.ReplaceAll(words, filepath.Dir(f.disk)+"/", ""), func() bool {
		out, err := f.TryCLI("", "why", "server:"+f.server)
		return err == nil && strings.Contains(out, words)
	})
}

// journalOf is the newest entry of the journal in a file of any format, which a guest may be writing to.
func (f *foreignScene) journalOf(file string) (journal.Entry, uint64) {
	f.Helper()
	disk, err := f.flat(file)
	if err != nil {
		f.Logf("read %s: %v", file, err)
		return journal.Entry{}, 0
	}
	defer disk.Close()
	e, n, err := journal.Last(disk)
	if err != nil {
		f.Logf("read %s: %v", file, err)
	}
	return e, n
}

// flat opens a disk as a raw file: the file itself, or a copy of an overlay with all below it.
func (f *foreignScene) flat(file string) (*os.File, error) {
	f.Helper()
	disk, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	magic := make([]byte, 4)
	if _, err := disk.ReadAt(magic, 0); err != nil || string(magic) != "QFI\xfb" {
		return disk, err
	}
	disk.Close()
	flat := filepath.Join(f.Dir, "flat")
	if out, err := exec.CommandContext(f.Context(), "qemu-img", "convert", "-U", "-O", "raw", file, flat).CombinedOutput(); err != nil {
		return nil, fmt.Errorf("%w: %s", err, out)
	}
	return os.Open(flat)
}

// written is a whole journal.
func (f *foreignScene) written() []journal.Run {
	f.Helper()
	disk := must.Get(f.flat(f.file))(f)
	defer disk.Close()
	runs, err := journal.Check(disk)
	if err != nil {
		f.Errorf("%s: the journal in %s after %d boots: %v", f.row, f.file, len(runs), err)
	}
	return runs
}

// keepsWrites waits until the guest writes on, and proves that the journal has all entries of before.
func (f *foreignScene) keepsWrites(before []journal.Run) {
	f.Helper()
	f.growsBy(f.file, 8)
	now := f.written()
	if len(now) < len(before) {
		f.Errorf("%s: the journal in %s has %d boots, and had %d", f.row, f.file, len(now), len(before))
		return
	}
	for i, b := range before {
		if now[i].Boot != b.Boot || now[i].Entries < b.Entries {
			f.Errorf("%s: boot %d of the journal in %s is %+v, and was %+v", f.row, i+1, f.file, now[i], b)
		}
	}
}

// keepsMemory is keepsWrites for a guest that goes on with its memory: the same boot writes on.
func (f *foreignScene) keepsMemory(before []journal.Run) {
	f.Helper()
	f.keepsWrites(before)
	if e, _ := f.journalOf(f.file); len(before) > 0 && e.Boot != before[len(before)-1].Boot {
		f.Errorf("%s: another boot writes, so the guest lost its memory", f.row)
	}
}

// growsBy waits until the journal in a file has so many entries more.
func (f *foreignScene) growsBy(file string, more uint64) {
	f.Helper()
	_, had := f.journalOf(file)
	f.Await("the server writes to "+filepath.Base(file), func() bool { _, n := f.journalOf(file); return n >= had+more })
}

// signalQEMU sends a signal to the guest's process on its host.
func (f *foreignScene) signalQEMU(signal string) {
	f.Helper()
	out := must.Get(f.Inside("", "pgrep", "-f", "guest="+f.guest))(f)
	for pid := range strings.FieldsSeq(out) {
		must.Get(f.Inside("", "kill", "-"+signal, pid))(f)
	}
}

// is waits until the server is in a state.
func (f *foreignScene) is(state string) {
	f.Helper()
	f.Await("server "+f.server+" is "+state, func() bool { return f.Show("server", f.server)["status"] == state })
}
