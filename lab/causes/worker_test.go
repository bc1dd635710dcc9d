//go:build causes || e2e

package causes

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"salvor/test/must"
)

// worker is a machine that serves one case after the other: their disks are attached to it and taken away while it runs, because its boot takes
// longer than its work.
type worker struct {
	*machine
	mu       sync.Mutex // held while a case uses the machine
	serves   string     // what it was started for
	monitor  *monitor
	agent    *agentServer
	attached []string
}

// worker gives the machine of that kind, layout and hardware, with its mu locked. One that ended is started again.
func (c *corpus) worker(t *testing.T, kind string, l Layout, h Hardware, start func(*testing.T, string, Layout, Hardware) *worker) *worker {
	t.Helper()
	serves := fmt.Sprint(l.Name, h.OtherFirmware, h.Clock)
	c.starting[kind].Lock()
	defer c.starting[kind].Unlock()
	c.mu.Lock()
	w := c.workers[kind]
	c.mu.Unlock()
	if w != nil {
		w.mu.Lock()
		if w.serves == serves && w.runs() {
			return w
		}
		w.stop()
		w.mu.Unlock()
	}
	w = start(t, kind, l, h)
	w.serves = serves
	w.mu.Lock()
	c.mu.Lock()
	c.workers[kind] = w
	c.mu.Unlock()
	return w
}

func (c *corpus) stopWorkers() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, w := range c.workers {
		w.stop()
	}
	clear(c.workers)
}

func (m *machine) runs() bool {
	select {
	case <-m.exited:
		return false
	default:
		return true
	}
}

// startExaminer boots the ramdisk that examines.
func (c *corpus) startExaminer(t *testing.T, kind string, l Layout, h Hardware) *worker {
	t.Helper()
	s := serveAgent(t)
	args := []string{"-m", "1024", "-device", "virtio-net-pci,netdev=n0,romfile=,addr=5", "-netdev", fmt.Sprintf("user,id=n0,hostfwd=tcp:127.0.0.1:%d-:9999", s.agentPort),
		"-kernel", filepath.Join(c.dir, "ramdisk-diagnose/kernel"), "-initrd", filepath.Join(c.dir, "ramdisk-diagnose/initramfs"), "-append", s.kernelLine()}
	if h.ByUEFI(l) {
		vars := filepath.Join(c.dir, kind+"-vars.fd")
		from := emptyVariables
		if l.UEFI {
			from = filepath.Join(c.imageDir(l), "vars.fd")
		}
		must.OK(t, copyFile(from, vars))
		args = append(args, uefi(vars)...)
	}
	if !h.Clock.IsZero() {
		args = append(args, "-rtc", "base="+h.Clock.UTC().Format("2006-01-02T15:04:05"))
		began := time.Now()
		s.now = func() time.Time { return h.Clock.Add(time.Since(began)) }
	}
	w := c.startWorker(t, kind, args)
	w.agent = s
	select {
	case <-s.ready:
	case <-w.exited:
		t.Fatalf("the machine that examines ended\n%s", w.tail())
	case <-time.After(bootLimit):
		w.stop()
		t.Fatalf("the agent sent no heartbeat within %v\n%s", bootLimit, w.tail())
	}
	return w
}

// startWorker starts QEMU with a bus for disks that come and go.
func (c *corpus) startWorker(t *testing.T, name string, args []string) *worker {
	t.Helper()
	l := must.Get(net.Listen("tcp", "127.0.0.1:0"))(t)
	defer l.Close()
	args = append(args, "-device", "virtio-scsi-pci,id=bus,addr=8", "-chardev", "socket,id=monitor,host=127.0.0.1,port="+portOf(l), "-mon", "chardev=monitor,mode=control")
	w := &worker{machine: c.start(t, name, args)}
	conn, err := l.Accept()
	if err == nil {
		w.monitor = &monitor{conn: conn, answers: json.NewDecoder(conn)}
		err = w.monitor.run("qmp_capabilities", nil)
	}
	if err != nil {
		w.stop()
		t.Fatalf("the monitor of QEMU: %v\n%s", err, w.tail())
	}
	return w
}

// attach gives the machine further disks. badSector of the first one cannot be read; "": each can.
func (w *worker) attach(t *testing.T, files []string, badSector string) {
	t.Helper()
	for _, file := range files {
		n := len(w.attached)
		id := fmt.Sprintf("disk%d", n)
		format := "qcow2"
		if strings.HasSuffix(file, ".tar") {
			format = "raw"
		}
		node := map[string]any{"driver": format, "read-only": format == "raw",
			"file": map[string]any{"driver": "file", "filename": file, "read-only": format == "raw"}}
		if n == 0 && badSector != "" {
			node = map[string]any{"driver": "blkdebug", "image": node,
				"inject-error": []any{map[string]any{"event": "none", "iotype": "read", "errno": 5, "sector": json.Number(badSector), "once": false}}}
		}
		node["node-name"] = id
		err := errors.Join(
			w.monitor.run("blockdev-add", node),
			w.monitor.run("device_add", map[string]any{"driver": "scsi-hd", "id": "device-" + id, "drive": id, "serial": id, "bus": "bus.0", "lun": n}))
		if err != nil {
			w.stop()
			t.Fatalf("attach %s: %v", file, err)
		}
		w.attached = append(w.attached, id)
	}
}

// detach takes all disks away at once, whatever the machine does with them. Their files are closed then.
func (w *worker) detach(t *testing.T) {
	t.Helper()
	for _, id := range w.attached {
		err := w.monitor.run("device_del", map[string]any{"id": "device-" + id})
		for until := time.Now().Add(time.Minute); err == nil; {
			// The device is gone a moment after the answer.
			if err = w.monitor.run("blockdev-del", map[string]any{"node-name": id}); err == nil {
				break
			}
			if !strings.Contains(err.Error(), "in use") || time.Now().After(until) {
				break
			}
			err = nil
			time.Sleep(50 * time.Millisecond)
		}
		if err != nil {
			w.stop()
			t.Fatalf("detach %s: %v", id, err)
		}
	}
	w.attached = nil
}

// monitor speaks QMP.
type monitor struct {
	conn    net.Conn
	answers *json.Decoder
}

// run sends a command and waits for its answer. Events are read over.
func (m *monitor) run(command string, arguments map[string]any) error {
	if err := m.conn.SetDeadline(time.Now().Add(5 * time.Minute)); err != nil {
		return err
	}
	request := map[string]any{"execute": command}
	if arguments != nil {
		request["arguments"] = arguments
	}
	if err := json.NewEncoder(m.conn).Encode(request); err != nil {
		return err
	}
	for {
		var answer struct {
			Return json.RawMessage `json:"return"`
			Error  *struct {
				Desc string `json:"desc"`
			} `json:"error"`
		}
		if err := m.answers.Decode(&answer); err != nil {
			return fmt.Errorf("%s: %w", command, err)
		}
		switch {
		case answer.Error != nil:
			return fmt.Errorf("%s: %s", command, answer.Error.Desc)
		case answer.Return != nil:
			return nil
		}
	}
}
