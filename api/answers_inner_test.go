package api

import (
	"net/http/httptest"
	"strings"
	"testing"
)

// counting is a ResponseWriter that reads how much memory is counted while a client reads an answer.
type counting struct {
	*httptest.ResponseRecorder
	least, most int
}

func (c *counting) Write(b []byte) (int, error) {
	pendingAnswers.mu.Lock()
	c.least, c.most = min(c.least, pendingAnswers.held), max(c.most, pendingAnswers.held)
	pendingAnswers.mu.Unlock()
	return c.ResponseRecorder.Write(b)
}

// TestAnswersCountWhatTheyHold: an answer counts its whole text until its last part is read. A text in the shared cache counts little, and
// nothing is counted afterwards.
func TestAnswersCountWhatTheyHold(t *testing.T) {
	text := strings.Repeat("0123456789", 100_000)
	texts := []string{text[:7], "", text[7 : answerPart+9], text[answerPart+9:]}
	for name, c := range map[string]struct {
		write       func(w *counting) error
		least, most int
	}{
		"a text of its own":      {func(w *counting) error { _, err := pendingAnswers.write(w, []byte(text)); return err }, len(text), len(text)},
		"texts of its own":       {func(w *counting) error { return WriteTexts(w, texts, len(text)) }, len(text), len(text) + 2*answerPart},
		"texts that others keep": {func(w *counting) error { return WriteTexts(w, texts, 0) }, answerPart, 2 * answerPart},
		"few short texts":        {func(w *counting) error { return WriteTexts(w, []string{"a", "", "bc"}, 3) }, 0, 0},
	} {
		w := &counting{httptest.NewRecorder(), 1 << 30, 0}
		if err := c.write(w); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if w.least < c.least || w.most > c.most {
			t.Errorf("%s: %d to %d bytes are counted, want %d to %d", name, w.least, w.most, c.least, c.most)
		}
		if got := w.Body.String(); got != text && got != "abc" {
			t.Errorf("%s: %d bytes, or others, were written", name, len(got))
		}
		if pendingAnswers.held != 0 || len(pendingAnswers.open) != 0 {
			t.Fatalf("%s: %d bytes are counted afterwards", name, pendingAnswers.held)
		}
	}
}
