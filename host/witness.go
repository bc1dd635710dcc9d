package host

import (
	"encoding/json"
	"os"
	"sync"

	"salvor/durable"
	wire "salvor/wire/host"
)

// witnessFile keeps how far the control plane's database had come when it answered this host last.
const witnessFile = "witness.json"

// witness is what the host remembers of the control plane's database.
type witness struct {
	mu   sync.Mutex
	path string
	kept *wire.Witness
}

// openWitness reads what is kept. A file that cannot be read remembers nothing.
func openWitness(path string) *witness {
	w := &witness{path: path}
	if b, err := os.ReadFile(path); err == nil {
		var kept wire.Witness
		if json.Unmarshal(b, &kept) == nil && kept.Incarnation != "" {
			w.kept = &kept
		}
	}
	return w
}

// told is what the next renewal tells; nil: nothing is kept.
func (w *witness) told() *wire.Witness {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.kept
}

// keep remembers a witness that is newer than the kept one, or of another incarnation.
func (w *witness) keep(next *wire.Witness) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if next == nil || next.Incarnation == "" || w.kept != nil && w.kept.Incarnation == next.Incarnation && w.kept.Counter >= next.Counter {
		return nil
	}
	b, err := json.Marshal(next)
	if err == nil {
		err = durable.Write(w.path, b, 0o600)
	}
	if err == nil {
		w.kept = next
	}
	return err
}
