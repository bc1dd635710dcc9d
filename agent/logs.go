package agent

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/base64"
	"fmt"
	"log/slog"
	"sync"

	"golang.org/x/sys/unix"

	"salvor/agent/step"
)

// maxRecent bounds what is kept of the agent's own log, in bytes.
const maxRecent = 256 << 10

// recentLog keeps the end of the log for a server that asks after a failure.
type recentLog struct {
	mu   sync.Mutex
	text []byte
}

// Write takes whole lines.
func (r *recentLog) Write(line []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.text = append(r.text, line...)
	if len(r.text) > 2*maxRecent { // a cut copies the text, so most lines make none
		r.text = bytes.Clone(lastLines(r.text))
	}
	return len(line), nil
}

// lastLines is the end of a log that is kept, from the begin of a line.
func lastLines(text []byte) []byte {
	over := len(text) - maxRecent
	if over <= 0 {
		return text
	}
	return text[over+bytes.IndexByte(text[over:], '\n')+1:]
}

func (r *recentLog) bytes() []byte {
	r.mu.Lock()
	defer r.mu.Unlock()
	return bytes.Clone(lastLines(r.text))
}

// teeLogger logs into both.
func teeLogger(log *slog.Logger, r *recentLog) *slog.Logger {
	return slog.New(slog.NewMultiHandler(log.Handler(), slog.NewTextHandler(r, nil)))
}

// logs is base64 of a tar.gz of the agent's and the kernel's log.
func (a *Agent) logs() (string, error) {
	kernel := make([]byte, 1<<20)
	const readAll = 3 // SYSLOG_ACTION_READ_ALL
	n, err := unix.Klogctl(readAll, kernel)
	if err != nil {
		n = copy(kernel, fmt.Sprintf("the kernel's log cannot be read: %v\n", err))
	}
	var packed bytes.Buffer
	z := gzip.NewWriter(&packed)
	archive := tar.NewWriter(z)
	for _, file := range []struct {
		name    string
		content []byte
	}{{"salvor-agent", a.recent.bytes()}, {"kernel", kernel[:n]}} {
		if err := archive.WriteHeader(&tar.Header{Name: file.name, Mode: 0o644, Size: int64(len(file.content)), ModTime: a.started}); err != nil {
			return "", err
		}
		if _, err := archive.Write(file.content); err != nil {
			return "", err
		}
	}
	if err := archive.Close(); err != nil {
		return "", err
	}
	if err := z.Close(); err != nil {
		return "", err
	}
	return base64.StdEncoding.EncodeToString(packed.Bytes()), nil
}

func (a *Agent) collectLogs(context.Context, step.Params) (any, error) {
	text, err := a.logs()
	return map[string]string{"system_logs": text}, err
}
