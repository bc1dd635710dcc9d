package ironic_test

import (
	"strings"
	"testing"

	"salvor/job"
)

// TestMisspeltKeys: a key that is nearly a known one is told in a header and in the history when it is set, once, and by validate. The value of
// a misspelt key of a secret is masked.
func TestMisspeltKeys(t *testing.T) {
	w := newWorld(t)
	n := w.node(nil)
	a := w.want(200, "PATCH", "/v1/nodes/"+n.ID, "1.82", `[{"op":"add","path":"/properties/memroy_mb","value":"1"},{"op":"add","path":"/driver_info/bmc_passwrd","value":"hush-hush"}]`)
	want := `299 salvor "properties has memroy_mb, which nothing reads; did you mean memory_mb?"`
	if got := a.Header.Values("Warning"); len(got) != 1 || got[0] != want {
		t.Errorf("headers %q, want %s", got, want)
	}
	if strings.Contains(a.Body, "hush-hush") || !strings.Contains(a.Body, `"bmc_passwrd": "******"`) && !strings.Contains(a.Body, `"bmc_passwrd":"******"`) {
		t.Errorf("the answer shows the secret of a misspelt key, or no mask: %s", a.Body)
	}
	w.want(200, "PATCH", "/v1/nodes/"+n.ID, "1.82", `[{"op":"add","path":"/extra/a","value":"b"}]`)
	told := 0
	events, err := w.store.Events(t.Context(), job.Node(n.ID), 0, 100)
	for _, e := range events {
		if strings.Contains(e.Text, "did you mean memory_mb?") && e.Severity == "warning" {
			told++
		}
	}
	if err != nil || told != 1 {
		t.Errorf("the history tells the key %d times, error %v; want once", told, err)
	}
	found, err := w.nodes.Validate(t.Context(), n.ID)
	if err != nil || !strings.Contains(found["deploy"].Reason, "did you mean memory_mb?") {
		t.Errorf("validate says %+v, %v; want a remark at deploy", found["deploy"], err)
	}
}
