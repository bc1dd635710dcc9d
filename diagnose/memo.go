package diagnose

import "sync"

// ruleMemo holds what several rules work out of the same files, while Run asks the rules about one system. Nothing outlives Run, because a repair
// changes the files.
type ruleMemo struct {
	mu     sync.Mutex
	values map[string]any // nil: no Run is under way
}

func (m *ruleMemo) begin() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.values = map[string]any{}
}

func (m *ruleMemo) end() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.values = nil
}

// Once returns what read makes of a tree. While Run asks the rules about a system, the first rule that needs a value makes it for all others, so
// that no rule may change the value. key names the value. What a rule made that has taken too long is not kept.
func Once[T any](t *Tree, key string, read func() T) T {
	t.memo.mu.Lock()
	value, found := t.memo.values[key]
	t.memo.mu.Unlock()
	if found {
		return value.(T)
	}
	made := read()
	if t.watch.wasLate() {
		return made
	}
	t.memo.mu.Lock()
	defer t.memo.mu.Unlock()
	if t.memo.values != nil {
		t.memo.values[key] = made
	}
	return made
}
