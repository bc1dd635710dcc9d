package ironic

import (
	"bytes"
	"encoding/json"
	"testing"
	"time"
)

// FuzzAppendAny proves that values are written by hand as encoding/json writes them.
func FuzzAppendAny(f *testing.F) {
	for _, s := range []string{`null`, `{"b":1,"a":[true,false,null,"x"]}`, `[1.5,-0,0,1e15,1e21,123456789012345,-1e-7,0.1]`, `"<a>&\"\\\u2028é\u0001\n"`, `{"":{"":[]}}`, `{"a\"b":1}`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		var v any
		if json.Unmarshal(b, &v) != nil {
			t.Skip()
		}
		want, err := json.Marshal(v)
		if err != nil {
			t.Skip()
		}
		if got := appendAny(nil, v); !bytes.Equal(got, want) {
			t.Fatalf("got %s, want %s", got, want)
		}
	})
}

func TestEventID(t *testing.T) {
	const node, other = "11111111-2222-4333-8444-555555555555", "21111111-2222-4333-8444-555555555555"
	seen := map[string]bool{}
	for _, seq := range []int64{1, 2, 255, 256, 1 << 20, 1 << 40} {
		id := eventID(node, seq)
		if got, ok := eventSeq(node, id); !ok || got != seq || seen[id] {
			t.Errorf("%d: %s gives %d, %v", seq, id, got, ok)
		}
		if _, ok := eventSeq(other, id); ok {
			t.Errorf("%s is taken for another node's", id)
		}
		seen[id] = true
	}
}

func TestAppendTime(t *testing.T) {
	at := time.Date(2026, 3, 4, 6, 6, 7, 9, time.FixedZone("", 3600))
	if got := string(appendTime(nil, at)); got != `"2026-03-04T05:06:07+00:00"` {
		t.Error(got)
	}
	if got := string(appendTime(nil, time.Time{})); got != "null" {
		t.Error(got)
	}
}
