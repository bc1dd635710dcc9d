package api

import (
	"fmt"
	"strings"
	"testing"
)

type testView struct {
	host       string
	generation int
}

type testMark struct{ num, version int64 }

// TestJSONCacheIsBounded: many hosts, many shapes and a fleet larger than the room take no more than they may, and the count of bytes is true.
func TestJSONCacheIsBounded(t *testing.T) {
	f := JSONCache[testView, testMark]{
		Num:      func(m testMark) int64 { return m.num },
		Outdated: func(old, now testView) bool { return old.generation != now.generation },
	}
	text := strings.Repeat("x", 10_000)
	count := func() (size int) {
		for _, held := range f.views {
			for _, one := range held {
				size += len(one.Text) + entryOverhead
			}
		}
		return size
	}
	for i := range 200 {
		all := map[int64]CachedJSON[testMark]{}
		for num := range int64(100) {
			n := int64(i%40)*100 + num
			all[n] = CachedJSON[testMark]{testMark{n, int64(i)}, text}
		}
		f.store(testView{fmt.Sprint(i % 25), i / 150}, all)
		if f.size != count() || f.size > maxCachedBytes || len(f.views) > maxViews {
			t.Fatalf("round %d: %d bytes told, %d there, at most %d; %d views", i, f.size, count(), maxCachedBytes, len(f.views))
		}
	}
	for v := range f.views {
		if v.generation != 1 {
			t.Errorf("an outdated view is kept: %+v", v)
		}
	}
}

// TestJSONCacheOfRemovedRecords: a record that is not there any more has no text, and its neighbours have theirs.
func TestJSONCacheOfRemovedRecords(t *testing.T) {
	f := JSONCache[testView, testMark]{Num: func(m testMark) int64 { return m.num }}
	texts, err := f.Render(testView{}, []testMark{{1, 1}, {2, 1}}, func(nums []int64) (map[int64]CachedJSON[testMark], error) {
		if len(nums) != 2 {
			t.Errorf("%v", nums)
		}
		return map[int64]CachedJSON[testMark]{2: {testMark{2, 1}, "two"}}, nil
	})
	if err != nil || texts[0] != "" || texts[1] != "two" {
		t.Errorf("%q, %v", texts, err)
	}
}
