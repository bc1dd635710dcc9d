//go:build e2e

// Package vm proves on libvirt daemons of the lab that a server's rescue and its end converge, whatever is
// killed meanwhile: the control plane, the host's agent, the daemon.
package vm

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"salvor/compute"
	"salvor/hypervisor/libvirt"
	"salvor/lab"
	"salvor/test/machine"
	"salvor/test/must"
	"salvor/test/program"
)

// TestMain lets the test program be the lab's own parts too.
func TestMain(m *testing.M) { machine.Main(m) }

// world is a control plane and two hosts in a lab, and an image of a system whose password nobody knows.
type world struct {
	*machine.World
	hosts  []lab.HostStatus
	image  lab.Volume
	agents map[string]*agent
}

// agent is a salvor host that is running.
type agent struct {
	host  lab.HostStatus
	cmd   *exec.Cmd
	log   program.Buffer
	ended chan struct{}
}

func newWorld(t *testing.T, hosts int, ramdisk string) *world {
	t.Helper()
	w := &world{World: machine.Up(t, lab.Spec{Name: "vm", Hosts: hosts}), agents: map[string]*agent{}}
	w.hosts = must.Get(w.Lab.Status(t.Context()))(t).Hosts
	w.image = must.Get(lab.MakeImage(t.Context(), w.Dir, filepath.Join(w.Dir, "tenant.img")))(t)
	w.Serve(fmt.Sprintf("[hosts]\nlisten = 10.77.0.1:6387\n[compute]\nshutdown_timeout = 8\n[conductor]\nrescue_kernel = %[1]s/kernel\nrescue_ramdisk = %[1]s/initramfs\n", ramdisk),
		"sh", "-c", `echo $$ >"$0"; exec "$@"`, w.pidFile("server"))
	t.Cleanup(w.report)
	for _, h := range w.hosts {
		w.join(h)
	}
	for _, h := range w.hosts {
		w.Await("host "+h.Name, func() bool {
			shown := w.Show("host", h.Name)
			inventory, _ := shown["inventory"].(map[string]any)
			cpus, _ := inventory["vcpus"].(float64)
			return shown["state"] == "up" && cpus > 0
		})
	}
	return w
}

func (w *world) report() {
	if !w.Failed() {
		return
	}
	for name, a := range w.agents {
		w.Logf("%s:\n%s", name, machine.Tail(a.log.String(), 4000))
	}
	consoles, _ := filepath.Glob(filepath.Join(w.Dir, "h?", "servers", "*", "console.log"))
	for _, file := range consoles {
		text, _ := os.ReadFile(file)
		w.Logf("%s:\n%s", file, machine.Tail(string(text), 4000))
	}
}

// join starts a host's agent with a token of its own.
func (w *world) join(h lab.HostStatus) {
	w.Helper()
	token := filepath.Join(w.Dir, h.Name+".token")
	must.OK(w, os.WriteFile(token, []byte(w.CLI("host", "token", "create", "-f", "value", "-c", "token")), 0o600))
	w.agents[h.Name] = &agent{host: h}
	w.startAgent(h.Name)
	w.Cleanup(func() {
		a := w.agents[h.Name]
		_ = a.cmd.Process.Kill()
		<-a.ended
	})
}

func (w *world) startAgent(name string) {
	w.Helper()
	a := w.agents[name]
	args := append(a.host.Enter(), "sh", "-c", `echo $$ >"$0"; exec "$@"`, w.pidFile(name), program.Path(w.T, "salvor"), "host",
		"--controller", "https://10.77.0.1:6387", "--join-file", filepath.Join(w.Dir, name+".token"), "--state-dir", filepath.Join(w.Dir, name))
	a.cmd = w.Lab.Command(context.WithoutCancel(w.Context()), args[0], args[1:]...)
	a.cmd.Stdout, a.cmd.Stderr = &a.log, &a.log
	must.OK(w, a.cmd.Start())
	a.ended = make(chan struct{})
	go func() {
		defer close(a.ended)
		_ = a.cmd.Wait()
	}()
}

func (w *world) pidFile(name string) string { return filepath.Join(w.Dir, name+".pid") }

func (w *world) status(want string) func() bool {
	return func() bool {
		shown := w.Show("server", "web1")
		if shown["status"] == "ERROR" {
			w.Fatalf("the server is in ERROR: %v", shown["fault"])
		}
		return shown["status"] == want && shown["OS-EXT-STS:task_state"] == nil
	}
}

// guests are all guests of all hosts.
func (w *world) guests() []compute.Guest {
	w.Helper()
	var all []compute.Guest
	for _, h := range w.hosts {
		v := must.Get(libvirt.New(libvirt.Options{URI: h.Socket}))(w)
		defer v.Close()
		here := must.Get(v.Guests(w.Context()))(w)
		all = append(all, here...)
	}
	return all
}

// one proves that there is one guest, and how it is.
func (w *world) one(rescued bool) {
	w.Helper()
	all := w.guests()
	if len(all) != 1 || !all[0].Ours || all[0].Power != compute.PowerOn || all[0].InRescue != rescued || (all[0].Rescue != "") != rescued || all[0].Autostart {
		w.Errorf("the guests are %+v, want one of ours that runs, in rescue: %v", all, rescued)
	}
}

func (w *world) ssh(user, password, known, command string) (string, error) {
	return w.SSH("", user+"@10.78.0.100", password, filepath.Join(w.Dir, known), command)
}

// blows kills, one after the other in any order and at times by chance, all that takes part.
func (w *world) blows(chance *rand.Rand, within time.Duration) {
	w.Helper()
	host := ""
	for _, h := range w.hosts {
		if files, _ := filepath.Glob(filepath.Join(w.Dir, h.Name, "servers", "*")); len(files) > 0 {
			host = h.Name
		}
	}
	victims := map[string]func(){
		"server": func() {
			w.slay(nil, "server")
			w.Server.Kill() // waits for its end
			w.Server.Start(w.T)
		},
		"agent": func() {
			a := w.agents[host]
			w.slay(a.host.Enter(), host)
			<-a.ended
			w.startAgent(host)
		},
		"libvirt": func() {
			must.OK(w, w.Lab.KillLibvirt(w.Context(), host, false))
		},
	}
	names := []string{"agent", "libvirt", "server"}
	chance.Shuffle(len(names), func(i, j int) { names[i], names[j] = names[j], names[i] })
	for _, name := range names {
		pause := time.Duration(chance.Int64N(int64(within)))
		time.Sleep(pause) // the time of the blow is the test
		w.Logf("%s later: kill -9 of %s", pause, name)
		victims[name]()
	}
}

// slay ends a program by force, by the pid that it wrote down in its own namespaces.
func (w *world) slay(enter []string, name string) {
	w.Helper()
	args := append(enter, "sh", "-c", `kill -9 $(cat "$0")`, w.pidFile(name))
	must.Get(w.Inside("", args...))(w)
}

// crashes kills the server's QEMU again and again: it is started again as often as a crashed guest is, then the server is in ERROR with
// its tries told. What its fault says to do starts it.
func (w *world) crashes() {
	w.Helper()
	shown := w.Show("server", "web1")
	guest, _ := shown["OS-EXT-SRV-ATTR:instance_name"].(string)
	i := slices.IndexFunc(w.hosts, func(h lab.HostStatus) bool { return h.Name == shown["OS-EXT-SRV-ATTR:host"] })
	if guest == "" || i < 0 {
		w.Fatalf("where does the server run? %v", shown)
	}
	pid := func() string {
		out, _ := w.Inside("", append(w.hosts[i].Enter(), "cat", "/run/libvirt/qemu/"+guest+".pid")...) // there is none while it is off
		return strings.TrimSpace(out)
	}
	for try := range compute.MaxRestarts + 1 {
		killed := pid()
		if killed == "" {
			w.Fatalf("guest %s has no pid", guest)
		}
		must.Get(w.Inside("", append(w.hosts[i].Enter(), "kill", "-9", killed)...))(w)
		if try == compute.MaxRestarts {
			break
		}
		w.Await(fmt.Sprintf("started again, try %d", try+1), func() bool {
			now := pid()
			return now != "" && now != killed && w.status("ACTIVE")()
		})
	}
	w.Await("the tries are over", func() bool { return w.Show("server", "web1")["status"] == "ERROR" })
	fault, _ := w.Show("server", "web1")["fault"].(map[string]any)
	if words, _ := fault["message"].(string); !strings.Contains(words, "started again 3 times in 10m0s") || !strings.Contains(words, "salvor server reboot --hard web1") {
		w.Errorf("the fault is %v", fault)
	}
	for _, g := range w.guests() {
		if g.Power == compute.PowerOn {
			w.Errorf("in ERROR a guest runs: %+v", g)
		}
	}
	w.CLI("server", "reboot", "--hard", "web1")
	w.Await("started by hand", func() bool {
		s := w.Show("server", "web1")
		return s["status"] == "ACTIVE" && s["OS-EXT-STS:task_state"] == nil
	})
}

func TestRescueUnderBlows(t *testing.T) {
	w := newWorld(t, 2, machine.Ramdisk(t))
	w.CLI("network", "create", "lan", "--bridge", "br-tenant", "--cidr", "10.78.0.0/24", "--first", "10.78.0.100", "--last", "10.78.0.199")
	w.CLI("flavor", "create", "small", "--ram", "512", "--disk", "0", "--vcpus", "1")
	w.CLI("image", "create", "tenant", "--file", w.image.Path, "--property", "OS=tenant", "--property", "OSFAMILY=linux")
	w.CLI("server", "create", "web1", "--flavor", "small", "--image", "tenant", "--network", "lan", "--use-config-drive")
	w.Await("created", w.status("ACTIVE"))
	must.OK(t, os.WriteFile(filepath.Join(w.Dir, "own"), []byte("10.78.0.100 "+w.image.HostKey+"\n"), 0o600))
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	chance := rand.New(rand.NewPCG(seed, 0))
	rounds := 1
	if os.Getenv("SALVOR_SOAK") != "" {
		rounds = 5
	}
	for i := range rounds {
		password := fmt.Sprintf("open-%d-sesame", i)
		must.Get(w.TryCLI(password+"\n", "server", "rescue", "web1", "--password-file", "-"))(t)
		w.blows(chance, 1500*time.Millisecond)
		w.Await("rescued", w.status("RESCUE"))
		known := fmt.Sprintf("rescue-%d", i)
		w.Await("ssh prompt of the rescue system", func() bool {
			_, err := w.ssh("rescue", password, known, "true")
			return err == nil
		})
		w.one(true)
		mend := fmt.Sprintf("set -e; mkdir -p /mnt; mount /dev/vda2 /mnt; echo %s >>/mnt/etc/mends; umount /mnt; sync", password)
		must.Get(w.ssh("rescue", password, known, mend))(t)
		w.CLI("server", "unrescue", "web1")
		w.blows(chance, 300*time.Millisecond)
		w.Await("back", w.status("ACTIVE"))
		w.Await("its own system", func() bool {
			// A refused password is status 5: its own ssh, by its own key, answers.
			_, err := w.ssh("root", "guess", "own", "true")
			return err != nil && strings.Contains(err.Error(), "exit status 5")
		})
		w.one(false)
	}
	w.crashes()
	w.CLI("server", "delete", "web1", "--wait")
	if all := w.guests(); len(all) != 0 {
		t.Errorf("after its deletion: %+v", all)
	}
	for _, leak := range []string{"sesame"} {
		logs := w.Server.Log()
		for _, a := range w.agents {
			logs += a.log.String()
		}
		if strings.Contains(logs, leak) {
			t.Error("a password is in a log")
		}
	}
}
