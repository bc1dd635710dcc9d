package host

import (
	"encoding/json"
	"os"
	"sync"

	"salvor/durable"
	wire "salvor/wire/host"
)

// witnessFile holds the incarnation and counter of the control plane's database at its last answer to this host.
const witnessFile = "witness.json"

// storedWitness is the host's copy of the incarnation and counter of the control plane's database.
type storedWitness struct {
	mu     sync.Mutex
	path   string
	newest *wire.Witness
}

// openWitness reads the stored witness. An unreadable file counts as none.
func openWitness(path string) *storedWitness {
	w := &storedWitness{path: path}
	if b, err := os.ReadFile(path); err == nil {
		var stored wire.Witness
		if json.Unmarshal(b, &stored) == nil && stored.Incarnation != "" {
			w.newest = &stored
		}
	}
	return w
}

// current is the witness for the next renewal; nil: there is none.
func (w *storedWitness) current() *wire.Witness {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.newest
}

// store stores a witness that is newer than the stored one, or of another incarnation.
func (w *storedWitness) store(next *wire.Witness) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if next == nil || next.Incarnation == "" || w.newest != nil && w.newest.Incarnation == next.Incarnation && w.newest.Counter >= next.Counter {
		return nil
	}
	b, err := json.Marshal(next)
	if err == nil {
		err = durable.Write(w.path, b, 0o600)
	}
	if err == nil {
		w.newest = next
	}
	return err
}
