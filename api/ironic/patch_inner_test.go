package ironic

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"salvor/test/must"
)

// TestPatchAtOnce: a patch that is worked off at once gives what its operations give one by one, and names the first that fails.
func TestPatchAtOnce(t *testing.T) {
	word := rapid.SampledFrom([]string{"a", "b", "0", "1", "-", "2"})
	value := rapid.SampledFrom([]string{`null`, `1`, `"x"`, `{}`, `[]`, `{"a": {"b": [1, 2]}}`, `[{"a": null}, 2]`, `{"a": null}`})
	decode := func(text string) (v any) {
		must.OK(t, json.Unmarshal([]byte(text), &v))
		return v
	}
	rapid.Check(t, func(r *rapid.T) {
		doc := []byte(fmt.Sprintf(`{"x": %s, "y": %s}`, value.Draw(r, "x"), value.Draw(r, "y")))
		var ops []patchOp
		for range rapid.IntRange(1, 6).Draw(r, "operations") {
			op := patchOp{Op: rapid.SampledFrom([]string{"add", "replace", "remove"}).Draw(r, "op"), Path: rapid.SampledFrom([]string{"/x", "/y"}).Draw(r, "attribute")}
			for range rapid.IntRange(0, 3).Draw(r, "depth") {
				op.Path += "/" + word.Draw(r, "word")
			}
			if op.Op != "remove" {
				op.Value = decode(value.Draw(r, "value"))
			}
			ops = append(ops, op)
		}
		one, failed := doc, -1
		for i := range ops {
			next, err := applyOps(one, ops[i:i+1])
			if err != nil {
				failed = i
				break
			}
			one = next
		}
		have, err := applyNamed(doc, ops)
		switch {
		case failed >= 0 && (err == nil || err.Error() != patchError(&ops[failed]).Error()):
			r.Fatalf("%s %+v: %v, want the failure of operation %d", doc, ops, err, failed)
		case failed < 0 && (err != nil || fmt.Sprint(decode(string(have))) != fmt.Sprint(decode(string(one)))):
			r.Fatalf("%s %+v: %s %v, want %s", doc, ops, have, err, one)
		}
	})
}

// TestPatchOfLargeRecord: as many operations as there may be, on a large object, cost a few times what one costs, the last of them failing or not.
func TestPatchOfLargeRecord(t *testing.T) {
	large := map[string]any{"big": strings.Repeat("x", 1<<19)}
	ops := make([]patchOp, maxPatchOps)
	for i := range ops {
		ops[i] = patchOp{Op: "add", Path: fmt.Sprint("/extra/", i), Value: "v"}
	}
	cost := func(ops []patchOp) (time.Duration, error) {
		start := time.Now()
		_, err := applyPatch(ops, func(string) any { return large })
		return time.Since(start), err
	}
	one := must.Get(cost(ops[:1]))(t)
	for _, last := range []string{"add", "remove"} {
		ops[maxPatchOps-1].Op = last
		all, err := cost(ops)
		for range 2 { // a stall is no cost
			again, _ := cost(ops)
			all = min(all, again)
		}
		if all > 100*one || (err == nil) != (last == "add") {
			t.Errorf("%s: %v where one operation takes %v; %v", last, all, one, err)
		}
	}
}
