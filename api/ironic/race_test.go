package ironic_test

import (
	"fmt"
	"sync"
	"testing"

	"salvor/metal"
)

// TestManyAtOnce patches, reads and asks for verbs at once: each request is done or is a
// conflict, one verb of many wins, and no patch that was answered with 200 is lost.
func TestManyAtOnce(t *testing.T) {
	w := newWorld(t)
	w.node(func(n *metal.Node) { n.ProvisionState = metal.Enroll })
	var wg sync.WaitGroup
	var mu sync.Mutex
	kept, accepted := map[string]bool{}, 0
	for i := range 8 {
		wg.Go(func() {
			for k := range 5 {
				key := fmt.Sprintf("k%d-%d", i, k)
				switch a := w.ask("PATCH", "/v1/nodes/n1", "1.82", fmt.Sprintf(`[{"op":"add","path":"/extra/%s","value":1}]`, key)); a.Status {
				case 200:
					mu.Lock()
					kept[key] = true
					mu.Unlock()
				case 409:
				default:
					t.Errorf("patch: %d %s", a.Status, a.Body)
				}
				if a := w.ask("GET", "/v1/nodes/detail", "1.82", ""); a.Status != 200 {
					t.Errorf("list: %d %s", a.Status, a.Body)
				}
			}
		})
	}
	wg.Wait()
	for range 8 {
		wg.Go(func() {
			switch a := w.ask("PUT", "/v1/nodes/n1/states/provision", "1.82", `{"target":"manage"}`); a.Status {
			case 202:
				mu.Lock()
				accepted++
				mu.Unlock()
			case 409, 400:
			default:
				t.Errorf("manage: %d %s", a.Status, a.Body)
			}
		})
	}
	wg.Wait()
	extra := w.want(200, "GET", "/v1/nodes/n1", "1.82", "").Object(t)["extra"].(map[string]any)
	for key := range kept {
		if extra[key] == nil {
			t.Errorf("%s is lost", key)
		}
	}
	if accepted != 1 || len(kept) == 0 {
		t.Errorf("%d verbs accepted, %d patches", accepted, len(kept))
	}
}
