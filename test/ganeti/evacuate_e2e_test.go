//go:build e2e

package ganeti

import (
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"time"

	"salvor/compute"
	"salvor/problem"
	"salvor/record"
	"salvor/test/must"
)

const (
	second = "node2.gnt.example.test"
	db     = "db.gnt.example.test"
)

// powerOn begins a second node and adds it; what it gives back is its power supply.
func (w *world) powerOn() (cut func()) {
	w.Helper()
	must.OK(w, os.Mkdir(w.at("c/two"), 0o755))
	cmd := exec.Command("unshare", "--net", "--mount", "--uts", "--pid", "--fork", "--mount-proc", "--kill-child=KILL", "bash", "testdata/second.sh", w.at("c"))
	log := must.Get(os.Create(w.at("c/two.log")))(w)
	defer log.Close()
	cmd.Stdout, cmd.Stderr = log, log
	must.OK(w, cmd.Start())
	w.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	if _, err := w.try("bash", "testdata/add.sh", w.at("c"), strconv.Itoa(cmd.Process.Pid)); err != nil {
		said, _ := os.ReadFile(w.at("c/two.log"))
		w.Fatalf("%v\nthe second node: %s", err, said)
	}
	return func() { w.Helper(); w.powerOff(cmd) }
}

// powerOff ends all processes of the second node, its first one first. Its network outlives them for as long as their connections take to
// end: Ganeti would wait a minute for an answer that is under way. Then nothing leads there any more.
func (w *world) powerOff(node *exec.Cmd) {
	w.Helper()
	proc := fmt.Sprintf("/proc/%d/", node.Process.Pid)
	network := must.Get(os.Open(proc + "ns/net"))(w)
	defer network.Close()
	children := must.Get(os.ReadFile(proc + "task/" + strconv.Itoa(node.Process.Pid) + "/children"))(w)
	first, err := strconv.Atoi(strings.TrimSpace(string(children)))
	if err != nil {
		w.Fatalf("the second node's first process: %v", err)
	}
	must.OK(w, syscall.Kill(first, syscall.SIGKILL))
	_ = node.Wait() // the first process is gone when all others are
	w.run("ip", "route", "add", "unreachable", "10.79.0.2/32")
	w.run("ip", "link", "del", "to-node2")
}

// wait polls what is no server's.
func (w *world) wait(what string, is func() bool) {
	w.Helper()
	for end := time.Now().Add(patience); !is(); time.Sleep(50 * time.Millisecond) {
		if time.Now().After(end) {
			w.Fatalf("%s: it did not come", what)
		}
	}
}

// evacuate: a node of the cluster loses its power. Nothing is moved before that is attested; then Ganeti is told, and brings the instance
// back on the other node, from the same disk.
func evacuate(w *world, _ string, _ map[string]any) {
	cut := w.powerOn()
	w.run("gnt-instance", "add", "-t", "sharedfile", "--disk", "0:size=1G", "-o", "noop+default", "-n", second, "--net", "0:link=gnt0",
		"--no-ip-check", "--no-name-check", "--no-wait-for-sync", "-B", "memory=256M,vcpus=1", "-H", "kvm:boot_order=network,acpi=false", db)
	id := w.adopt(db)
	source := w.until(id, "see that it runs", func(s *compute.Server) bool { return s.Power == compute.PowerOn && s.State == compute.Active }).HostID
	cut()

	plans := w.services.Plans
	p, err := plans.Draft(w.Context(), compute.PlanRequest{Host: source}, admin)
	if err != nil || len(p.Items) != 1 || p.Items[0].Disposition != compute.KeepDisk || !strings.Contains(p.Missing, "salvor fence "+second) {
		w.Fatalf("planned: %+v %v", p, err)
	}
	if _, err := plans.Run(w.Context(), p.ID, compute.PlanConsent{}, admin); !problem.Is(err, problem.Conflict) {
		w.Fatalf("without a receipt it is run: %v", err)
	}
	must.Get(w.services.Fences.Fence(w.Context(), source, compute.FenceArgs{Words: "its power is cut"}, admin))(w)
	w.wait("the receipt", func() bool {
		r, err := w.services.Fences.Receipt(w.Context(), nil, source)
		return err == nil && len(r.Proofs) == 1 && r.Proofs[0].Evidence == compute.Attested
	})
	w.wait("the run", func() bool {
		_, err := plans.Run(w.Context(), p.ID, compute.PlanConsent{}, admin)
		return err == nil
	})
	s := w.until(id, "live elsewhere", func(s *compute.Server) bool {
		return s.HostID != source && s.Task == compute.NoTask && s.State == compute.Active && s.Power == compute.PowerOn
	})
	w.wait("the plan's end", func() bool {
		p, err = plans.Get(w.Context(), p.ID)
		return err == nil && !p.EndedAt.IsZero()
	})
	moves, err := w.services.Moves.List(w.Context(), compute.MoveFilter{}, record.Page{Limit: 10})
	if err != nil || len(moves) != 1 || moves[0].DestID != s.HostID || moves[0].State != compute.MoveCompleted || moves[0].ReceiptID == "" || moves[0].PlanID != p.ID {
		w.Errorf("moves: %+v %v\n%s", moves, err, w.timeline(compute.Subject(id)))
	}
	if list := w.run("gnt-instance", "list", "--no-headers", "--separator=|", "-o", "name,pnode,status", db); strings.TrimSpace(list) != db+"|"+node+"|running" {
		w.Errorf("Ganeti says: %s", list)
	}
	if list := w.run("gnt-node", "list", "--no-headers", "-o", "offline", second); strings.TrimSpace(list) != "Y" {
		w.Errorf("the node is offline: %s", list)
	}
}
