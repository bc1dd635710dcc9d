package network

import (
	"log/slog"
	"slices"
	"strings"
)

// report is what was left out of the network, by the thing. What comes later is taken off it.
type report struct {
	log    *slog.Logger
	things []string
	texts  map[string]string
	// changed tells whether the file is to be written.
	changed bool
}

func newReport(log *slog.Logger) *report {
	return &report{log: log, texts: map[string]string{}, changed: true}
}

// set says why a thing is left out. The log is told when that changes.
func (r *report) set(thing, text string) {
	if r.texts[thing] == text {
		return
	}
	if r.texts[thing] == "" {
		r.things = append(r.things, thing)
	}
	r.texts[thing], r.changed = text, true
	r.log.Warn("left out of the network", "what", text)
}

// clear says that a thing is there.
func (r *report) clear(thing string) {
	if r.texts[thing] == "" {
		return
	}
	r.log.Info("no longer left out of the network", "what", thing)
	delete(r.texts, thing)
	r.things = slices.DeleteFunc(r.things, func(t string) bool { return t == thing })
	r.changed = true
}

// lines are the sentences, in the order in which the things were missed first.
func (r *report) lines() []string {
	var out []string
	for _, thing := range r.things {
		out = append(out, r.texts[thing])
	}
	return out
}

// write leaves the sentences in LeftOutFile, one a line, if they changed.
func (r *report) write(root string) error {
	if !r.changed {
		return nil
	}
	text := ""
	for _, line := range r.lines() {
		text += strings.ReplaceAll(line, "\n", " ") + "\n"
	}
	r.changed = false
	return replaceFile(root, LeftOutFile, []byte(text), 0o644)
}
