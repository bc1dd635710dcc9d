package host

import (
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"strings"
	"syscall"
	"time"

	"salvor/compute"
	"salvor/durable"
)

// maxConsole bounds what an order brings of a console, in bytes.
const maxConsole = 256 << 10

const oldConsole = consoleFile + ".old"

// console brings the last lines of the serial console.
func (w *orderExecution) console(context.Context) (compute.Result, error) {
	old, err := readFileTail(w.path(oldConsole), maxConsole)
	if err != nil {
		return compute.Result{}, err
	}
	now, err := readFileTail(w.path(consoleFile), maxConsole)
	if err != nil {
		return compute.Result{}, err
	}
	text := append(old, now...)
	if over := len(text) - maxConsole; over > 0 {
		text = text[over:]
	}
	return compute.Result{Console: lastLines(cleanConsole(text), w.args.Lines)}, nil
}

// markStart writes into the console log that a guest starts, unless the guest goes on as it is. The log joins the texts of all starts, and without the mark
// nobody could tell the login of a rescue system from that of the guest's own one. A guest whose log cannot be marked starts all the same.
func (a *Agent) markStart(g *compute.Guest, restart bool) {
	if !restart && (mayRun(g.Power) || g.Power == compute.PowerSaved) {
		return
	}
	f, err := os.OpenFile(a.identity.path("servers", g.ID, consoleFile), os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600)
	if err == nil {
		_, err = f.WriteString(compute.ConsoleStartLine(time.Now()))
		err = errors.Join(err, f.Close())
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) { // a server that was adopted has no folder and no log here
		a.Log.Warn("mark the start of a guest in its console log", "server", g.ID, "error", err)
	}
}

// cleanConsole makes text of what a guest wrote: a log was cut while the guest wrote on, or holds no text.
func cleanConsole(b []byte) string {
	return strings.ToValidUTF8(string(bytes.ReplaceAll(b, []byte{0}, nil)), "\ufffd")
}

// lastLines keeps the end of a text; 0: all of it.
func lastLines(s string, n int) string {
	if n <= 0 {
		return s
	}
	at := len(s)
	if strings.HasSuffix(s, "\n") {
		at--
	}
	for ; n > 0; n-- {
		if at = strings.LastIndexByte(s[:at], '\n'); at < 0 {
			return s
		}
	}
	return s[at+1:]
}

// readFileTail reads the end of a file; none is empty.
func readFileTail(path string, limit int64) ([]byte, error) {
	f, err := os.Open(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if over := info.Size() - limit; over > 0 {
		if _, err := f.Seek(over, io.SeekStart); err != nil {
			return nil, err
		}
	}
	return io.ReadAll(io.LimitReader(f, limit))
}

// trimConsoles bounds the logs of all guests: of one that has grown too long the end is kept
// beside it. The guest's writer appends, so it goes on at the new end.
func (a *Agent) trimConsoles() {
	entries, err := os.ReadDir(a.identity.path("servers"))
	if err != nil {
		return
	}
	for _, e := range entries {
		path := a.identity.path("servers", e.Name(), consoleFile)
		info, err := os.Stat(path)
		if err != nil || info.Size() <= a.ConsoleBytes {
			continue
		}
		end, err := readFileTail(path, min(a.ConsoleBytes, maxConsole))
		if err == nil {
			err = durable.Write(a.identity.path("servers", e.Name(), oldConsole), end, 0o600)
		}
		if err == nil {
			err = os.Truncate(path, 0)
		}
		if err != nil {
			a.Log.Warn("bound a console log", "server", e.Name(), "error", err)
		}
	}
}

func inodeNumber(info os.FileInfo) uint64 {
	if s, ok := info.Sys().(*syscall.Stat_t); ok {
		return s.Ino
	}
	return 0
}
