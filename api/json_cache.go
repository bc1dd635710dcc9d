package api

import "sync"

// JSONCache keeps the JSON of records as answers showed them, each with the mark of the state that it shows. A list then reads the marks
// alone and copies the bytes. The marks that a request read decide which entries it may use, so no answer is older than they are. V is
// the view: all that the JSON depends on beside its record. M is the mark. The zero value is an empty cache. Several goroutines may use it.
type JSONCache[V, M comparable] struct {
	// Num gives the number under which a mark's record is kept; of different marks of one number the newest stays.
	Num func(M) int64
	// Outdated tells whether nobody will ask for the old view again, now that there is the other; nil: never.
	Outdated func(old, now V) bool

	mu    sync.Mutex
	size  int
	views map[V]map[int64]CachedJSON[M]
}

// CachedJSON is the JSON of a record in the state that has the mark.
type CachedJSON[M comparable] struct {
	Mark M
	Text string
}

const (
	maxViews       = 16
	maxCachedBytes = 64 << 20 // bytes of all
	entryOverhead  = 200      // bytes that one takes beside its text
)

// Render gives the marks' records as the view shows them. write reads and writes those that
// are not kept; a record that is gone meanwhile has no text.
func (f *JSONCache[V, M]) Render(v V, marks []M, write func(nums []int64) (map[int64]CachedJSON[M], error)) ([]string, error) {
	texts, missing := f.find(v, marks)
	if len(missing) == 0 {
		return texts, nil
	}
	nums := make([]int64, len(missing))
	for i, at := range missing {
		nums[i] = f.Num(marks[at])
	}
	fresh, err := write(nums)
	if err != nil {
		return nil, err
	}
	for _, at := range missing {
		texts[at] = fresh[f.Num(marks[at])].Text
	}
	f.store(v, fresh)
	return texts, nil
}

// find gives the texts of those marks that are there, and the places of the others.
func (f *JSONCache[V, M]) find(v V, marks []M) (texts []string, missing []int) {
	texts = make([]string, len(marks))
	f.mu.Lock()
	defer f.mu.Unlock()
	known := f.views[v]
	for i, m := range marks {
		if had, ok := known[f.Num(m)]; ok && had.Mark == m {
			texts[i] = had.Text
		} else {
			missing = append(missing, i)
		}
	}
	return texts, missing
}

// store remembers entries; where room is short others go, whichever the map gives
// first: a walk through a fleet that is larger than the room would lose every one of
// the oldest just before it comes to it again.
func (f *JSONCache[V, M]) store(v V, all map[int64]CachedJSON[M]) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.views == nil {
		f.views = map[V]map[int64]CachedJSON[M]{}
	}
	known := f.views[v]
	if known == nil {
		for old := range f.views {
			if len(f.views) < maxViews && (f.Outdated == nil || !f.Outdated(old, v)) {
				continue
			}
			f.drop(old)
		}
		known = map[int64]CachedJSON[M]{}
		f.views[v] = known
	}
	for num, one := range all {
		if had, ok := known[num]; ok {
			f.size -= len(had.Text) + entryOverhead
		}
		known[num] = one
		f.size += len(one.Text) + entryOverhead
	}
	for old, held := range f.views {
		for num, one := range held {
			if f.size <= maxCachedBytes {
				return
			}
			f.size -= len(one.Text) + entryOverhead
			delete(held, num)
		}
		if old != v {
			delete(f.views, old)
		}
	}
}

func (f *JSONCache[V, M]) drop(v V) {
	for _, one := range f.views[v] {
		f.size -= len(one.Text) + entryOverhead
	}
	delete(f.views, v)
}
