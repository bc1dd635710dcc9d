//go:build e2e

package agent

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	image "salvor/boot/ramdisk"
	"salvor/test/must"
	"salvor/wire/ironic"
)

// built is the ramdisk under test; one build serves all tests.
var built = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "salvor-agent-test-")
	if err != nil {
		return "", err
	}
	program := filepath.Join(dir, "salvor-agent")
	build := exec.Command("go", "build", "-trimpath", "-ldflags", "-s -w", "-o", program, "salvor/cmd/salvor-agent")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		return dir, fmt.Errorf("go build: %w: %s", err, out)
	}
	_, err = image.Build(context.Background(), image.Options{Out: dir, Agent: program})
	return dir, err
})

func TestMain(m *testing.M) {
	code := m.Run()
	if dir, _ := built(); dir != "" {
		os.RemoveAll(dir)
	}
	os.Exit(code)
}

func ramdiskDir(t *testing.T) string {
	t.Helper()
	dir := must.Get(built())(t)
	return dir
}

// TestBoot rescues a machine with the real ramdisk under a server that is not
// salvor's: from power on to a login with the rescue password, and by a key, where the host key that the agent showed answers.
func TestBoot(t *testing.T) {
	for tool, of := range map[string]string{"qemu-system-x86_64": "qemu-system-x86", "sshpass": "sshpass", "ssh": "openssh-client", "ssh-keygen": "openssh-client"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Fatalf("%s is missing: install %s", tool, of)
		}
	}
	dir := ramdiskDir(t)
	f := newIronic(t)
	agentPort, sshPort := freePort(t), freePort(t)
	begun := time.Now()
	finalized := make(chan time.Duration, 1)
	keys := t.TempDir()
	out, err := exec.Command("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", filepath.Join(keys, "id")).CombinedOutput()
	if err != nil {
		t.Fatalf("ssh-keygen: %v: %s", err, out)
	}
	public := strings.TrimSpace(string(must.Get(os.ReadFile(filepath.Join(keys, "id.pub")))(t)))
	f.onHeartbeat = func(_ string, heartbeat ironic.Heartbeat) {
		status, result := guestCommand(t, agentPort, heartbeat.AgentVerifyCA, "rescue.get_ssh_host_key", "{}")
		shown, _ := result["command_result"].(map[string]any)
		hostKey, _ := shown["public_key"].(string)
		if status != http.StatusOK || !strings.HasPrefix(hostKey, "ssh-ed25519 ") {
			t.Errorf("the ssh host key: %d %v", status, result)
		}
		if err := os.WriteFile(filepath.Join(keys, "known_hosts"), []byte("guest "+hostKey+"\n"), 0o600); err != nil {
			t.Error(err)
		}
		params := fmt.Sprintf(`{"rescue_password":%q,"hashed":true,"salvor":{"tenant_move":false,"authorized_keys":[%q]}}`, testHash, public)
		status, result = guestCommand(t, agentPort, heartbeat.AgentVerifyCA, "rescue.finalize_rescue", params)
		if status != http.StatusOK || result["command_status"] != "SUCCEEDED" {
			t.Errorf("finalize: %d %v", status, result)
		}
		finalized <- time.Since(begun)
	}
	_, port, err := net.SplitHostPort(strings.TrimPrefix(f.server.URL, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	console := bootGuest(t, dir, "http://10.0.2.2:"+port, agentPort, sshPort)
	select {
	case at := <-finalized:
		t.Logf("finalized %v after power on", at.Round(10*time.Millisecond))
	case <-time.After(2 * time.Minute):
		t.Fatalf("no heartbeat; console:\n%s", console())
	}
	deadline := time.Now().Add(time.Minute)
	for {
		out, err := login(t, sshPort, "open sesame")
		if err == nil && strings.Contains(out, "uid=") {
			t.Logf("logged in %v after power on: %s", time.Since(begun).Round(10*time.Millisecond), strings.TrimSpace(out))
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("no login: %v: %s; console:\n%s", err, out, console())
		}
		time.Sleep(100 * time.Millisecond)
	}
	if out, err := login(t, sshPort, "open barley"); err == nil {
		t.Errorf("a wrong password logs in: %s", out)
	}
	for _, user := range []string{"rescue", "root"} {
		if out, err := keyLogin(t, sshPort, keys, user); err != nil || !strings.Contains(out, "uid=0") {
			t.Errorf("by key, as %s, with the host key that the agent showed: %v: %s", user, err, out)
		}
	}
	must.OK(t, os.WriteFile(filepath.Join(keys, "known_hosts"), []byte("guest "+public+"\n"), 0o600))
	if out, err := keyLogin(t, sshPort, keys, "rescue"); err == nil {
		t.Errorf("another host key is accepted: %s", out)
	}
	if strings.Contains(console(), testToken) || strings.Contains(console(), testHash) {
		t.Error("the console shows a secret")
	}
	t.Log(console())
}

// keyLogin logs in by the key in a directory, and accepts only the host key in its file of known hosts.
func keyLogin(t *testing.T, port int, keys, user string) (string, error) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	out, err := exec.CommandContext(ctx, "ssh", "-F", "none", "-p", fmt.Sprint(port), "-i", filepath.Join(keys, "id"), "-o", "BatchMode=yes", "-o", "StrictHostKeyChecking=yes", "-o", "HostKeyAlias=guest",
		"-o", "UserKnownHostsFile="+filepath.Join(keys, "known_hosts"), "-o", "GlobalKnownHostsFile=/dev/null", "-o", "LogLevel=ERROR", "-o", "ConnectTimeout=30", user+"@127.0.0.1", "id").CombinedOutput()
	return string(out), err
}

// guestCommand sends a command through the forwarded port; the certificate is for the
// guest's own address.
func guestCommand(t *testing.T, port int, ca, name, params string) (int, map[string]any) {
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM([]byte(ca))
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool, ServerName: "10.0.2.15"}}
	defer transport.CloseIdleConnections()
	body := fmt.Sprintf(`{"name":%q,"params":%s}`, name, params)
	url := fmt.Sprintf("https://127.0.0.1:%d/v1/commands/?wait=true&agent_token=%s", port, testToken)
	answer, err := (&http.Client{Transport: transport, Timeout: 20 * time.Second}).Post(url, "application/json", strings.NewReader(body))
	if err != nil {
		t.Errorf("%s: %v", name, err)
		return 0, nil
	}
	defer answer.Body.Close()
	var result map[string]any
	_ = json.NewDecoder(answer.Body).Decode(&result)
	return answer.StatusCode, result
}

func login(t *testing.T, port int, password string) (string, error) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	ssh := exec.CommandContext(ctx, "sshpass", "-e", "ssh", "-p", fmt.Sprint(port), "-o", "StrictHostKeyChecking=no", "-o", "UserKnownHostsFile=/dev/null",
		"-o", "LogLevel=ERROR", "-o", "NumberOfPasswordPrompts=1", "-o", "ConnectTimeout=30", "rescue@127.0.0.1", "id")
	ssh.Env = append(os.Environ(), "SSHPASS="+password)
	out, err := ssh.CombinedOutput()
	return string(out), err
}

func freePort(t *testing.T) int {
	l := must.Get(net.Listen("tcp", "127.0.0.1:0"))(t)
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port
}

// console collects what a guest says.
type console struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (c *console) Write(b []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.text.Write(b)
}

func bootGuest(t *testing.T, dir, api string, agentPort, sshPort int) func() string {
	t.Helper()
	output := &console{}
	qemu := exec.Command("qemu-system-x86_64", "-machine", "q35,accel=tcg", "-cpu", "max", "-m", "512", "-nodefaults", "-display", "none", "-no-reboot", "-serial", "stdio",
		"-kernel", filepath.Join(dir, image.FileKernel), "-initrd", filepath.Join(dir, image.FileInitramfs),
		"-append", "console=ttyS0 quiet panic=-1 ipa-api-url="+api,
		"-netdev", fmt.Sprintf("user,id=n0,hostfwd=tcp:127.0.0.1:%d-:9999,hostfwd=tcp:127.0.0.1:%d-:22", agentPort, sshPort),
		"-device", "virtio-net-pci,netdev=n0,mac="+testMAC+",romfile=")
	qemu.Stdout, qemu.Stderr = output, output
	must.OK(t, qemu.Start())
	t.Cleanup(func() { _ = qemu.Process.Kill(); _ = qemu.Wait() })
	return func() string {
		output.mu.Lock()
		defer output.mu.Unlock()
		return output.text.String()
	}
}
