package agent

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"salvor/test/debian"
	"salvor/test/must"
	"salvor/wire/ironic"
)

// bootable is the smallest image that has a partition.
func bootable() []byte {
	b := make([]byte, 4<<20)
	copy(b[446:], []byte{0, 0, 0, 0, 0x83, 0, 0, 0, 0, 8, 0, 0, 0, 8, 0, 0})
	b[510], b[511], b[2<<20] = 0x55, 0xaa, 'x'
	return b
}

// TestIronicsClient lets the code by which a real Ironic speaks to agents, as Debian
// ships it, clean, deploy and rescue.
func TestIronicsClient(t *testing.T) {
	debian.File(t, "/usr/lib/python3/dist-packages/ironic", "python3-ironic")
	disk := bootable()
	sum := sha256.Sum256(disk)
	images := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(disk) }))
	defer images.Close()
	f := newIronic(t)
	a, root, _, _ := newAgent(t, f, "")
	hardware(t, root)
	sent := make(chan []byte, 1)
	var once sync.Once
	f.onHeartbeat = func(url string, heartbeat ironic.Heartbeat) {
		once.Do(func() {
			certificate := filepath.Join(t.TempDir(), "ca.pem")
			if err := os.WriteFile(certificate, []byte(heartbeat.AgentVerifyCA), 0o600); err != nil {
				t.Error(err)
			}
			script := exec.Command("/usr/bin/python3", "testdata/orders.py", url, testToken, certificate, images.URL, hex.EncodeToString(sum[:]), testNode, testHash)
			var stderr strings.Builder
			script.Stderr = &stderr
			out, err := script.Output()
			if err != nil {
				t.Errorf("%v (package python3-ironic): %s", err, stderr.String())
			}
			sent <- out
		})
	}
	must.OK(t, runAgent(t, a))
	var got struct {
		Clean        []string
		Erase, Write struct {
			Status string `json:"command_status"`
		}
		Wrong, Boot, Sync, Mismatch, Rescue string
		Token                               string
		UUIDs                               map[string]string
	}
	out := <-sent
	if err := json.Unmarshal(out, &got); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	const done = "SUCCEEDED"
	if got.Erase.Status != done || got.Write.Status != done || got.Boot != done || got.Sync != done || got.Rescue != done || got.UUIDs["root uuid"] == "" {
		t.Errorf("%s", out)
	}
	if strings.Join(got.Clean, " ") != "erase_devices erase_devices_express erase_devices_metadata" || got.Mismatch != "CLEAN_VERSION_MISMATCH" {
		t.Errorf("%s", out)
	}
	if !strings.Contains(got.Wrong, "expected 0000") || !strings.Contains(got.Token, "Token invalid") {
		t.Errorf("%s", out)
	}
	if b, err := os.ReadFile(filepath.Join(root, "dev/sda")); err != nil || b[2<<20] != 'x' || b[510] != 0x55 {
		t.Errorf("the image is not on the disk: %v", err)
	}
}
