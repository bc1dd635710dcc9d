package ironic

import (
	"fmt"
	"strings"
	"testing"

	"salvor/metal"
	"salvor/record"
)

// TestFragmentsBounded: many hosts, many shapes and a fleet larger than the room take no more than they may, and the count of bytes is true.
func TestFragmentsBounded(t *testing.T) {
	var f fragments
	text := strings.Repeat("x", 10_000)
	count := func() (size int) {
		for _, held := range f.views {
			for _, one := range held {
				size += len(one.text) + fragmentCost
			}
		}
		return size
	}
	for i := range 200 {
		all := map[int64]fragment{}
		for num := range int64(100) {
			all[int64(i%40)*100+num] = fragment{metal.NodeMark{Mark: record.Mark{Num: num, Version: int64(i)}}, text}
		}
		f.keep(view{path: "nodes", host: fmt.Sprint(i % 25), drivers: int64(i / 150)}, all)
		if f.size != count() || f.size > maxFragments || len(f.views) > maxViews {
			t.Fatalf("round %d: %d bytes told, %d there, at most %d; %d views", i, f.size, count(), maxFragments, len(f.views))
		}
	}
	for v := range f.views {
		if v.drivers != 1 {
			t.Errorf("a view of former drivers is kept: %+v", v)
		}
	}
}

// TestFragmentsByMark: a text is given for the very mark that it was written for.
func TestFragmentsByMark(t *testing.T) {
	var f fragments
	v := view{path: "nodes"}
	mark := metal.NodeMark{Mark: record.Mark{Num: 7, ID: "a", Version: 3}, Heard: 2, Reservation: "r", Conductor: "c"}
	f.keep(v, map[int64]fragment{7: {mark, "text"}})
	if texts, missing := f.find(v, []metal.NodeMark{mark}); len(missing) != 0 || texts[0] != "text" {
		t.Fatalf("%q %v", texts, missing)
	}
	for name, change := range map[string]func(*metal.NodeMark){
		"version": func(m *metal.NodeMark) { m.Version++ }, "heard": func(m *metal.NodeMark) { m.Heard++ }, "row": func(m *metal.NodeMark) { m.Num++ },
		"lock": func(m *metal.NodeMark) { m.Reservation = "" }, "conductor": func(m *metal.NodeMark) { m.Conductor = "" },
	} {
		other := mark
		change(&other)
		if _, missing := f.find(v, []metal.NodeMark{other}); len(missing) != 1 {
			t.Errorf("a text of another %s is given", name)
		}
	}
	for name, other := range map[string]view{"version": {path: "nodes", version: 9}, "host": {path: "nodes", host: "h"}, "fields": {path: "nodes", fields: "uuid,"}, "kind": {path: "ports"}, "drivers": {path: "nodes", drivers: 1}} {
		if _, missing := f.find(other, []metal.NodeMark{mark}); len(missing) != 1 {
			t.Errorf("a text of another %s is given", name)
		}
	}
}
