package agent

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"salvor/agent/examine"
	"salvor/diagnose"
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
		if got.Error != "" || got.Fingerprint != "SHA256:abc" || got.HostKey != "ssh-ed25519 AAAA rescue" || got.Agent != "salvor-agent/1" || strings.Count(string(shadow), hash) != 2 {
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

// A host that asks for an examination hears at once that it has begun, and gets its findings. Nothing is opened by that.
func TestExamineOverTheChannel(t *testing.T) {
	root := ramdisk(t)
	must.OK(t, os.MkdirAll(filepath.Join(root, "run/salvor"), 0o755))
	host, guest := net.Pipe()
	now := time.Date(2026, 11, 26, 9, 0, 0, 0, time.UTC)
	asked := make(chan examine.Request, 1)
	u := &Unlock{Root: root, Version: "1", Log: slog.New(slog.DiscardHandler), Port: func() (io.ReadWriteCloser, error) { return guest, nil }}
	u.Examiner = func(_ context.Context, r examine.Request) (*diagnose.Examination, error) {
		r.Keys, r.KeysByUUID = []examine.Key{bytes.Clone(r.Keys[0])}, map[string][]examine.Key{"0dd1e5c4": {bytes.Clone(r.KeysByUUID["0dd1e5c4"][0])}}
		asked <- r
		return &diagnose.Examination{Seconds: 2}, nil
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- u.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		host.Close()
		must.OK(t, <-ended)
	})
	answers := bufio.NewReader(host)
	hear := func() wire.Unlocked {
		var got wire.Unlocked
		must.OK(t, json.Unmarshal(must.Get(answers.ReadBytes('\n'))(t), &got))
		return got
	}
	order := wire.Unlock{Version: wire.ChannelVersion, Examine: &wire.ExamineParams{Now: now, NetworkData: json.RawMessage(`{"links":[]}`),
		LUKSKeys: [][]byte{[]byte("open sesame")}, LUKSKeysByUUID: map[string][][]byte{"0dd1e5c4": {[]byte("barley")}}}}
	must.Get(host.Write(append(must.Get(json.Marshal(order))(t), '\n')))(t)
	if first := hear(); !first.Examining || first.Examination != nil || first.Error != "" {
		t.Errorf("the first answer is %+v", first)
	}
	r := <-asked
	if !r.Now.Equal(now) || string(r.NetworkData) != `{"links":[]}` || len(r.Rules) == 0 {
		t.Errorf("asked with %d rules, %v, %s", len(r.Rules), r.Now, r.NetworkData)
	}
	if string(r.Keys[0]) != "open sesame" || string(r.KeysByUUID["0dd1e5c4"][0]) != "barley" {
		t.Errorf("the keys are %d and %d", len(r.Keys), len(r.KeysByUUID))
	}
	var found diagnose.Examination
	if last := hear(); last.Error != "" || json.Unmarshal(last.Examination, &found) != nil || found.Seconds != 2 || last.Fingerprint != "" {
		t.Errorf("the last answer is %+v", last)
	}
	if _, err := os.Stat(filepath.Join(root, unlockedFile)); err == nil {
		t.Error("an examination has opened the rescue system")
	}
	many := wire.Unlock{Version: wire.ChannelVersion, Examine: &wire.ExamineParams{LUKSKeys: make([][]byte, diagnose.MaxLUKSKeys+1)}}
	must.Get(host.Write(append(must.Get(json.Marshal(many))(t), '\n')))(t)
	hear()
	if last := hear(); !strings.Contains(last.Error, "LUKS keys; at most") {
		t.Errorf("too many keys are answered by %+v", last)
	}
	u.Examiner = nil // outside of a ramdisk the real one refuses
	must.Get(host.Write(append(must.Get(json.Marshal(order))(t), '\n')))(t)
	hear()
	if last := hear(); !strings.Contains(last.Error, "not in a ramdisk") {
		t.Errorf("outside of a ramdisk it is answered by %+v", last)
	}
}
