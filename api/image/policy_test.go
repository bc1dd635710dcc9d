package image_test

import (
	"testing"

	"salvor/access"
	"salvor/api/image"
)

// TestPolicyFile: a policy file denies by Glance's names, and opens nothing of another project.
func TestPolicyFile(t *testing.T) {
	policy := access.Policy{Rules: &access.Rules{}}
	warnings, err := policy.Rules.Read(`"download_image": "role:keeper"`+"\n"+`"delete_image": "!"`+"\n"+`"get_image": "@"`+"\n", image.HasRule)
	if err != nil || len(warnings) > 0 || image.HasRule("fly_image") {
		t.Fatal(warnings, err)
	}
	w := newWorld(t, func(c *image.Config) { c.Policy = policy })
	id := w.create("p1", `{"name":"a","disk_format":"raw","container_format":"bare"}`)
	for _, tt := range []struct {
		who, method, path string
		want              int
	}{
		{"p1", "GET", "/v2/images/" + id + "/file", 403}, {"p1", "DELETE", "/v2/images/" + id, 403}, {"p1", "GET", "/v2/images/" + id, 200},
		{"p2", "GET", "/v2/images/" + id, 404}, {"admin", "DELETE", "/v2/images/" + id, 204},
	} {
		if a := w.ask(tt.who, tt.method, tt.path, "", ""); a.Status != tt.want {
			t.Errorf("%s: %s, want %d", tt.who, a, tt.want)
		}
	}
}

// TestAnImageOfNobodyIsNotThatOfWhoHasNoProject: a member of the system without a project may read an image without an owner, and
// may not change it.
func TestAnImageOfNobodyIsNotThatOfWhoHasNoProject(t *testing.T) {
	w := newWorld(t, nil)
	for _, visibility := range []string{"public", "private"} {
		id := w.create("admin", `{"name":"a","owner":null,"disk_format":"raw","container_format":"bare","visibility":"`+visibility+`"}`)
		before := w.show("system member", id)
		if before["owner"] != nil {
			t.Fatalf("it belongs to %v", before["owner"])
		}
		path := "/v2/images/" + id
		for _, tt := range []struct{ method, path, body, kind string }{
			{"PATCH", path, `[{"op":"replace","path":"/name","value":"b"}]`, "application/openstack-images-v2.1-json-patch"},
			{"PUT", path + "/file", "x", "application/octet-stream"},
			{"DELETE", path, "", ""},
		} {
			for _, requester := range []string{"system member", "p1"} {
				if a := w.ask(requester, tt.method, tt.path, tt.body, tt.kind); a.Status != 403 && a.Status != 404 {
					t.Errorf("%s: %s of a %s image: %s, want 403 or 404", requester, tt.method, visibility, a)
				}
			}
		}
		if after := w.show("admin", id); after["name"] != "a" || after["status"] != before["status"] {
			t.Errorf("changed: %v", after)
		}
	}
}
