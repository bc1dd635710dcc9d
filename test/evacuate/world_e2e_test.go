//go:build e2e

// Package evacuate proves that a server that is moved off a host never writes from two hosts at once, whatever fails meanwhile. It uses
// real libvirt hosts behind real BMCs, and nothing but salvor protects the disks.
package evacuate

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"salvor/hypervisor/libvirt"
	"salvor/lab"
	"salvor/test/evacuate/journal"
	"salvor/test/machine"
	"salvor/test/must"
	"salvor/test/program"
)

// TestMain lets the test program be the lab's own parts too.
func TestMain(m *testing.M) { machine.Main(m) }

const (
	// longest bounds each stage; an idle machine takes a fraction of it.
	longest = 90 * time.Second
	// control is the control port of the storage daemon, whose socket lies in a folder of its own.
	control = "7"
	portal  = "10.74.0.1:3260"
	iqn     = "iqn.2026-01.org.salvor.test:data"
	hosts   = 3
)

// world is three hosts that are nodes too, a control plane, and a storage daemon.
type world struct {
	*machine.World
	system string // image of a server that keeps a journal
	// disks are the journals of the servers there are, by name.
	disks   map[string]string
	store   string // directory of the disk store that all hosts share
	targets int    // that the storage has
	// agent is the program of the hosts' agents; empty: the program that the control plane's newest release has.
	agent string
}

// newWorld has the lab's own shared directory as its disk store.
func newWorld(t *testing.T) *world {
	t.Helper()
	return newWorldIn(t, "", "", "")
}

// newWorldIn keeps the lab's state in stateDir, and disks in the directory store. Where one is empty, the lab's own is used. agent is the program of
// the hosts' agents; empty: the newest.
func newWorldIn(t *testing.T, stateDir, store, agent string) *world {
	t.Helper()
	w := &world{World: machine.Up(t, lab.Spec{Name: "evacuate", Hosts: hosts, NoDiskLocks: true, StateDir: stateDir}), disks: map[string]string{}, agent: agent}
	w.store = cmp.Or(store, w.status().Shared)
	w.Timeout, w.Env = longest, []string{"TGT_IPC_SOCKET=" + w.Dir + "/tgt"}
	w.system = makeSystem(t, w.Dir)
	w.startStorage()
	w.Serve(fmt.Sprintf(serverConfig, control, w.Dir+"/tgt", w.Dir+"/tgtadm"))
	t.Cleanup(w.report)
	for _, h := range w.status().Hosts {
		w.join(h)
	}
	for _, h := range w.status().Hosts {
		w.Await("host "+h.Name, func() bool { return w.hostIs(h.Name, "up") })
		w.enroll(h)
	}
	w.CLI("network", "create", "lan", "--bridge", "br-tenant", "--cidr", "10.78.0.0/24", "--first", "10.78.0.100", "--last", "10.78.0.199")
	w.CLI("flavor", "create", "small", "--ram", "256", "--disk", "0", "--vcpus", "1")
	w.CLI("image", "create", "system", "--file", w.system)
	return w
}

const serverConfig = `[hosts]
listen = 10.77.0.1:6387
[compute]
shutdown_timeout = 1
[storage]
driver = tgt
tgt_control = %s
tgt_socket = %s
tgt_command = %s
`

func (w *world) status() lab.Status {
	w.Helper()
	s := must.Get(w.Lab.Status(context.WithoutCancel(w.Context())))(w)
	return s
}

func (w *world) host(name string) lab.HostStatus {
	w.Helper()
	h := must.Get(w.Lab.Host(w.Context(), name))(w)
	return h
}

// join has a host run its agent as a service, with a token of its own and a disk store that all hosts share.
func (w *world) join(h lab.HostStatus) {
	w.Helper()
	w.service(h.Name, w.agentOf(filepath.Join(w.Dir, h.Name))...)
}

// enroll makes a host a node of the inventory, whose BMC is its fence.
func (w *world) enroll(h lab.HostStatus) {
	w.Helper()
	w.CLI("node", "create", "--driver", "redfish", "--name", h.Name, "--driver-info", "redfish_address="+h.BMC, "--driver-info", "redfish_system_id="+h.SystemID,
		"--driver-info", "redfish_username="+h.User, "--driver-info", "redfish_password="+h.Password)
	w.CLI("node", "manage", h.Name, "--wait")
	w.CLI("host", "set", h.Name, "--node", h.Name)
}

// startStorage runs tgtd inside of the lab, which ends it.
func (w *world) startStorage() {
	w.Helper()
	if _, err := exec.LookPath("tgtd"); err != nil {
		w.Fatalf("the Debian package tgt is needed: %v", err)
	}
	cmd := w.Lab.Command(context.WithoutCancel(w.Context()), "tgtd", "-f", "-C", control, "--iscsi", "portal="+portal)
	cmd.Env = append(os.Environ(), "TGT_IPC_SOCKET="+w.Dir+"/tgt")
	var said program.Buffer
	cmd.Stdout, cmd.Stderr = &said, &said
	must.OK(w, os.WriteFile(w.Dir+"/tgtadm", fmt.Appendf(nil, tgtadm, w.Dir), 0o700))
	must.OK(w, cmd.Start())
	w.Cleanup(func() {
		// It pays no heed to requests to end while targets are there; the lab's end is the last resort.
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	w.Await("storage answers", func() bool {
		_, err := w.tgt("--mode", "target", "--op", "show")
		return err == nil
	})
}

// tgtadm is the program that the server calls. It calls the daemon, or fails and records the call.
const tgtadm = `#!/bin/sh
[ -e %[1]s/silent ] || exec tgtadm "$@"
echo "$@" >> %[1]s/refused
exit 1
`

// silentStorage cuts the server off from the control of the storage, which serves its volumes as before, until answers is called.
func (w *world) silentStorage() (answers func()) {
	w.Helper()
	w.lay(os.WriteFile(w.Dir+"/silent", nil, 0o600)) // a call never makes it, so the storage is not silenced again
	return func() { w.Helper(); w.lay(os.Remove(w.Dir + "/silent")) }
}

// refusals counts how often the server asked the silent storage.
func (w *world) refusals() int {
	text, _ := os.ReadFile(w.Dir + "/refused")
	return bytes.Count(text, []byte("\n"))
}

func (w *world) tgt(args ...string) (string, error) {
	return w.Inside("", append([]string{"tgtadm", "-C", control, "--lld", "iscsi"}, args...)...)
}

// volume exports a disk with a journal, to initiators that salvor lets in, and registers it.
func (w *world) volume(name, path string) string {
	w.Helper()
	w.targets++
	id := fmt.Sprint(w.targets)
	for _, args := range [][]string{
		{"--mode", "target", "--op", "new", "--tid", id, "-T", iqn + "-" + name},
		{"--mode", "logicalunit", "--op", "new", "--tid", id, "--lun", "1", "-b", path},
	} {
		if out, err := w.tgt(args...); err != nil {
			w.Fatalf("%v %s", err, out)
		}
	}
	body := fmt.Sprintf(`{"volume": {"size": 1, "name": %q, "metadata": {"salvor:portal": %q, "salvor:iqn": %q, "salvor:lun": "1"}}}`, name, portal, iqn+"-"+name)
	out := w.API("POST", "/volume/v3/volumes", body)
	var made struct{ Volume struct{ ID string } }
	must.OK(w, json.Unmarshal([]byte(out), &made))
	return made.Volume.ID
}

func (w *world) hostIs(name, state string) bool {
	shown := w.Show("host", name)
	inventory, _ := shown["inventory"].(map[string]any)
	cpus, _ := inventory["vcpus"].(float64)
	return shown["state"] == state && (state != "up" || cpus > 0)
}

// create makes a server, and waits until it writes.
func (w *world) create(name string, more ...string) {
	w.Helper()
	w.CLI(append([]string{"server", "create", name, "--flavor", "small", "--network", "lan", "--wait"}, more...)...)
	id, _ := w.Show("server", name)["id"].(string)
	if file := filepath.Join(w.store, id+"-vda"); fileIs(file) {
		w.disks[name] = file
	}
	w.writes(10)
}

// forget deletes a server; its journals are no longer looked at.
func (w *world) forget(name string, disks ...string) {
	w.Helper()
	w.CLI("server", "delete", name, "--wait")
	for _, d := range append(disks, name) {
		delete(w.disks, d)
	}
}

// bootVolume is a volume with the system, which a server can boot from.
func (w *world) bootVolume(name string) string {
	w.Helper()
	path := filepath.Join(w.Dir, name+".img")
	if out, err := exec.CommandContext(w.Context(), "cp", "--sparse=always", w.system, path).CombinedOutput(); err != nil {
		w.Fatalf("%v %s", err, out)
	}
	id := w.volume(name, path)
	w.API("POST", "/volume/v3/volumes/"+id+"/action", `{"os-set_bootable": {"bootable": true}}`)
	w.disks[name] = path
	return id
}

func fileIs(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

func (w *world) hostOf(server string) string {
	at, _ := w.Show("server", server)["OS-EXT-SRV-ATTR:host"].(string)
	return at
}

func (w *world) anyDisk() string {
	for name := range w.disks {
		return name
	}
	return ""
}

// writes waits until every journal has grown by so many entries.
func (w *world) writes(more uint64) {
	w.Helper()
	for name := range w.disks {
		_, had := w.last(name)
		w.Await("the server writes to "+name, func() bool { _, n := w.last(name); return n >= had+more })
	}
}

// guests tells how many guests a host's libvirt has.
func (w *world) guests(host string) int {
	w.Helper()
	v := must.Get(libvirt.New(libvirt.Options{URI: w.host(host).Socket}))(w)
	defer v.Close()
	all, err := v.Guests(w.Context())
	if err != nil {
		return -1
	}
	return len(all)
}

// last is the newest entry of a journal.
func (w *world) last(name string) (journal.Entry, uint64) {
	w.Helper()
	f, err := os.Open(w.disks[name])
	if err != nil {
		return journal.Entry{}, 0
	}
	defer f.Close()
	e, n, err := journal.Last(f)
	if err != nil {
		w.Fatalf("journal %s: %v", name, err)
	}
	return e, n
}

// sound proves that no two boots ever wrote at a time.
func (w *world) sound() error {
	for name, path := range w.disks {
		f, err := os.Open(path)
		if err != nil {
			return err
		}
		runs, err := journal.Check(f)
		f.Close()
		if err != nil {
			return fmt.Errorf("journal %s after %d boots: %w", name, len(runs), err)
		}
		entries := uint64(0)
		for _, r := range runs {
			entries += r.Entries
		}
		w.Logf("journal %s: %d boots, %d entries, one after the other", name, len(runs), entries)
	}
	return nil
}

func (w *world) report() {
	if !w.Failed() {
		return
	}
	for _, h := range w.status().Hosts {
		for _, path := range []string{h.ServiceLog, filepath.Join(h.Dir, "host.log")} {
			text, _ := os.ReadFile(path)
			w.Logf("%s:\n%s", path, machine.Tail(string(text), 3000))
		}
	}
	consoles, _ := filepath.Glob(filepath.Join(w.Dir, "h?", "servers", "*", "console.log"))
	for _, file := range consoles {
		text, _ := os.ReadFile(file)
		w.Logf("%s:\n%s", file, machine.Tail(string(text), 300))
	}
	if os.Getenv("SALVOR_KEEP") != "" {
		w.Logf("kept: %s", w.Dir)
		time.Sleep(time.Hour)
	}
}
