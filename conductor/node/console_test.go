package node

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"salvor/diagnose"
	"salvor/job"
	"salvor/metal"
	"salvor/problem"
	"salvor/record"
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
		ReadConsoles(ctx, w.con, ConsoleReading{Mine: w.sees, Look: time.Millisecond, Again: time.Millisecond})
	}()
	w.stop = func() { cancel(); <-ended }
	t.Cleanup(w.stop)
}

func (w *consoleWorld) sees(_ context.Context, n *metal.Node) bool {
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
	w.serial <- "one\n"
	w.serial <- "two"
	if log := w.awaitLog(t, "one\ntwo"); len(log.Parts) != 1 || log.Parts[0].AfterRamdisk || log.Parts[0].Since.IsZero() || log.Problem != "" {
		t.Errorf("the log is %+v", log)
	}
	w.enters(t, metal.RescueWait)
	w.serial <- "the ramdisk\n"
	written := time.Now()
	w.enters(t, metal.Unrescuing)
	w.serial <- "three\n"
	log := w.awaitLog(t, "one\ntwo\nthree\n")
	if boot := log.BootAfter(written); boot == nil || boot.Text != "three\n" {
		t.Errorf("the boot after the ramdisk is %+v", log)
	}
	if log.BootAfter(time.Now()) != nil || log.BootAfter(time.Time{}) != nil {
		t.Error("a boot before the repair is one after it")
	}
	w.stop()
	if kept := w.consoleLog(t); kept.Text() != "one\ntwo\nthree\n" {
		t.Errorf("the log is %+v", kept)
	}
	w.start(t)
	w.awaitLook(t, metal.Unrescuing)
	w.serial <- "four\n"
	if log := w.awaitLog(t, "one\ntwo\nthree\nfour\n"); log.BootAfter(written) != nil {
		t.Errorf("a line that was opened amid a boot has the whole of it: %+v", log)
	}
	change(t, b, func(n *metal.Node) { n.ConsoleEnabled = false })
	select {
	case w.serial <- "five\n":
		// It may still have been read before the conductor saw the change.
	case <-time.After(50 * time.Millisecond):
	}
	w.stop()
}

// TestConsoleLogEndsWithTheTenancy: nothing that the former tenant's system wrote comes back.
func TestConsoleLogEndsWithTheTenancy(t *testing.T) {
	t.Parallel()
	b := newBench(t, metal.Active)
	w := b.readsConsole(t)
	w.serial <- "a secret of ann\n"
	w.awaitLog(t, "a secret of ann\n")
	w.serial <- "another one\n"
	must.OK(t, b.store.Do(context.Background(), func(tx job.Tx) error { return metal.DropTenancy(b.store, tx, b.node) }))
	w.serial <- "a third\n"
	fixture.Poll(t, "the log is begun anew", func() bool {
		log, found, err := metal.ReadConsoleLog(context.Background(), b.store, nil, b.node)
		return err == nil && found && len(log.Parts) == 0
	})
	w.serial <- "bob's\n"
	w.awaitLog(t, "bob's\n")
	w.stop()
}

// TestConsoleOfAnotherConductor: one conductor reads.
func TestConsoleOfAnotherConductor(t *testing.T) {
	t.Parallel()
	w := newBench(t, metal.Active).readsConsole(t)
	w.serial <- "one\n"
	w.mu.Lock()
	w.mine = false
	w.mu.Unlock()
	w.awaitLook(t, metal.Active)
	select {
	case w.serial <- "two\n":
		t.Error("the console is still read")
	case <-time.After(20 * time.Millisecond):
	}
	w.awaitLog(t, "one\n")
}

// TestConsoleIsOpenedAgain: the log says why it is not read, and the reading goes on.
func TestConsoleIsOpenedAgain(t *testing.T) {
	t.Parallel()
	w := newBench(t, metal.Active).readsConsole(t)
	w.serial <- "one\n"
	for range 3 {
		w.reads <- problem.Conflictf("somebody else reads the serial line")
	}
	w.serial <- "two\n"
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
	w.serial <- panicText
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
		"a login":                    {loginText, "target", metal.RepairProven, "login prompt"},
		"ssh was mended":             {loginText, "sshd", metal.RepairUnproven, "knows no address"},
		"it still does not boot":     {panicText, "target", metal.RepairUnproven, "The console shows that the initramfs does not find the root file system"},
		"the machine writes nothing": {"", "target", metal.RepairUnproven, "within"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newRepaired(t, metal.PowerOff)
			change(t, b, func(n *metal.Node) { n.NetworkData = nil })
			b.con.ProofTime = 2 * time.Second
			b.mender.stage = tc.stage
			w := b.readsConsole(t)
			w.serial <- loginText
			w.awaitLog(t, loginText)
			b.beforeBoot = func() {
				w.awaitLook(t, metal.Unrescuing)
				if tc.says != "" {
					w.serial <- tc.says
				}
			}
			b.run(t)
			r := b.repair(t, b.withDigest(t))
			if r.State != tc.want || !strings.Contains(r.ProvenBy+r.Problem, tc.why) {
				t.Errorf("repair %+v", r)
			}
		})
	}
}
