package ironic

import (
	"testing"

	"salvor/metal"
	"salvor/record"
	"salvor/test/must"
)

// TestJSONCacheByMark: a text is given for the very mark that it was written for.
func TestJSONCacheByMark(t *testing.T) {
	f := newJSONCache()
	v := jsonView{path: "nodes"}
	mark := metal.NodeMark{Mark: record.Mark{Num: 7, ID: "a", Version: 3}, ContactRevision: 2, Reservation: "r", Conductor: "c"}
	asked := func(v jsonView, m metal.NodeMark) bool {
		t.Helper()
		read := false
		texts, err := f.Render(v, []metal.NodeMark{m}, func(nums []int64) (map[int64]cachedNode, error) {
			read = true
			return map[int64]cachedNode{}, nil
		})
		if err != nil || !read && texts[0] != "text" {
			t.Errorf("%q, %v", texts, err)
		}
		return read
	}
	must.Get(f.Render(v, []metal.NodeMark{mark}, func([]int64) (map[int64]cachedNode, error) {
		return map[int64]cachedNode{7: {Mark: mark, Text: "text"}}, nil
	}))(t)
	if asked(v, mark) {
		t.Fatal("a text that is kept is not given")
	}
	for name, change := range map[string]func(*metal.NodeMark){
		"version": func(m *metal.NodeMark) { m.Version++ }, "heard": func(m *metal.NodeMark) { m.ContactRevision++ }, "row": func(m *metal.NodeMark) { m.Num++ },
		"lock": func(m *metal.NodeMark) { m.Reservation = "" }, "conductor": func(m *metal.NodeMark) { m.Conductor = "" },
	} {
		other := mark
		change(&other)
		if !asked(v, other) {
			t.Errorf("a text of another %s is given", name)
		}
	}
	for name, other := range map[string]jsonView{"version": {path: "nodes", version: 9}, "host": {path: "nodes", host: "h"}, "fields": {path: "nodes", fields: "uuid,"}, "kind": {path: "ports"}, "drivers": {path: "nodes", drivers: 1}} {
		if !asked(other, mark) {
			t.Errorf("a text of another %s is given", name)
		}
	}
}
