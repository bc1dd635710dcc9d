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
// salvor's: from power on to a login with the rescue password.
func TestBoot(t *testing.T) {
	for tool, of := range map[string]string{"qemu-system-x86_64": "qemu-system-x86", "sshpass": "sshpass", "ssh": "openssh-client"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Fatalf("%s is missing: install %s", tool, of)
		}
	}
	dir := ramdiskDir(t)
	f := newIronic(t)
	agentPort, sshPort := freePort(t), freePort(t)
	begun := time.Now()
	finalized := make(chan time.Duration, 1)
	f.onHeartbeat = func(_ string, heartbeat ironic.Heartbeat) {
		status, result := guestCommand(t, agentPort, heartbeat.AgentVerifyCA)
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
	if strings.Contains(console(), testToken) || strings.Contains(console(), testHash) {
		t.Error("the console shows a secret")
	}
	t.Log(console())
}

// guestCommand sends finalize through the forwarded port; the certificate is for the
// guest's own address.
func guestCommand(t *testing.T, port int, ca string) (int, map[string]any) {
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM([]byte(ca))
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool, ServerName: "10.0.2.15"}}
	defer transport.CloseIdleConnections()
	body := fmt.Sprintf(`{"name":"rescue.finalize_rescue","params":{"rescue_password":%q,"hashed":true,"salvor":{"tenant_move":false}}}`, testHash)
	url := fmt.Sprintf("https://127.0.0.1:%d/v1/commands/?wait=true&agent_token=%s", port, testToken)
	answer, err := (&http.Client{Transport: transport, Timeout: 20 * time.Second}).Post(url, "application/json", strings.NewReader(body))
	if err != nil {
		t.Errorf("finalize: %v", err)
		return 0, nil
	}
	defer answer.Body.Close()
	var result map[string]any
	_ = json.NewDecoder(answer.Body).Decode(&result)
	return answer.StatusCode, result
}

func login(t *testing.T, port int, password string) (string, error) {
	ctx, cancel := context.WithTimeout(t.Context(), 15*time.Second)
	defer cancel()
	ssh := exec.CommandContext(ctx, "sshpass", "-e", "ssh", "-p", fmt.Sprint(port), "-o", "StrictHostKeyChecking=no", "-o", "UserKnownHostsFile=/dev/null",
		"-o", "LogLevel=ERROR", "-o", "NumberOfPasswordPrompts=1", "-o", "ConnectTimeout=5", "rescue@127.0.0.1", "id")
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
