package agent

import (
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"testing"

	"salvor/problem"
	"salvor/test/must"
	wire "salvor/wire/agent"
)

// What finalize leaves for the step after the network is for root's eyes only.
func TestVolumesWaitForTheNetwork(t *testing.T) {
	root := t.TempDir()
	must.OK(t, writeVolumes(root, nil))
	file := filepath.Join(root, volumesFile)
	if _, err := os.Stat(file); !os.IsNotExist(err) {
		t.Errorf("without volumes: %v", err)
	}
	want := []wire.Volume{{Initiator: "iqn.2026-01.x:m1", Target: "iqn.2026-01.x:v", Host: "192.0.2.1", Port: 3260, Username: "u", Password: "p"}}
	must.OK(t, writeVolumes(root, want))
	info, err := os.Stat(file)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Fatalf("%v: %v", info.Mode(), err)
	}
	text, err := os.ReadFile(file)
	var got []wire.Volume
	if err != nil || json.Unmarshal(text, &got) != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%s: %v", text, err)
	}
	if err := writeVolumes(root, make([]wire.Volume, maxAgentVolumes+1)); !problem.Is(err, problem.Invalid) {
		t.Error(err)
	}
}
