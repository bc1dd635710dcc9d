package canary

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"salvor/test/must"
)

// mark begins every canary. It is letters and digits alone, so that no escaping of URLs or JSON changes it.
const mark = "KAnarIENv0gel"

// bird is the canary of a name.
func (w *world) bird(name string) string {
	w.mu.Lock()
	defer w.mu.Unlock()
	for i, n := range w.birds {
		if n == name {
			return fmt.Sprintf("%s%02d", mark, i)
		}
	}
	w.birds = append(w.birds, name)
	return fmt.Sprintf("%s%02d", mark, len(w.birds)-1)
}

// watch adds a secret that the server itself made.
func (w *world) watch(name, made string) {
	if len(made) < 16 {
		w.Fatalf("%s: %q is too short to be a secret", name, made)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.made[name] = made
}

// shapes are the forms in which a text can be written.
func shapes(text string) [][]byte {
	out := [][]byte{[]byte(text), []byte(hex.EncodeToString([]byte(text))), []byte(strings.ToUpper(hex.EncodeToString([]byte(text))))}
	for lead := range 3 {
		// The characters that the neighbours have a part in are left out.
		b := base64.RawStdEncoding.EncodeToString([]byte(strings.Repeat("x", lead) + text))
		out = append(out, []byte(b[(lead*8+5)/6:len(b)-1]))
	}
	return out
}

var (
	markShapes = shapes(mark)
	cryptHash  = regexp.MustCompile(`\$[56]\$(rounds=[0-9]+\$)?[./A-Za-z0-9]{8,16}\$[./A-Za-z0-9]{43,86}`)
)

// find tells which secrets are in a text, by their names.
func (w *world) find(text []byte) []string {
	var out []string
	for shape, m := range markShapes {
		for at := 0; ; {
			i := bytes.Index(text[at:], m)
			if i < 0 {
				break
			}
			at += i + len(m)
			out = append(out, w.named(text, at, shape))
		}
	}
	for _, begin := range []string{"$5$", "$6$"} {
		if bytes.Contains(text, []byte(begin)) && cryptHash.Match(text) {
			out = append(out, "a password's hash")
			break
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for name, made := range w.made {
		for _, s := range shapes(made) {
			if bytes.Contains(text, s) {
				out = append(out, name)
			}
		}
	}
	return out
}

func (w *world) named(text []byte, end, shape int) string {
	w.mu.Lock()
	defer w.mu.Unlock()
	if shape == 0 && end+2 <= len(text) {
		if n, err := strconv.Atoi(string(text[end : end+2])); err == nil && n < len(w.birds) {
			return w.birds[n]
		}
	}
	// The rest of a word of base64 or of hexadecimal digits around it says which.
	from, to := end, end
	for from > 0 && isWord(text[from-1]) {
		from--
	}
	for to < len(text) && isWord(text[to]) {
		to++
	}
	word := strings.NewReplacer("-", "+", "_", "/").Replace(string(text[from:to]))
	for lead := range 4 {
		for _, decode := range []func(string) ([]byte, error){hex.DecodeString, base64.RawStdEncoding.DecodeString} {
			plain, _ := decode(word[min(lead, len(word)):])
			if i := bytes.Index(plain, []byte(mark)); i >= 0 && i+len(mark)+2 <= len(plain) {
				if n, err := strconv.Atoi(string(plain[i+len(mark) : i+len(mark)+2])); err == nil && n < len(w.birds) {
					return w.birds[n]
				}
			}
		}
	}
	return "a canary in another form"
}

func isWord(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || strings.IndexByte("+/-_", c) >= 0
}

// secretive fails the test for what is found at a place, unless it may be there.
func (w *world) secretive(place string, text []byte, may ...string) {
	w.mu.Lock()
	w.looked[strings.SplitN(place, " ", 2)[0]] += len(text)
	w.mu.Unlock()
	told := map[string]bool{}
	for _, name := range w.find(text) {
		allowed := false
		for _, m := range may {
			allowed = allowed || m == name
		}
		if !allowed && !told[name] {
			told[name] = true
			w.Errorf("%s is in %s: %s", name, place, w.around(text))
		}
	}
}

// around shows a little of the first place.
func (w *world) around(text []byte) string {
	for _, m := range markShapes {
		if i := bytes.Index(text, m); i >= 0 {
			return fmt.Sprintf("%.300q", text[max(0, i-150):min(len(text), i+150)])
		}
	}
	if at := cryptHash.FindIndex(text); at != nil {
		return fmt.Sprintf("%.300q", text[max(0, at[0]-150):at[1]])
	}
	return ""
}

// searchFiles looks into every file below dirs.
func (w *world) searchFiles(place string, dirs []string, may func(path string) []string) {
	for _, dir := range dirs {
		must.OK(w, filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
			if err != nil || !d.Type().IsRegular() {
				return nil // a file that went while we looked
			}
			text, err := readData(path)
			if err != nil {
				return nil
			}
			var allowed []string
			if may != nil {
				allowed = may(path)
			}
			w.secretive(place+" "+path, text, allowed...)
			return nil
		}))
	}
}

// readData reads a file without its holes. A disk of 1 GiB holds some kilobytes.
func readData(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var out []byte
	for at := int64(0); ; {
		from, err := f.Seek(at, unix.SEEK_DATA)
		if errors.Is(err, unix.ENXIO) { // nothing but a hole follows
			return out, nil
		}
		if err != nil {
			return nil, err
		}
		if at, err = f.Seek(from, unix.SEEK_HOLE); err != nil {
			return nil, err
		}
		part := make([]byte, at-from)
		n, err := f.ReadAt(part, from)
		out = append(out, part[:n]...)
		if err != nil && err != io.EOF {
			return nil, err
		}
	}
}

// watchProcesses reads the command lines and environments of the server and of all its children, again and again until stop.
func watchProcesses(t testing.TB, pid int) (stop func() []byte) {
	done, seen := make(chan struct{}), map[string]bool{}
	var over sync.WaitGroup
	over.Go(func() {
		tick := time.NewTicker(20 * time.Millisecond)
		defer tick.Stop()
		for {
			for _, id := range family(pid) {
				for _, file := range []string{"cmdline", "environ"} {
					if text, err := os.ReadFile(fmt.Sprintf("/proc/%d/%s", id, file)); err == nil {
						seen[string(text)] = true
					}
				}
			}
			select {
			case <-done:
				return
			case <-tick.C:
			}
		}
	})
	return func() []byte {
		close(done)
		over.Wait()
		var all bytes.Buffer
		for text := range seen {
			all.WriteString(text)
			all.WriteByte('\n')
		}
		if all.Len() == 0 {
			t.Error("no process was looked at")
		}
		return all.Bytes()
	}
}

// family is a process and what it started.
func family(pid int) []int {
	out := []int{pid}
	for i := 0; i < len(out); i++ {
		tasks, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", out[i]))
		for _, task := range tasks {
			text, _ := os.ReadFile(task)
			for _, word := range strings.Fields(string(text)) {
				if id, err := strconv.Atoi(word); err == nil {
					out = append(out, id)
				}
			}
		}
	}
	return out
}
