//go:build e2e

package evacuate

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"text/tabwriter"
	"time"

	"salvor/test/must"
)

// foreignWorld is a lab whose shared disk store is a small file system of its own, which can be filled. It keeps the table of all cells.
type foreignWorld struct {
	*world
	made  int // servers
	cells []foreignCell
}

// foreignCell is one way in which others changed a guest, and what an operation of salvor came to after that.
type foreignCell struct {
	row, operation, verdict string
	took                    time.Duration
}

// foreignScene is one server that somebody else changes: one row of the table.
type foreignScene struct {
	*foreignWorld
	row, server, id, guest string
	// at is the host of the server, disk the file that salvor made.
	at, disk string
	// file is where the guest's writes are; a tool of others moves it.
	file  string
	round int
}

// foreignRows are the rows of the table. Each begins with a server of its own, and ends with the removal of that.
var foreignRows = []struct {
	name  string
	image string
	play  func(*foreignScene)
}{
	{"external snapshot", "system", movedDisk(takeSnapshot)},
	{"blockcopy and pivot", "system", movedDisk(pivot)},
	{"disk added by hand", "system", addedDisk},
	{"managed save", "system", managedSave},
	{"I/O error", "system", ioError},
	{"UEFI variables", "uefi", uefiAndDevice},
	{"suspended to RAM", "system", sleeping},
	{"backup rounds", "system", backupRounds},
}

// TestToolsOfOthers has other tools change a running guest, and then each operation of salvor. The guest goes on with all that it wrote, or with its
// memory, variables and devices; or the operation refuses in a sentence that names the file or the guest, and a command. A command that `why` prints
// is run, and must end the difference.
func TestToolsOfOthers(t *testing.T) {
	w := newForeignWorld(t, "")
	t.Cleanup(w.print)
	for _, row := range foreignRows {
		if !chosen.MatchString(row.name) {
			continue
		}
		f := w.begin(row.name, row.image)
		row.play(f)
	}
}

// storeSize is that of the disk store: room for two servers and a rescue.
const storeSize = 3 << 30

// newForeignWorld runs a program as the agents of its hosts; empty: the newest.
func newForeignWorld(t *testing.T, agent string) *foreignWorld {
	t.Helper()
	dir := must.Get(os.MkdirTemp("", "salvor-lab-"))(t)
	t.Cleanup(func() { os.RemoveAll(dir) })
	store, image := filepath.Join(dir, "store"), filepath.Join(dir, "store.img")
	must.OK(t, os.Mkdir(store, 0o755))
	must.OK(t, os.WriteFile(image, nil, 0o600))
	must.OK(t, os.Truncate(image, storeSize))
	for _, command := range [][]string{{"mke2fs", "-q", "-F", "-t", "ext4", "-m", "0", image}, {"mount", "-o", "loop", image, store}} {
		if out, err := exec.CommandContext(t.Context(), command[0], command[1:]...).CombinedOutput(); err != nil {
			t.Fatalf("%s: %v: %s", strings.Join(command, " "), err, out)
		}
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(store, syscall.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	w := &foreignWorld{world: newWorldIn(t, dir, store, agent)}
	w.group()
	w.CLI("image", "create", "uefi", "--file", w.system, "--property", "hw_firmware_type=uefi")
	return w
}

// begin makes the server of a row, and waits until it writes.
func (w *foreignWorld) begin(row, image string) *foreignScene {
	w.Helper()
	w.made++
	name := fmt.Sprint("web", w.made)
	w.create(name, "--image", image)
	id, _ := w.Show("server", name)["id"].(string)
	f := &foreignScene{foreignWorld: w, row: row, server: name, id: id, guest: "salvor-" + id, at: w.hostOf(name), disk: w.disks[name]}
	f.file = f.disk
	delete(w.disks, name) // its file is another one soon
	w.Cleanup(func() {
		if w.Failed() {
			out, err := w.TryCLI("", "why", "server:"+id)
			w.Logf("why server %s: %s %v\n%s", name, out, err, f.events(40))
		}
	})
	return f
}

// print prints the table.
func (w *foreignWorld) print() {
	var text strings.Builder
	table := tabwriter.NewWriter(&text, 0, 0, 2, ' ', 0)
	refused, total := 0, time.Duration(0)
	for _, c := range w.cells {
		fmt.Fprintf(table, "%s\t%s\t%.1f s\t%s\n", c.row, c.operation, c.took.Seconds(), c.verdict)
		total += c.took
		if strings.HasPrefix(c.verdict, "refuses") {
			refused++
		}
	}
	_ = table.Flush()
	w.Logf("%d cells, %d of them refusals, %.0f s:\n%s", len(w.cells), refused, total.Seconds(), &text)
}

// refusal is what salvor says instead of doing something; nil: it did it.
type refusal error

// cell has salvor do something, and notes what came of it. Without words it must go on; with words it must refuse, and say all of them. stays proves that
// nothing was lost either way.
func (f *foreignScene) cell(operation string, words []string, run func() (string, refusal), stays func()) {
	f.Helper()
	start := time.Now()
	said, refused := run()
	if f.at = f.hostOf(f.server); f.at == "" {
		f.Fatalf("%s, then %s: the server is on no host", f.row, operation)
	}
	verdict := "goes on"
	if said != "" {
		verdict += ": " + said
	}
	if refused != nil {
		verdict = "refuses: " + refused.Error()
	}
	switch {
	case refused == nil && len(words) > 0:
		f.Errorf("%s, then %s: it is done (%s); want a refusal that says %q", f.row, operation, said, words)
	case refused != nil && len(words) == 0:
		f.Errorf("%s, then %s: %v; want it done", f.row, operation, refused)
	}
	for _, word := range words {
		if refused != nil && !strings.Contains(refused.Error(), word) {
			f.Errorf("%s, then %s: it says %q, which does not name %q", f.row, operation, refused, word)
		}
	}
	if stays != nil {
		stays()
	}
	if (refused == nil) != (len(words) == 0) {
		f.Log(f.events(25))
	}
	c := foreignCell{f.row, operation, strings.ReplaceAll(verdict, filepath.Dir(f.disk)+"/", ""), time.Since(start)}
	f.cells = append(f.cells, c)
	f.Logf("%s, then %s: %.1f s: %s", c.row, c.operation, c.took.Seconds(), c.verdict)
}

// try runs salvor's command line, and gives what it refuses.
func (f *foreignScene) try(args ...string) (string, refusal) {
	f.Helper()
	out, err := f.TryCLI("", args...)
	if err == nil {
		return "", nil
	}
	text := err.Error()
	if _, said, found := strings.Cut(text, "salvor: "); found {
		text = said
	}
	if sentence := regexp.MustCompile(`[A-Z]+ /\S+: `).Split(text, 2); len(sentence) == 2 {
		text = sentence[1]
	}
	_ = out
	return "", refusal(fmt.Errorf("%s", strings.TrimSpace(text)))
}

// ask sends an action of the Compute API, and gives what it refuses.
func (f *foreignScene) ask(action string) (string, refusal) {
	f.Helper()
	out, err := f.Inside(action, "curl", "-sS", "--fail-with-body", "-H", "Content-Type: application/json", "-H", "OpenStack-API-Version: compute 2.79",
		"--data-binary", "@-", f.Server.URL+"/compute/v2.1/servers/"+f.id+"/action")
	if err == nil {
		return "", nil
	}
	if m := regexp.MustCompile(`"message": ?"((?:[^"\\]|\\.)*)"`).FindStringSubmatch(out); m != nil {
		out = strings.ReplaceAll(m[1], `\"`, `"`)
	}
	return "", refusal(fmt.Errorf("%s", out))
}
