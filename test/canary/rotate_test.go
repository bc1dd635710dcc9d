package canary

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"salvor/wire/native"
)

// TestRotationKilled changes the key of a store of a thousand secrets, and kills the server again and again meanwhile: what is left is
// sealed with the new key alone, every secret is still good, and the old key is in no file.
func TestRotationKilled(t *testing.T) {
	w := newWorld(t, false)
	const nodes = 300
	for i := range nodes {
		w.must("POST", "/v1/nodes", object{"name": fmt.Sprint("n", i), "driver": "redfish", "network_interface": "noop", "boot_interface": "redfish-virtual-media",
			"driver_info": object{"redfish_address": w.bmcURL, "redfish_username": "admin", "redfish_password": w.bird("metal.Node.DriverInfo")}}, nil)
	}
	var before, now native.Seal
	w.must("GET", "/salvor/v1/secrets", nil, &before)
	if len(before.Keys) != 1 || before.State != "steady" {
		t.Fatalf("at first: %+v", before)
	}
	old := before.Keys[0].ID
	w.must("POST", "/salvor/v1/secrets/rotate", nil, &now)
	if status, answer := w.send("admin", "POST", "/salvor/v1/secrets/rotate", nil); status != 409 {
		t.Errorf("a second change at the same time: %d %s", status, answer)
	}
	if status, _ := w.send("reader", "POST", "/salvor/v1/secrets/rotate", nil); status != 403 {
		t.Errorf("a reader changes the key: %d", status)
	}
	for kill := range 4 {
		time.Sleep(time.Duration(kill) * 70 * time.Millisecond) // whatever it is doing then
		w.server.Kill()
		w.server.Start(t)
	}
	w.until("the key is changed", func() bool {
		now = native.Seal{}
		w.must("GET", "/salvor/v1/secrets", nil, &now)
		return now.State == "steady" && len(now.Keys) == 2
	})
	for _, k := range now.Keys {
		if want := map[bool]string{true: "retired", false: "current"}[k.ID == old]; k.State != want {
			t.Errorf("key %s is %s, want %s", k.ID, k.State, want)
		}
	}
	w.until("the old key is forgotten", func() bool {
		text, err := os.ReadFile(filepath.Join(w.server.State, "secrets.key"))
		return err == nil && !bytes.Contains(text, []byte(old))
	})
	w.server.Stop()
	w.server.Start(t)
	w.verb("n7", "manage", nil)
	if n := w.node("n7"); n["provision_state"] != "manageable" {
		t.Errorf("the password of a BMC is not read back: %v", n["last_error"])
	}
	if log := w.server.Log(); strings.Contains(log, "wrong key") {
		t.Error("something could not be opened")
	}
}
