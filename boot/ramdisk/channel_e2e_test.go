//go:build e2e

package ramdisk

import (
	"bufio"
	"encoding/json"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"salvor/test/must"
	"salvor/wire/agent"
)

// mellonHash is the sha256 crypt of "mellon".
const mellonHash = "$5$saltsalt$p0aPwz6GKH/rIYBmOcnDjvzzjp79LesjqovH6ZWPWw5"

// TestRescueOverAChannel boots a virtual machine that nobody can reach but by its
// virtio-serial port: what comes over it opens ssh, and the fingerprint goes back.
func TestRescueOverAChannel(t *testing.T) {
	c := newController(t, products(t), openImage(t, FileISO))
	socket := filepath.Join(t.TempDir(), "channel")
	began := time.Now()
	m := boot(t, c, bootCase{args: func(_ *testing.T, c *controller) []string {
		return []string{"-kernel", filepath.Join(c.dir, FileKernel), "-initrd", filepath.Join(c.dir, FileInitramfs), "-append", "console=ttyS0 " + agent.ChannelWord,
			"-device", "virtio-serial-pci", "-chardev", "socket,id=channel,server=on,wait=off,path=" + socket,
			"-device", "virtserialport,chardev=channel,name=" + agent.ChannelName}
	}})
	ask := func(order agent.Unlock) agent.Unlocked {
		t.Helper()
		var port net.Conn
		var err error
		for limit := time.Now().Add(bootLimit); ; time.Sleep(20 * time.Millisecond) {
			if port, err = net.Dial("unix", socket); err == nil {
				break
			}
			if time.Now().After(limit) {
				t.Fatal(err)
			}
		}
		defer port.Close()
		must.OK(t, port.SetDeadline(time.Now().Add(bootLimit)))
		line, err := json.Marshal(order)
		if err != nil {
			t.Fatal(err)
		}
		must.Get(port.Write(append(line, '\n')))(t)
		text, err := bufio.NewReader(port).ReadBytes('\n')
		if err != nil {
			t.Fatalf("%v\n%s", err, m.console())
		}
		var answer agent.Unlocked
		if err := json.Unmarshal(text, &answer); err != nil {
			t.Fatalf("%v: %s", err, text)
		}
		return answer
	}
	first := ask(agent.Unlock{Version: agent.ChannelVersion, Hash: sesameHash})
	if first.Error != "" || !strings.HasPrefix(first.Fingerprint, "SHA256:") {
		t.Fatalf("the first line was answered by %+v", first)
	}
	t.Logf("after power on: unlocked %.1f s", time.Since(began).Seconds())
	if out, err := m.ssh("sesame", "id -u; cat /etc/shadow"); err != nil || !strings.HasPrefix(out, "0\n") || !strings.Contains(out, "root:$") {
		t.Fatalf("ssh: %v: %s\n%s", err, out, m.console())
	}
	if out, err := m.ssh("wrong", "true"); err == nil {
		t.Errorf("a wrong password opened ssh: %s", out)
	}
	if bad := ask(agent.Unlock{Version: agent.ChannelVersion, Hash: "root::0"}); bad.Error == "" {
		t.Error("a hash that is none was taken")
	}
	// A host that lost the answer asks again; a later credential replaces the first.
	again := ask(agent.Unlock{Version: agent.ChannelVersion, Hash: mellonHash})
	if again.Fingerprint != first.Fingerprint || again.Error != "" {
		t.Errorf("the second line was answered by %+v, the first by %+v", again, first)
	}
	if out, err := m.ssh("mellon", "true"); err != nil {
		t.Errorf("the new password: %v: %s", err, out)
	}
	if text := c.lastFailure(); text != "" {
		t.Errorf("the control plane was asked something: %s", text)
	}
}
