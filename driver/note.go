package driver

import (
	"context"
	"fmt"
	"slices"
	"sync"
)

const (
	// maxNotes bounds how many notes one action collects.
	maxNotes = 16
	// maxNote bounds a note, in bytes.
	maxNote = 500
)

// Notes collects what drivers noticed of a machine while they did as they were told. It is safe for use by several goroutines.
type Notes struct {
	mu    sync.Mutex
	texts []string
}

type notesKey struct{}

// WithNotes has Note collect under the returned context.
func WithNotes(ctx context.Context) (context.Context, *Notes) {
	n := new(Notes)
	return context.WithValue(ctx, notesKey{}, n), n
}

// Note records for the node's history that a machine did not behave as expected, where that is no failure. The text is one sentence without
// a full stop. Text of the BMC in it must be quoted and masked. Under a context without notes it is dropped.
func Note(ctx context.Context, format string, args ...any) {
	n, _ := ctx.Value(notesKey{}).(*Notes)
	if n == nil {
		return
	}
	text := fmt.Sprintf(format, args...)
	text = text[:min(len(text), maxNote)]
	n.mu.Lock()
	defer n.mu.Unlock()
	if len(n.texts) < maxNotes && !slices.Contains(n.texts, text) {
		n.texts = append(n.texts, text)
	}
}

// TakesNotes tells whether Note records anything under the context.
func TakesNotes(ctx context.Context) bool {
	n, _ := ctx.Value(notesKey{}).(*Notes)
	return n != nil
}

// Texts are the notes so far, in the order in which they came.
func (n *Notes) Texts() []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Clone(n.texts)
}
