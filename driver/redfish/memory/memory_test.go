package memory

import (
	"strconv"
	"testing"
	"time"
)

const system = "/redfish/v1/Systems/1"

// TestMissing: a resource that the BMC had a short time ago is missed for 90 s, and then is gone.
func TestMissing(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	m, key := &Memory{Now: func() time.Time { return now }}, NewKey("a")
	check := func(what, path string, want bool) {
		t.Helper()
		if got := m.MissesNow(key, path); got != want {
			t.Errorf("%s: %s is missed: %t, want %t", what, path, got, want)
		}
	}
	check("before it was read", system, false)
	m.Saw(key, system+"/")
	check("after it was read", system, true)
	check("after the system was read", system+"/Actions/ComputerSystem.Reset", true)
	check("after the system was read", system+"/Bios", false)
	if m.MissesNow(NewKey("b"), system) {
		t.Error("another BMC misses a resource that it never had")
	}
	now = now.Add(missingFor - time.Second)
	check("89 s later", system, true)
	now = now.Add(time.Second)
	check("90 s later", system, false)
	m.Saw(key, system)
	check("after it came back", system, true)
	now = now.Add(rememberedFor)
	check("ten minutes after it was read", system, false)
}

// TestBounds: neither the fleet nor a BMC's resources make the memory grow.
func TestBounds(t *testing.T) {
	m := new(Memory)
	for i := range 3 * maxBMCs {
		m.Saw(NewKey(i), system)
	}
	for i := range 3 * maxResources {
		m.Saw(NewKey("one"), system+strconv.Itoa(i))
	}
	for i := range 3 * maxNotes {
		m.FirstNote(NewKey("one"), "note %d", i)
	}
	one := m.bmcs[NewKey("one")]
	if len(m.bmcs) != maxBMCs || len(one.resources) != maxResources || len(one.notes) != maxNotes {
		t.Errorf("%d BMCs, %d resources, %d notes; want %d, %d, %d", len(m.bmcs), len(one.resources), len(one.notes), maxBMCs, maxResources, maxNotes)
	}
}

// TestNotesOnce: the same oddity of the same BMC is noted once.
func TestNotesOnce(t *testing.T) {
	m := new(Memory)
	for i, want := range []bool{true, false} {
		if got := m.FirstNote(NewKey("a"), "odd %s", "value"); got != want {
			t.Errorf("time %d: first %t, want %t", i+1, got, want)
		}
	}
	if !m.FirstNote(NewKey("b"), "odd %s", "value") {
		t.Error("the oddity of another BMC is not noted")
	}
}
