package storetest

import (
	"errors"
	"fmt"
	"time"

	"pgregory.net/rapid"

	"salvor/job"
	"salvor/problem"
	"salvor/store"
	"salvor/test/must"
)

func testSignal(b *testEnv) {
	b.signal("a") // nobody waits
	j := b.insert(job.Operation, "a")
	j1 := b.parked()
	b.inState(j.ID, job.Waiting)
	b.signal("a")
	if got := b.inState(j.ID, job.Ready); got.Signals != 1 {
		b.Fatalf("signalled: %+v", got)
	}
	claimed := b.claimOne()
	if claimed.Signals != 1 || claimed.Seen != 1 || claimed.Fence != j1.Fence+1 {
		b.Fatalf("claimed: %+v", claimed)
	}
	// Between look and park.
	b.signal("a")
	claimed.State, claimed.Due = job.Waiting, time.Now().Add(time.Hour)
	b.save(&claimed, false)
	got := b.inState(j.ID, job.Ready)
	if got.Owner != "" || got.Due.After(b.s.Now()) {
		b.Fatalf("signalled while it parked: %+v", got)
	}
	b.parked()
	b.inState(j.ID, job.Waiting) // that signal was seen by the second look
	b.signal("other")
	b.inState(j.ID, job.Waiting)
	// Asks and commands are not told.
	ask := b.insert(job.Background, "a")
	b.signal("a")
	if b.read(ask.ID).Signals != 0 {
		b.Fatal("an ask was signalled")
	}
	claims := b.claim(owner)
	if len(claims) != 2 {
		b.Fatalf("%d claims", len(claims))
	}
}

// testSignalUnderLock: while a command locks the subject a signal is only counted, and the end of the lock wakes the operation.
func testSignalUnderLock(b *testEnv) {
	op := b.insert(job.Operation, "a")
	b.parked()
	b.insert(job.Command, "a")
	b.signal("a")
	b.inState(op.ID, job.Waiting)
	command := b.claimOne()
	b.signal("a")
	b.save(&command, true)
	b.inState(op.ID, job.Waiting)
	command.State = job.Ready // a retry keeps the lock
	b.save(&command, false)
	b.inState(op.ID, job.Waiting)
	command = b.claimOne()
	command.State = job.Ended
	b.save(&command, false)
	b.inState(op.ID, job.Ready)
	b.parked()
	// A command that ends without a signal wakes nobody.
	b.insert(job.Command, "a")
	command = b.claimOne()
	command.State = job.Ended
	b.save(&command, false)
	b.inState(op.ID, job.Waiting)
	// One that parks gives the lock up as well.
	b.insert(job.Command, "a")
	command = b.claimOne()
	b.signal("a")
	command.State = job.Waiting
	b.save(&command, false)
	b.inState(op.ID, job.Ready)
}

// testSignalRace: a row is written and signalled while its job parks, or while a
// command gives its lock up. Whatever comes first, the job does not sleep over it.
func testSignalRace(b *testEnv) {
	stores := []*store.Store{b.s, b.other()}
	for round := range 30 {
		id := fmt.Sprint("n", round)
		op := b.insert(job.Operation, id)
		j := b.claimOne()
		locker := j
		if round%2 == 1 { // the operation waits already; a command ends
			j.State = job.Waiting
			b.save(&j, false)
			b.insert(job.Command, id)
			locker = b.claimOne()
		}
		countConcurrentWins(3, func(i int) bool {
			s := stores[i%2]
			err := s.Do(b.ctx, func(tx job.Tx) error {
				if i > 0 {
					return s.Signal(tx, job.Node(id))
				}
				saved := locker
				saved.State = job.Waiting
				if round%2 == 1 {
					saved.State = job.Ended
				}
				return s.Save(tx, &saved, false)
			})
			if err != nil {
				b.Error(err)
			}
			return true
		})
		got := b.inState(op.ID, job.Ready)
		if got.Signals != 2 {
			b.Fatalf("round %d: %d signals", round, got.Signals)
		}
		done := b.claimOne()
		done.State = job.Ended
		b.save(&done, false)
	}
}

// testInterruptRace: abort, heartbeat and time-out meet; the row is swapped by exactly one.
func testInterruptRace(b *testEnv) {
	stores := []*store.Store{b.s, b.other()}
	for round := range 30 {
		id := fmt.Sprint("n", round)
		b.insert(job.Operation, id)
		parked := b.parked()
		errAwake := errors.New("already awake")
		wins := countConcurrentWins(4, func(i int) bool {
			s := stores[i%2]
			err := s.Do(b.ctx, func(tx job.Tx) error {
				switch i {
				case 0, 1:
					return s.Interrupt(tx, parked.ID, job.Undoing, problem.Conflictf("abort %d", i))
				case 2:
					return s.Interrupt(tx, parked.ID, job.Ended, nil)
				}
				if err := s.Signal(tx, job.Node(id)); err != nil {
					return err
				}
				if j, err := s.Job(b.ctx, tx, parked.ID); err != nil || j.State != job.Ready {
					return errors.Join(err, errAwake)
				}
				return nil
			})
			if err != nil && !problem.Is(err, problem.Conflict) && !errors.Is(err, errAwake) {
				b.Error(err)
			}
			return err == nil
		})
		if wins != 1 {
			b.Fatalf("round %d: %d winners", round, wins)
		}
		for _, j := range b.claim(owner) {
			j.State = job.Ended
			b.save(&j, false)
		}
	}
}

// testSignalModel walks through random turns of one subject beside a model of the rules.
func testSignalModel(b *testEnv) {
	n := 0
	rapid.Check(b.T, func(t *rapid.T) {
		n++
		m := &subjectModel{b: b, t: t, subject: job.Node(fmt.Sprint("m", n))}
		m.insert()
		t.Repeat(map[string]func(*rapid.T){
			"signal": m.signal, "claim": m.claim, "park": m.park, "command": m.command, "end command": m.endCommand, "crash": m.crash, "": m.check,
		})
	})
}

// subjectModel is what a subject's operation and command are by the rules.
type subjectModel struct {
	b        *testEnv
	t        *rapid.T
	subject  job.Subject
	id       string
	op, cmd  job.Job // as last claimed
	state    job.State
	cmdState job.State // empty: none
	unseen   bool      // a signal came since the last claim
}

func (m *subjectModel) do(fn func(tx job.Tx) error) {
	must.OK(m.t, m.b.s.Do(m.b.ctx, fn))
}

func (m *subjectModel) insert() {
	j := &job.Job{Kind: "work", Version: 1, Class: job.Operation, Subject: m.subject, Group: m.subject.ID}
	m.do(func(tx job.Tx) error { return m.b.s.Insert(tx, j) })
	m.id, m.state = j.ID, job.Ready
}

func (m *subjectModel) signal(*rapid.T) {
	m.do(func(tx job.Tx) error { return m.b.s.Signal(tx, m.subject) })
	m.unseen = true
	if m.state == job.Waiting && m.cmdState == "" {
		m.state = job.Ready
	}
}

func (m *subjectModel) claim(t *rapid.T) {
	jobs := must.Get(m.b.s.Claim(m.b.ctx, owner, m.b.s.Now(), []string{m.subject.ID}, map[job.Kind]int{"work": 1}, 5))(t)
	for _, j := range jobs {
		switch {
		case j.ID == m.id && m.state == job.Ready:
			m.op, m.state, m.unseen = j, job.Running, false
		case j.ID != m.id && m.cmdState == job.Ready:
			m.cmd, m.cmdState = j, job.Running
		default:
			t.Fatalf("claimed %+v while the operation is %s and the command %s", j, m.state, m.cmdState)
		}
	}
}

func (m *subjectModel) park(t *rapid.T) {
	if m.state != job.Running {
		t.Skip()
	}
	m.op.State = job.Waiting
	m.do(func(tx job.Tx) error { return m.b.s.Save(tx, &m.op, false) })
	if m.state = job.Waiting; m.unseen {
		m.state = job.Ready
	}
}

func (m *subjectModel) command(t *rapid.T) {
	j := &job.Job{Kind: "work", Version: 1, Class: job.Command, Subject: m.subject, Group: m.subject.ID}
	err := m.b.s.Do(m.b.ctx, func(tx job.Tx) error { return m.b.s.Insert(tx, j) })
	free := m.state == job.Waiting && m.cmdState == ""
	if free != (err == nil) || err != nil && !problem.Is(err, problem.Conflict) {
		t.Fatalf("a command while the operation is %s and the command %q: %v", m.state, m.cmdState, err)
	}
	if free {
		m.cmdState = job.Ready
	}
}

func (m *subjectModel) endCommand(t *rapid.T) {
	if m.cmdState != job.Running {
		t.Skip()
	}
	m.cmd.State = job.Ended
	m.do(func(tx job.Tx) error { return m.b.s.Save(tx, &m.cmd, false) })
	m.cmdState = ""
	if m.state == job.Waiting && m.unseen {
		m.state = job.Ready
	}
}

func (m *subjectModel) crash(t *rapid.T) {
	m.b.retire()
	if m.state == job.Running {
		m.state = job.Ready
	}
	if m.cmdState == job.Running {
		m.cmdState = job.Ready
	}
}

func (m *subjectModel) check(t *rapid.T) {
	j, err := m.b.s.Job(m.b.ctx, nil, m.id)
	if err != nil || j.State != m.state {
		t.Fatalf("the operation is %s, by the rules %s: %v", j.State, m.state, err)
	}
}
