//go:build e2e

// Package interop proves that salvor's programs work with the programs of others: the agent under a real Ironic, the server under Ironic's
// own client.
package interop

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-crypt/crypt"
	"github.com/go-crypt/crypt/algorithm/shacrypt"

	"salvor/test/must"
	"salvor/test/program"
	"salvor/wire/ironic"
)

const (
	mac       = "52:54:00:5a:17:0e"
	oldShadow = "root:*:19000:0:99999:7:::\nrescue:!:0:0:99999:7:::\nnobody:*:19000:0:99999:7:::\n"
)

// TestAgentUnderIronic rescues a machine of Debian's Ironic with salvor's agent in its ramdisk,
// twice: once with an agent that comes when it is awaited, once, by salvor's own command, with one
// that is there before.
func TestAgentUnderIronic(t *testing.T) {
	s := startIronic(t)
	node := s.adopted(mac)

	s.provision(node.UUID, ironic.ProvisionRequest{Target: "rescue", RescuePassword: "open sesame"}, "rescue wait")
	line := s.commandLine(mac)
	first := startRamdisk(t, line)
	first.handedOver("open sesame")
	rescued := s.reach(node.UUID, "rescue")
	told, _ := rescued.Record["driver_internal_info"].(map[string]any)
	if version, _ := told["agent_version"].(string); !strings.HasPrefix(version, "salvor-agent/") {
		t.Errorf("Ironic recorded agent_version %v", told["agent_version"])
	}
	if url, _ := told["agent_url"].(string); !strings.HasPrefix(url, "https://127.0.0.1:") {
		t.Errorf("Ironic recorded agent_url %v", told["agent_url"])
	}
	if kept := rescued.InstanceInfo["rescue_password"]; kept != nil {
		t.Errorf("the password is left in instance_info: %v", kept)
	}
	s.provision(node.UUID, ironic.ProvisionRequest{Target: "unrescue"}, "active")

	second := startRamdisk(t, line)
	second.says("lookup failed")
	s.salvor("another one", "node", "rescue", node.UUID, "--rescue-password-file", "-", "--wait=60")
	second.handedOver("another one")
	s.salvor("", "node", "unrescue", node.UUID, "--wait=60")
	var shown map[string]any
	if out := s.salvor("", "node", "show", node.UUID, "-f", "json"); json.Unmarshal([]byte(out), &shown) != nil || shown["provision_state"] != "active" {
		t.Errorf("salvor node show: %s", out)
	}
	if out := s.salvor("", "node", "validate", node.UUID); !strings.Contains(out, "rescue") {
		t.Errorf("salvor node validate: %s", out)
	}
}

// salvor runs salvor's command on the real Ironic.
func (s *realIronic) salvor(input string, args ...string) string {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, program.Path(s.t, "salvor"), args...)
	cmd.Env = append(os.Environ(), "SALVOR_URL="+s.api.Endpoint(), "no_proxy=*")
	cmd.Stdin = strings.NewReader(input + "\n")
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil {
		s.t.Fatalf("salvor %s: %v\n%s%s", strings.Join(args, " "), err, out.String(), errs.String())
	}
	if input != "" && strings.Contains(out.String()+errs.String(), input) {
		s.t.Errorf("salvor %s tells the password", strings.Join(args, " "))
	}
	return out.String()
}

// ramdisk is the agent at work on a directory that stands for the ramdisk's root.
type ramdisk struct {
	t     *testing.T
	root  string
	log   program.Buffer
	ended chan error
}

func startRamdisk(t *testing.T, commandLine string) *ramdisk {
	t.Helper()
	r := &ramdisk{t: t, root: t.TempDir(), ended: make(chan error, 1)}
	line := filepath.Join(t.TempDir(), "cmdline")
	must.OK(t, os.Mkdir(filepath.Join(r.root, "etc"), 0o755))
	for name, text := range map[string]string{filepath.Join(r.root, "etc", "shadow"): oldShadow, line: commandLine} {
		must.OK(t, os.WriteFile(name, []byte(text), 0o600))
	}
	ctx, cancel := context.WithCancel(context.Background())
	cmd := exec.CommandContext(ctx, program.Path(t, "salvor-agent"), "run",
		"--root", r.root, "--cmdline", line, "--listen", "127.0.0.1:0", "--mac", mac, "--debug")
	cmd.Stdout, cmd.Stderr = &r.log, &r.log
	must.OK(t, cmd.Start())
	gone := make(chan struct{})
	go func() {
		r.ended <- cmd.Wait()
		close(gone)
	}()
	t.Cleanup(func() {
		cancel()
		<-gone
		if t.Failed() {
			t.Logf("the agent's log:\n%s", r.log.String())
		}
	})
	return r
}

// says waits until the agent has logged a text.
func (r *ramdisk) says(text string) {
	r.t.Helper()
	for end := time.Now().Add(patience); !strings.Contains(r.log.String(), text); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			r.t.Fatalf("the agent does not say %q", text)
		}
	}
}

// handedOver waits until the agent has done its work: its process ended well, and the
// password opens the account of the rescue user and no other.
func (r *ramdisk) handedOver(password string) {
	r.t.Helper()
	select {
	case err := <-r.ended:
		if err != nil {
			r.t.Fatalf("the agent ended: %v", err)
		}
	case <-time.After(patience):
		r.t.Fatal("the agent does not end")
	}
	text := must.Get(os.ReadFile(filepath.Join(r.root, "etc", "shadow")))(r.t)
	hash := ""
	for line := range strings.Lines(string(text)) {
		fields := strings.Split(strings.TrimSpace(line), ":")
		switch {
		case fields[0] == "rescue":
			hash = fields[1]
		case !strings.Contains(oldShadow, line):
			r.t.Errorf("another account was changed: %s", line)
		}
	}
	if !opens(r.t, password, hash) || opens(r.t, password+" ", hash) {
		r.t.Errorf("the hash in the shadow file, %s, is not that of the password", hash)
	}
	if log := r.log.String(); strings.Contains(log, hash) || strings.Contains(log, password) {
		r.t.Error("the agent's log tells the password or its hash")
	}
}

// opens tells whether a password fits a crypt(3) hash.
func opens(t *testing.T, password, hash string) bool {
	t.Helper()
	decoder := crypt.NewDecoder()
	must.OK(t, shacrypt.RegisterDecoder(decoder))
	digest, err := decoder.Decode(hash)
	if err != nil {
		t.Fatalf("%q: %v", hash, err)
	}
	return digest.Match(password)
}
