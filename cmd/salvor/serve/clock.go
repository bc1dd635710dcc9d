package serve

import (
	"os"
	"strings"
	"sync"
	"time"
)

// clockVariable names a file that holds by how much this machine's clock is to seem wrong, as "-1h30m". The tests
// that set clocks wrong while processes work write it (docs/proofs.md); there is no other use for it.
const clockVariable = "SALVOR_TEST_CLOCK"

// machineClock is the wall clock of this machine.
func machineClock() func() time.Time {
	file := os.Getenv(clockVariable)
	if file == "" {
		return time.Now
	}
	w := &wrongClock{file: file}
	return w.now
}

// databaseClock is the clock of the rows: of a database with a server, the server's.
func databaseClock(url string) func() time.Time {
	if isSQLite(url) {
		return machineClock()
	}
	return nil
}

// wrongClock is off by what its file says, which is read a few times a second.
type wrongClock struct {
	file string

	mu   sync.Mutex
	by   time.Duration
	read time.Time
}

func (w *wrongClock) now() time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	if time.Since(w.read) > 100*time.Millisecond {
		w.read = time.Now()
		if b, err := os.ReadFile(w.file); err == nil {
			w.by, _ = time.ParseDuration(strings.TrimSpace(string(b)))
		}
	}
	// Without the monotonic reading, so that a step is felt wherever two such times are compared.
	return time.Now().Round(0).Add(w.by)
}
