package diagnose

import (
	"testing"
	"testing/fstest"
	"time"
)

// TestOnce: the rules of one look share a value, the next look reads anew, and what a rule made too late is not shared.
func TestOnce(t *testing.T) {
	files := fstest.MapFS{"a": {Data: []byte("one")}}
	tree, reads := NewTree(files), 0
	now := time.Unix(0, 0)
	tree.watch.clock = func() time.Time { return now }
	read := func() string {
		return Once(tree, "a", func() string {
			reads++
			text, _ := tree.Read("/a")
			return string(text)
		})
	}
	saw := ""
	rule := Rule{IDs: []string{"x"}, Files: true, Look: func(*System) []Finding { saw += read() + " "; return nil }}
	Run([]Rule{rule, rule}, &System{Files: tree})
	files["a"] = &fstest.MapFile{Data: []byte("two")}
	saw += read() + " "
	Run([]Rule{rule}, &System{Files: tree})
	if saw != "one one two two " || reads != 3 {
		t.Errorf("want the text one of two rules, and two after the change, by 3 reads; got %q by %d", saw, reads)
	}
	late := Rule{IDs: []string{"late"}, Files: true, Look: func(*System) []Finding {
		f, err := tree.Open("/a")
		if err != nil {
			t.Error(err)
			return nil
		}
		defer f.Close()
		Once(tree, "b", func() string {
			now = now.Add(time.Hour)
			_, _ = f.Read(make([]byte, 1)) // refused
			return "late"
		})
		return nil
	}}
	got := ""
	next := Rule{IDs: []string{"next"}, Files: true, Look: func(*System) []Finding {
		got = Once(tree, "b", func() string { return "in time" })
		return nil
	}}
	if _, gaps := Run([]Rule{late, next}, &System{Files: tree}); got != "in time" || len(gaps) != 1 {
		t.Errorf("want the value of the second rule and one gap of the first, got %q and %+v", got, gaps)
	}
}
