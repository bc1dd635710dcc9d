package loose

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
)

// countOf counts a decoded value with all that it holds.
func countOf(v any) int {
	count := 1
	switch v := v.(type) {
	case []any:
		for _, e := range v {
			count += countOf(e)
		}
	case map[string]any:
		for _, e := range v {
			count += countOf(e)
		}
	}
	return count
}

// TestCountValues: the count is that of encoding/json, without a decoded value, and stops behind the bound.
func TestCountValues(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		`{}`, `[]`, `[[],[]]`, `{"a":[1,-2.5e3,null,true,"x,y:[{"],"b":{"c":"\"}"}}`, `7`, `"a:b"`, `[{"a":1},{"b":[{}]}]`, " [ 1 , 2 ]\n", `{"a":{"a":{"a":[]}}}`,
	} {
		var value any
		if err := json.Unmarshal([]byte(text), &value); err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		if got, want := CountValues([]byte(text), MaxValues), countOf(value); got != want {
			t.Errorf("CountValues(%s): want %d, got %d", text, want, got)
		}
		for size := 1; size <= 3; size++ {
			var c ValueCounter
			got := 0
			for piece := range slices.Chunk([]byte(text), size) {
				got = c.Add(piece, MaxValues)
			}
			if want := countOf(value); got != want {
				t.Errorf("%s in pieces of %d bytes: want %d values, got %d", text, size, want, got)
			}
		}
	}
	bomb := []byte(`{"a":[` + strings.Repeat("[],", 8<<20) + `[]]}`)
	if got := CountValues(bomb, 1000); got != 1001 {
		t.Errorf("a bomb of 8 million lists, bound 1000: want 1001, got %d", got)
	}
	for _, text := range []string{"", `"`, `"\`, `{"a`, "::::", "\x00\xff", `[1,`} {
		CountValues([]byte(text), 10) // must not panic
	}
}
