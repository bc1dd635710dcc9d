package nova_test

import (
	"net/http/httptest"
	"os/exec"
	"testing"

	"salvor/compute"
	"salvor/record"
	"salvor/test/debian"
	"salvor/test/must"
)

// TestTempestSchemas holds the answers at each microversion that changed one to the schemas of OpenStack's own test suite.
func TestTempestSchemas(t *testing.T) {
	debian.File(t, "/usr/lib/python3/dist-packages/tempest", "tempest")
	c := newCloud(t)
	c.as(boss)
	server := httptest.NewServer(c.handler)
	t.Cleanup(server.Close)
	versions := []string{"2.1", "2.3", "2.9", "2.11", "2.16", "2.19", "2.26", "2.36", "2.47", "2.53", "2.58", "2.63", "2.71", "2.73", "2.75", "2.79", "2.88"}
	v := &compute.Volume{Name: "data", SizeGiB: 1, Status: compute.VolumeAvailable, Portal: "192.0.2.7:3260", IQN: "iqn.2026-01.example:data", LUN: 1}
	must.OK(t, c.services.Volumes.Create(t.Context(), v, record.Asker{}))
	cmd := exec.CommandContext(t.Context(), "/usr/bin/python3", append([]string{"-W", "ignore", "testdata/schemas.py", server.URL + "/compute/v2.1", imageOne, v.ID}, versions...)...)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v (it takes Debian's package tempest)\n%s", err, out)
	}
}
