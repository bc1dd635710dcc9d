package agent

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"salvor/test/must"
	wire "salvor/wire/agent"
)

// channel runs an Unlock on a ramdisk whose ssh serves already, and gives the host's end of its port.
func channel(t *testing.T) (root string, host net.Conn) {
	t.Helper()
	root = ramdisk(t)
	for _, dir := range []string{"run/salvor", "root", "home/rescue"} {
		must.OK(t, os.MkdirAll(filepath.Join(root, dir), 0o755))
	}
	for name, text := range map[string]string{servingFile: "", sshKeyFile: "Public key portion is:\nssh-ed25519 AAAA rescue\nFingerprint: SHA256:abc\n"} {
		must.OK(t, os.WriteFile(filepath.Join(root, name), []byte(text), 0o600))
	}
	host, guest := net.Pipe()
	ctx, stop := context.WithCancel(context.Background())
	u := &Unlock{Root: root, Version: "1", Log: slog.New(slog.DiscardHandler), Port: func() (io.ReadWriteCloser, error) { return guest, nil }}
	ended := make(chan error, 1)
	go func() { ended <- u.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		host.Close()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return root, host
}

func TestUnlock(t *testing.T) {
	const hash = "$5$saltsalt$Arv3XkXcPR5LHLrzVCBdKV5hwRocYIyFvUvGa9tbc06"
	root, host := channel(t)
	answers := bufio.NewReader(host)
	for _, c := range []struct{ name, line, says string }{
		{"rubbish", "hello", "no JSON"},
		{"another version", `{"version":9,"hash":"` + hash + `"}`, "version 9"},
		{"nothing in it", `{"version":1}`, "neither a hash nor a key"},
		{"a line for shadow", `{"version":1,"hash":"x:0:0"}`, "no sha256 or sha512"},
		{"two keys in one", `{"version":1,"keys":["ssh-ed25519 A\nssh-ed25519 B"]}`, "no line of the form"},
		{"network data that is none", `{"version":1,"hash":"` + hash + `","network_data":{"links":3}}`, "network"},
		{"a credential", `{"version":1,"hash":"` + hash + `","keys":["ssh-ed25519 AAAA me"]}`, ""},
		{"the same again", `{"version":1,"hash":"` + hash + `","keys":["ssh-ed25519 AAAA me"]}`, ""},
	} {
		must.Get(io.WriteString(host, c.line+"\n"))(t)
		text := must.Get(answers.ReadBytes('\n'))(t)
		var got wire.Unlocked
		must.OK(t, json.Unmarshal(text, &got))
		shadow := must.Get(os.ReadFile(filepath.Join(root, "etc/shadow")))(t)
		if got.Retry != (c.name == "rubbish") {
			t.Errorf("%s: answered %+v", c.name, got)
		}
		if c.says != "" {
			if !strings.Contains(got.Error, c.says) || got.Fingerprint != "" || string(shadow) != testShadow {
				t.Errorf("%s: answered %+v, shadow:\n%s", c.name, got, shadow)
			}
			continue
		}
		if got.Error != "" || got.Fingerprint != "SHA256:abc" || got.Agent != "salvor-agent/1" || strings.Count(string(shadow), hash) != 2 {
			t.Errorf("%s: answered %+v, shadow:\n%s", c.name, got, shadow)
		}
		for _, home := range []string{"root", "home/rescue"} {
			if keys, err := os.ReadFile(filepath.Join(root, home, ".ssh/authorized_keys")); err != nil || string(keys) != "ssh-ed25519 AAAA me\n" {
				t.Errorf("%s: the keys of %s: %q, %v", c.name, home, keys, err)
			}
		}
	}
}

// A line without an end is refused before it fills the memory.
func TestUnlockBoundsALine(t *testing.T) {
	u := &Unlock{Log: slog.New(slog.DiscardHandler)}
	err := u.serve(t.Context(), struct {
		io.Reader
		io.Writer
	}{strings.NewReader(strings.Repeat("x", 2*maxUnlock)), io.Discard})
	if err == nil || !strings.Contains(err.Error(), "longer than") {
		t.Errorf("an endless line: %v", err)
	}
}
