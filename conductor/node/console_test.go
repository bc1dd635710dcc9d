package node

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"salvor/diagnose"
	"salvor/job"
	"salvor/metal"
	"salvor/problem"
	"salvor/record"
	"salvor/rescue"
	"salvor/test/fixture"
	"salvor/test/must"
)

const (
	panicText = "[    0.000000] Linux version 6.1.0-13-amd64\n[    2.1] Kernel panic - not syncing: VFS: Unable to mount root fs on unknown-block(0,0)\n"
	loginText = "[    0.000000] Linux version 6.1.0-13-amd64\nweb1 login: "
)

// consoleWorld is a machine whose console is read. stop ends the reading.
type consoleWorld struct {
	*bench
	stop func()

	mu sync.Mutex
	// looked counts the looks at the node by the state that it was in.
	looked map[metal.State]int
	mine   bool
}

// readsConsole gives the machine a serial line, and has its console read.
func (b *bench) readsConsole(t *testing.T) *consoleWorld {
	t.Helper()
	b.serial, b.reads = make(chan string), make(chan error)
	w := &consoleWorld{bench: b, looked: map[metal.State]int{}, mine: true}
	change(t, b, func(n *metal.Node) { n.ConsoleEnabled = true })
	w.start(t)
	return w
}

func (w *consoleWorld) start(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		ReadConsoles(ctx, w.con, ConsoleReading{ReadsHere: w.sees, PollInterval: time.Millisecond, RetryDelay: time.Millisecond})
	}()
	w.stop = func() { cancel(); <-ended }
	t.Cleanup(w.stop)
}

func (w *consoleWorld) sees(n *metal.Node) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.looked[n.ProvisionState]++
	return w.mine
}

// awaitLook waits until the conductor has taken the state of the node in.
func (w *consoleWorld) awaitLook(t *testing.T, state metal.State) {
	t.Helper()
	count := func() int {
		w.mu.Lock()
		defer w.mu.Unlock()
		return w.looked[state]
	}
	before := count()
	fixture.Poll(t, "the conductor sees the node in "+string(state), func() bool { return count() >= before+3 })
}

// enters moves the node, and waits until the conductor has seen it.
func (w *consoleWorld) enters(t *testing.T, state metal.State) {
	t.Helper()
	change(t, w.bench, func(n *metal.Node) { n.ProvisionState = state })
	w.awaitLook(t, state)
}

func (w *consoleWorld) consoleLog(t *testing.T) metal.ConsoleLog {
	t.Helper()
	log, _, err := metal.ReadConsoleLog(context.Background(), w.store, nil, w.node)
	must.OK(t, err)
	return log
}

// awaitLog waits until the kept text is this.
func (w *consoleWorld) awaitLog(t *testing.T, want string) metal.ConsoleLog {
	t.Helper()
	fixture.Poll(t, "the console log is "+want, func() bool { log := w.consoleLog(t); return log.Text() == want }, func(t *testing.T) string { log := w.consoleLog(t); return log.Text() })
	return w.consoleLog(t)
}

// TestConsoleLog: what the machine's own system writes is kept, what ramdisks write is not, and another conductor goes on with it.
func TestConsoleLog(t *testing.T) {
	t.Parallel()
	b := newBench(t, metal.Active)
	w := b.readsConsole(t)
	w.says("one\n")
	w.says("two")
	if log := w.awaitLog(t, "one\ntwo"); len(log.Parts) != 1 || !log.Parts[0].Session.IsZero() || log.Parts[0].Since.IsZero() || log.Problem != "" {
		t.Errorf("the log is %+v", log)
	}
	session := time.Unix(1000, 0)
	change(t, b, func(n *metal.Node) { n.Rescue = &rescue.Session{StartedAt: session, Begun: 2} })
	w.enters(t, metal.RescueWait)
	w.says("the ramdisk\n")
	change(t, b, func(n *metal.Node) { n.ProvisionState, n.Rescue = metal.Active, nil }) // the unrescue is faster than the next look at the node
	w.awaitLook(t, metal.Active)
	w.says("three\n")
	log := w.awaitLog(t, "one\ntwo\nthree\n")
	if boot := log.BootAfter(session, 2); boot == nil || boot.Text != "three\n" {
		t.Errorf("the boot after the ramdisk is %+v", log)
	}
	if log.BootAfter(session, 1) != nil || log.BootAfter(session.Add(time.Second), 2) != nil || log.BootAfter(time.Time{}, 0) != nil {
		t.Error("a boot after another rescue is one after this")
	}
	w.stop()
	if kept := w.consoleLog(t); kept.Text() != "one\ntwo\nthree\n" {
		t.Errorf("the log is %+v", kept)
	}
	w.start(t)
	w.awaitLook(t, metal.Active)
	w.says("four\n")
	if log := w.awaitLog(t, "one\ntwo\nthree\nfour\n"); log.BootAfter(session, 2).Text != "three\n" {
		t.Errorf("a line that was opened amid a boot has the whole of it: %+v", log)
	}
	change(t, b, func(n *metal.Node) { n.ConsoleEnabled = false })
	w.awaitClosed(t)
}

// says has the machine write, and waits until the conductor has taken that in: it takes the second text once it is done with the first.
func (w *consoleWorld) says(text string) {
	w.serial <- text
	w.serial <- ""
}

// awaitClosed waits until nobody reads the line.
func (w *consoleWorld) awaitClosed(t *testing.T) {
	t.Helper()
	fixture.Poll(t, "nobody reads the line", func() bool {
		select {
		case w.serial <- "":
			return false
		case <-time.After(20 * time.Millisecond):
			return true
		}
	})
}

// TestConsoleOfAnotherBMC: after a change of driver_info the line is that of another BMC.
func TestConsoleOfAnotherBMC(t *testing.T) {
	t.Parallel()
	w := newBench(t, metal.Active).readsConsole(t)
	w.says("one\n")
	w.awaitLog(t, "one\n")
	change(t, w.bench, func(n *metal.Node) { n.DriverInfo = metal.Object{"address": "192.0.2.9"} })
	fixture.PollActing(t, "the line is opened again", func() {
		select {
		case w.serial <- "two\n":
		case <-time.After(time.Millisecond):
		}
	}, func() bool { return len(w.consoleLog(t).Parts) == 2 })
}

// TestUnreadableConsoleLog: a node whose log cannot be read stops no other console.
func TestUnreadableConsoleLog(t *testing.T) {
	t.Parallel()
	b := newBench(t, metal.Active)
	other := &metal.Node{ID: "00000000-0000-4000-8000-000000000001", Driver: "bench", ProvisionState: metal.Active, ConsoleEnabled: true}
	must.OK(t, b.nodes.Create(context.Background(), other, record.Asker{}))
	must.OK(t, b.store.Do(context.Background(), func(tx job.Tx) error {
		return b.store.SaveDocument(tx, metal.Document{NodeID: other.ID, Kind: metal.ConsoleLogDocument, Body: []byte(`"rubbish"`)})
	}))
	w := b.readsConsole(t)
	w.says("one\n")
	w.awaitLog(t, "one\n")
}

// TestConsoleLogEndsWithTheTenancy: nothing that the former tenant's system wrote comes back.
func TestConsoleLogEndsWithTheTenancy(t *testing.T) {
	t.Parallel()
	b := newBench(t, metal.Active)
	w := b.readsConsole(t)
	w.says("a secret of ann\n")
	w.awaitLog(t, "a secret of ann\n")
	before := w.consoleLog(t).Tenancy
	must.OK(t, b.store.Do(context.Background(), func(tx job.Tx) error { return metal.DropTenancy(b.store, tx, b.node) }))
	w.says("another one\n") // nobody can tell whose it is
	fixture.Poll(t, "the log is begun anew", func() bool { now := w.consoleLog(t); return now.Tenancy != "" && now.Tenancy != before })
	fixture.PollActing(t, "it is kept again", func() { w.says("bob's\n") }, func() bool { log := w.consoleLog(t); return strings.Contains(log.Text(), "bob's") })
	if log := w.consoleLog(t); strings.Contains(log.Text(), "ann") {
		t.Errorf("the log of the next tenant is %q", log.Text())
	}
}

// TestConsoleLogOfAFormerReader: a conductor that was away while the tenancy ended, and another one began the next log, drops what it holds.
func TestConsoleLogOfAFormerReader(t *testing.T) {
	t.Parallel()
	b := newBench(t, metal.Active)
	w := b.readsConsole(t)
	w.says("a secret of ann\n")
	w.awaitLog(t, "a secret of ann\n")
	w.says("more of ann\n")
	bobs := metal.ConsoleLog{Tenancy: "bob's", Parts: []metal.ConsolePart{{Since: time.Now(), Text: "bob\n"}}}
	must.OK(t, b.store.Do(context.Background(), func(tx job.Tx) error {
		return errors.Join(metal.DropTenancy(b.store, tx, b.node), metal.SaveConsoleLog(b.store, tx, b.node, bobs))
	}))
	fixture.PollActing(t, "the reader goes on in the new tenancy", func() { w.says("new\n") }, func() bool { log := w.consoleLog(t); return strings.Contains(log.Text(), "new\n") })
	if log := w.consoleLog(t); strings.Contains(log.Text(), "ann") || log.Tenancy != "bob's" {
		t.Errorf("the log of the next tenant is %+v", log)
	}
}

// TestConsoleOfAnotherConductor: one conductor reads.
func TestConsoleOfAnotherConductor(t *testing.T) {
	t.Parallel()
	w := newBench(t, metal.Active).readsConsole(t)
	w.says("one\n")
	w.mu.Lock()
	w.mine = false
	w.mu.Unlock()
	w.awaitClosed(t)
	w.awaitLog(t, "one\n")
}

// TestConsoleIsOpenedAgain: the log says why it is not read, and the reading goes on.
func TestConsoleIsOpenedAgain(t *testing.T) {
	t.Parallel()
	w := newBench(t, metal.Active).readsConsole(t)
	w.says("one\n")
	for range 3 {
		w.reads <- problem.Conflictf("someone else reads the serial line")
	}
	w.says("two\n")
	if log := w.awaitLog(t, "one\ntwo\n"); log.Problem != "" || len(log.Parts) != 2 {
		t.Errorf("the log is %+v", log)
	}
	w.stop()
	w.serial = nil
	w.start(t)
	fixture.Poll(t, "the log says that nobody reads", func() bool { return strings.Contains(w.consoleLog(t).Problem, "no serial line") })
}

// TestDiagnoseReadsTheConsole: the kept log is evidence, and the text that comes with a request goes before it.
func TestDiagnoseReadsTheConsole(t *testing.T) {
	t.Parallel()
	w := newDiagnosed(t, metal.PowerOn).readsConsole(t)
	w.says(panicText)
	w.awaitLog(t, panicText)
	d := w.diagnose(t, metal.DiagnoseArgs{})
	if d.Report.Verdict.Finding != "console-root-missing" || len(d.Report.Symptoms()) != 1 {
		t.Errorf("the report is %+v", d.Report)
	}
	w.stop()
	w.serial, w.reads = nil, nil
	w.start(t)
	fixture.Poll(t, "the log says that nobody reads", func() bool { return w.consoleLog(t).Problem != "" })
	must.Get(w.nodes.Diagnose(context.Background(), w.node, metal.DiagnoseArgs{}, record.Asker{}))(t)
	w.ends(t)
	if gaps := gapsOf(w.diagnosis(t)); !strings.Contains(gaps, "no serial line") {
		t.Errorf("not examined: %s", gaps)
	}
}

// TestRepairProvenByTheConsole: a login prompt of the boot after the repair proves it where no address is known. A former one does not, nor where ssh was mended.
func TestRepairProvenByTheConsole(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		says  string
		stage diagnose.Stage
		want  metal.RepairState
		why   string
	}{
		"a login":                    {loginText, "target", metal.RepairProven, "booted to the login"},
		"ssh was mended":             {loginText, "sshd", metal.RepairUnproven, "knows no address"},
		"it still does not boot":     {panicText, "target", metal.RepairUnproven, "The console shows that the initramfs does not find the root file system"},
		"the machine writes nothing": {"", "target", metal.RepairUnproven, "within"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newRepaired(t, metal.PowerOff)
			change(t, b, func(n *metal.Node) { n.NetworkData = nil })
			var later atomic.Int64 // than the true time
			b.con.Now = func() time.Time { return time.Now().Add(time.Duration(later.Load())) }
			b.mender.stage = tc.stage
			w := b.readsConsole(t)
			former := strings.ReplaceAll(loginText, "web1", "former")
			w.says(former)
			w.awaitLog(t, former)
			b.beforeBoot = func() {
				w.awaitLook(t, metal.Unrescuing)
				if tc.says != "" {
					w.says(tc.says)
				}
			}
			b.run(t)
			args := b.withDigest(t)
			ended := make(chan struct{})
			var clock sync.WaitGroup
			clock.Go(func() { // the time for the proof is over once the log has what the machine says
				for ; ; time.Sleep(2 * time.Millisecond) {
					log, _, _ := metal.ReadConsoleLog(context.Background(), b.store, nil, b.node)
					all, _ := b.repairs().List(context.Background(), nil, b.node)
					if len(all) > 0 && all[0].State == metal.RepairBooting && strings.HasSuffix(log.Text(), tc.says) {
						later.Store(int64(time.Hour))
					}
					select {
					case <-ended:
						return
					default:
					}
				}
			})
			r := b.repair(t, args)
			close(ended)
			clock.Wait()
			if r.State != tc.want || !strings.Contains(r.ProvenBy+r.Problem, tc.why) {
				t.Errorf("repair %+v", r)
			}
		})
	}
}
