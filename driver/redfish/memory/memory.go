// Package memory holds what a process has learned of BMCs and does not store: which resources they showed a short time ago, and which of
// their oddities are noted.
package memory

import (
	"crypto/sha256"
	"fmt"
	"strings"
	"sync"
	"time"

	"salvor/driver/redfish/link"
)

// Key names a BMC with all that decides on the login there.
type Key [sha256.Size]byte

// NewKey is the key of plain values.
func NewKey(of ...any) Key { return sha256.Sum256(fmt.Appendf(nil, "%#v", of)) }

// Bounds of a Memory. A BMC that is forgotten costs one note more, or one wait less.
const (
	maxBMCs      = 4096
	maxResources = 64
	maxNotes     = 64
	// rememberedFor is how long a resource that was read counts as one that the BMC has.
	rememberedFor = 10 * time.Minute
	// missingFor is how long such a resource may be away before it counts as gone: BMCs that restart, or follow an order, show parts of
	// themselves again after some ten seconds (openstack/sushy, release note fix-dell-bmc-404-race-condition).
	missingFor = 90 * time.Second
	// orderFor is how long after an order a BMC may lose sight of parts of itself.
	orderFor = 30 * time.Second
)

// Memory is what a process has learned of BMCs and does not store. The zero value is ready, and is safe for use by several goroutines.
type Memory struct {
	// Now is the clock; nil: time.Now.
	Now func() time.Time

	mu   sync.Mutex
	bmcs map[Key]*bmcMemory
}

// bmcMemory is what a process knows of one BMC.
type bmcMemory struct {
	resources map[string]resourceMemory
	notes     map[string]bool
	ordered   time.Time // the last time
}

type resourceMemory struct {
	read    time.Time // the last time
	missing time.Time // the first time after that; zero: the resource is there
	lacking bool      // the BMC said that there is no such resource, and went on saying so
}

func (m *Memory) now() time.Time {
	if m.Now == nil {
		return time.Now()
	}
	return m.Now()
}

// of is the memory of one BMC. The caller holds the lock.
func (m *Memory) of(key Key) *bmcMemory {
	known := m.bmcs[key]
	if known == nil {
		if m.bmcs == nil {
			m.bmcs = map[Key]*bmcMemory{}
		}
		for one := range m.bmcs { // which BMC is forgotten does not matter
			if len(m.bmcs) < maxBMCs {
				break
			}
			delete(m.bmcs, one)
		}
		known = &bmcMemory{resources: map[string]resourceMemory{}, notes: map[string]bool{}}
		m.bmcs[key] = known
	}
	return known
}

// resourceName is the path of a resource without the query and the fragment that a careless BMC writes behind it.
func resourceName(ref string) string {
	if at := strings.IndexAny(ref, "?#"); at >= 0 {
		ref = ref[:at]
	}
	return link.Trim(ref)
}

// Saw notes that the BMC has a resource.
func (m *Memory) Saw(key Key, path string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.of(key).store(resourceName(path), resourceMemory{read: m.now()})
}

// store remembers a resource in the place of any other where there are too many.
func (b *bmcMemory) store(path string, r resourceMemory) {
	for one := range b.resources {
		if len(b.resources) < maxResources {
			break
		}
		delete(b.resources, one)
	}
	b.resources[path] = r
}

// MissesNow tells whether the BMC had a resource, or the one above, a short time ago, so that it may show the resource again soon.
func (m *Memory) MissesNow(key Key, path string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	known, now := m.of(key), m.now()
	for path = resourceName(path); strings.Count(path, "/") > 2; path = path[:strings.LastIndexByte(path, '/')] {
		r, found := known.resources[path]
		if !found {
			if strings.Contains(path, "/Actions") { // an action has no page of its own
				continue
			}
			return false
		}
		if r.missing.IsZero() {
			r.missing = now
			known.resources[path] = r
		}
		return now.Sub(r.read) < rememberedFor && now.Sub(r.missing) < missingFor
	}
	return false
}

// Had tells whether a BMC had a resource below a path a short time ago.
func (m *Memory) Had(key Key, path string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	for at, r := range m.of(key).resources {
		if strings.HasPrefix(at, resourceName(path)+"/") && m.now().Sub(r.read) < missingFor {
			return true
		}
	}
	return false
}

// Ordered notes that a BMC got an order.
func (m *Memory) Ordered(key Key) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.of(key).ordered = m.now()
}

// Lacks notes that a BMC does not have a resource.
func (m *Memory) Lacks(key Key, path string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.of(key).store(resourceName(path), resourceMemory{lacking: true})
}

// MayHide tells whether a BMC may have a resource that it says it does not have: it got an order a short time ago, and did not say so before.
func (m *Memory) MayHide(key Key, path string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	known := m.of(key)
	return m.now().Sub(known.ordered) < orderFor && !known.resources[resourceName(path)].lacking
}

// HadOrder tells whether a BMC got an order a short time ago, which it may still follow.
func (m *Memory) HadOrder(key Key) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.now().Sub(m.of(key).ordered) < orderFor
}

// FirstNote tells whether a note about a BMC is the first of its text in this process.
func (m *Memory) FirstNote(key Key, format string, args ...any) bool {
	text := fmt.Sprintf(format, args...)
	m.mu.Lock()
	defer m.mu.Unlock()
	known := m.of(key)
	if known.notes[text] || len(known.notes) >= maxNotes {
		return false
	}
	known.notes[text] = true
	return true
}
