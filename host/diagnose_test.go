package host

import (
	"bufio"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/uuid"

	"salvor/compute"
	"salvor/hypervisor"
	"salvor/hypervisor/fake"
	"salvor/problem"
	"salvor/rescue"
	"salvor/test/must"
	"salvor/wire/agent"
)

// helperWorld is a host with a server that is off, whose helpers answer as the test says.
type helperWorld struct {
	*world
	agent   *Agent
	machine *fake.Hypervisor
	spec    *compute.Spec
}

func newHelperWorld(t *testing.T) *helperWorld {
	t.Helper()
	w := &helperWorld{world: newWorld(t), machine: fake.New()}
	c := w.config(newGuests())
	c.Hypervisor = w.machine
	w.agent, _ = w.start(c)
	await(t, "the lease", func() bool { held, _ := w.agent.Leased(); return held })
	id := uuid.NewString()
	w.spec = specFor(id, compute.SpecDisk{Name: "vda", SizeGiB: 1}, compute.SpecDisk{Name: "vdb", VolumeID: uuid.NewString(), Portal: "192.0.2.1:3260", IQN: "iqn.x"})
	local := *w.spec
	local.Disks = local.Disks[:1]
	w.done(orderFor(w.agent, id, compute.Prepare, compute.Args{Spec: &local}, nil))
	w.done(orderFor(w.agent, id, compute.Define, compute.Args{Spec: &local}, nil))
	image := func(text string) *compute.SpecImage {
		return &compute.SpecImage{Digest: w.images.add([]byte(text)), Format: "aki", Size: int64(len(text))}
	}
	w.spec.Rescue = &compute.SpecRescue{Source: rescue.Source{Kind: rescue.Kernel, Access: rescue.ByChannel}, Image: image("kernel"), RamdiskImage: image("ramdisk")}
	return w
}

func (w *helperWorld) order() *compute.Order {
	return orderFor(w.agent, w.spec.ServerID, compute.Diagnose, compute.Args{Spec: w.spec}, nil)
}

// answerLines reads the host's line and writes these lines.
func answerLines(lines ...string) func(hypervisor.Domain, net.Conn) {
	return func(_ hypervisor.Domain, host net.Conn) {
		if _, err := bufio.NewReader(host).ReadBytes('\n'); err != nil {
			return
		}
		for _, line := range lines {
			if _, err := host.Write([]byte(line + "\n")); err != nil {
				return
			}
		}
	}
}

const beginsLine = `{"version":1,"agent":"salvor-agent/1","examining":true}`

// The helper is booted with the server's own disk and no volume, and what its agent found comes back. Nothing of that stays on the host.
func TestDiagnose(t *testing.T) {
	w := newHelperWorld(t)
	disk := w.agent.stores[0]
	path := must.Get(disk.place(w.spec.ServerID, w.spec.Disks[0]))(t)
	before := sha256.Sum256(mustRead(t, path)[:1<<20])
	var seen hypervisor.Domain
	w.machine.AnswerHelpers(func(d hypervisor.Domain, host net.Conn) {
		seen = d
		answerLines("noise of a boot", `{"version":7}`, beginsLine, `{"version":1,"agent":"a","examination":{"seconds":1,"systems":[]}}`)(d, host)
	})
	r := w.done(w.order())
	if string(r.Examination) != `{"seconds":1,"systems":[]}` {
		t.Errorf("the examination is %s", r.Examination)
	}
	if len(seen.Disks) != 1 || seen.Disks[0].Name != "vda" || seen.Paths["vda"].Path != path || string(mustRead(t, seen.RescueImage)) != "kernel" || string(mustRead(t, seen.RescueRamdisk)) != "ramdisk" {
		t.Errorf("the helper is %+v", seen)
	}
	if sha256.Sum256(mustRead(t, path)[:1<<20]) != before || w.machine.Helpers() != 0 || fileIsThere(seen.ChannelPath) {
		t.Error("the disk has changed, or the helper or its channel is left")
	}
	for _, entry := range must.Get(os.ReadDir(filepath.Join(w.agent.StateDir, "journal")))(t) {
		if text := mustRead(t, filepath.Join(w.agent.StateDir, "journal", entry.Name())); strings.Contains(string(text), "seconds") {
			t.Errorf("the journal holds the examination: %s", text)
		}
	}
}

// LUKS keys go to the helper's agent by its channel alone: they are in no file of the host and not in the definition of the helper.
func TestDiagnoseWithLUKSKeys(t *testing.T) {
	w := newHelperWorld(t)
	var seen hypervisor.Domain
	var asked agent.Unlock
	w.machine.AnswerHelpers(func(d hypervisor.Domain, host net.Conn) {
		seen = d
		line, err := bufio.NewReader(host).ReadBytes('\n')
		if err != nil || json.Unmarshal(line, &asked) != nil {
			return
		}
		_, _ = host.Write([]byte(beginsLine + "\n" + `{"version":1,"agent":"a","examination":{"seconds":1,"systems":[]}}` + "\n"))
	})
	w.done(orderFor(w.agent, w.spec.ServerID, compute.Diagnose, compute.Args{Spec: w.spec, OnlyRead: true}, &compute.OrderSecret{LUKSKeys: [][]byte{[]byte("open-sesame")}, LUKSKeysByUUID: map[string][][]byte{"0dd1e5c4": {[]byte("barley")}}}))
	if p := asked.Examine; p == nil || !p.OnlyRead || len(p.LUKSKeys) != 1 || string(p.LUKSKeys[0]) != "open-sesame" || len(p.LUKSKeysByUUID) != 1 || string(p.LUKSKeysByUUID["0dd1e5c4"][0]) != "barley" {
		t.Errorf("the helper's agent is asked %+v", p)
	}
	encoded := base64.StdEncoding.EncodeToString([]byte("open-sesame"))
	hasKey := func(text string) bool {
		return strings.Contains(text, "open-sesame") || strings.Contains(text, encoded)
	}
	if hasKey(fmt.Sprintf("%+v", seen)) {
		t.Errorf("the definition of the helper has a key: %+v", seen)
	}
	must.OK(t, filepath.WalkDir(w.agent.StateDir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || !entry.Type().IsRegular() || filepath.Ext(path) == ".raw" {
			return err
		}
		if hasKey(string(mustRead(t, path))) {
			t.Errorf("%s holds a key", path)
		}
		return nil
	}))
}

// An order that comes during an examination ends it: the server starts at once, and no helper is beside it.
func TestStartEndsADiagnosis(t *testing.T) {
	w := newHelperWorld(t)
	begun := make(chan bool)
	w.machine.AnswerHelpers(func(d hypervisor.Domain, host net.Conn) {
		answerLines(beginsLine)(d, host)
		close(begun)
	})
	o := w.order()
	w.post(o)
	<-begun
	// QEMU's lock would refuse this start, were the helper still there.
	w.done(orderFor(w.agent, w.spec.ServerID, compute.SetPower, powerOn, nil))
	if g, _ := w.machine.State(w.spec.ServerID); g.Power != compute.PowerOn || w.machine.Helpers() != 0 {
		t.Errorf("the server is %s, beside %d helpers", g.Power, w.machine.Helpers())
	}
	await(t, "the end of the examination", func() bool { return must.Get(w.store.Order(t.Context(), nil, o.ID))(t).Result != nil })
	if r := must.Get(w.store.Order(t.Context(), nil, o.ID))(t).Result; r.ErrorKind != problem.Conflict.String() || !strings.Contains(r.Error, "overtaken") {
		t.Errorf("the examination ended with %+v", r)
	}
	if r := w.send(w.order()); r.ErrorKind != problem.Conflict.String() || !strings.Contains(r.Error, "in use") {
		t.Errorf("a server that runs was examined: %+v", r)
	}
}

// TestExaminationSlots: they take none of those of other orders, and one that waits for its own ends when its server shall start.
func TestExaminationSlots(t *testing.T) {
	w := newHelperWorld(t)
	w.machine.AnswerHelpers(answerLines(beginsLine, `{"version":1,"agent":"a","examination":{"seconds":1,"systems":[]}}`))
	for range cap(w.agent.orders.slots) {
		w.agent.orders.slots <- struct{}{}
	}
	w.done(w.order())
	for range cap(w.agent.orders.slots) {
		<-w.agent.orders.slots
	}
	w.agent.orders.helpers <- struct{}{}
	o := w.order()
	w.post(o)
	w.done(orderFor(w.agent, w.spec.ServerID, compute.SetPower, powerOn, nil))
	await(t, "the end of the examination that waits", func() bool { return must.Get(w.store.Order(t.Context(), nil, o.ID))(t).Result != nil })
	<-w.agent.orders.helpers
}

// Whatever a helper answers, its size is bounded and the order says what to do.
func TestHostileHelper(t *testing.T) {
	w := newHelperWorld(t)
	for _, c := range []struct {
		name, says string
		kind       problem.Kind
		lines      []string
	}{
		{"an agent of a former release", "--profile diagnose", problem.Unsupported, []string{`{"version":1,"agent":"a","error":"the line brings neither a hash nor a key"}`}},
		{"a failure", "no device-mapper", problem.Conflict, []string{beginsLine, `{"version":1,"error":"no device-mapper\n"}`}},
		{"too much", "more than", problem.Conflict, []string{beginsLine, `{"version":1,"examination":"` + strings.Repeat("x", agent.MaxExamination+maxLine) + `"}`}},
		{"too much once it is escaped", "at most", problem.Conflict, []string{beginsLine, `{"version":1,"examination":"` + strings.Repeat("<", agent.MaxExamination/2) + `"}`}},
		{"a little too much", "at most", problem.Conflict, []string{beginsLine, `{"version":1,"examination":"` + strings.Repeat("x", agent.MaxExamination) + `"}`}},
	} {
		w.machine.AnswerHelpers(answerLines(c.lines...))
		if r := w.send(w.order()); r.ErrorKind != c.kind.String() || !strings.Contains(r.Error, c.says) || len(r.Error) > 1000 || len(r.Examination) > 0 {
			t.Errorf("%s: %.300s", c.name, fmt.Sprintf("%+v", r))
		}
	}
}

// TestExaminationIsCompacted: its size is that of the report, without the blanks in it, and what leaves the host is no larger.
func TestExaminationIsCompacted(t *testing.T) {
	w := newHelperWorld(t)
	w.machine.AnswerHelpers(answerLines(beginsLine, `{"version":1,"examination":{"seconds":1,`+strings.Repeat(" ", agent.MaxExamination)+`"systems":[{"name":"a<b"}]}}`))
	if r := w.done(w.order()); string(r.Examination) != `{"seconds":1,"systems":[{"name":"a\u003cb"}]}` {
		t.Errorf("the examination is %.200s", r.Examination)
	}
}

// During an examination no other host gets the lease of the disk, and afterwards it is free.
func TestDiagnoseHoldsTheLease(t *testing.T) {
	t.Parallel()
	w := newLeaseHosts(t)
	a, b, spec := w.host(), w.host(), w.spec()
	w.run(a, spec)
	w.ok(w.order(a, compute.SetPower, spec, compute.Args{Power: compute.PowerOff}))
	if l := w.lease(spec); l.State != leaseFree {
		t.Fatalf("the lease of a server that is off is %s", l.State)
	}
	cached := func(text string) *compute.SpecImage {
		digest := fmt.Sprintf("%x", sha256.Sum256([]byte(text)))
		must.OK(t, os.WriteFile(filepath.Join(a.images.dir, digest), []byte(text), 0o600))
		return &compute.SpecImage{Digest: "sha256:" + digest, Format: "aki"}
	}
	examined := *spec
	examined.Rescue = &compute.SpecRescue{Source: rescue.Source{Kind: rescue.Kernel}, Image: cached("kernel"), RamdiskImage: cached("ramdisk")}
	var other compute.Result
	var during diskLease
	a.machine.AnswerHelpers(func(d hypervisor.Domain, host net.Conn) {
		during, _, _ = readLease(w.leasePath(spec))
		o := orderFor(b.Agent, spec.ServerID, compute.Define, compute.Args{Spec: spec}, nil)
		other, _ = b.perform(t.Context(), orderTask{order: o})
		answerLines(beginsLine, `{"version":1,"examination":{"seconds":1}}`)(d, host)
	})
	unlock, _ := a.lock(spec.ServerID) // as each order that is carried out
	r := w.ok(w.order(a, compute.Diagnose, &examined, compute.Args{}, a))
	unlock()
	if !json.Valid(r.Examination) || during.Host != a.ID() || during.State != leaseHeld {
		t.Errorf("%s; the lease was %+v", r.Examination, during)
	}
	w.refused(other, a.ID())
	if l := w.lease(spec); l.State != leaseFree {
		t.Errorf("the lease is %s afterwards", l.State)
	}
}

// TestDiagnoseInRescue: the agent of the rescue system examines, by the guest's own channel. No helper starts.
func TestDiagnoseInRescue(t *testing.T) {
	w := newHelperWorld(t)
	order := func() *compute.Order {
		return orderFor(w.agent, w.spec.ServerID, compute.Diagnose, compute.Args{InRescue: true, OnlyRead: true}, &compute.OrderSecret{LUKSKeys: [][]byte{[]byte("open-sesame")}})
	}
	if r := w.send(order()); r.ErrorKind != problem.Conflict.String() || !strings.Contains(r.Error, "does not run") {
		t.Errorf("of a guest that is off: %+v", r)
	}
	w.done(orderFor(w.agent, w.spec.ServerID, compute.SetPower, compute.Args{Power: compute.PowerOn}, nil))
	channel := filepath.Join(w.agent.StateDir, "servers", w.spec.ServerID, channelFile)
	_ = os.Remove(channel)
	l := must.Get(net.Listen("unix", channel))(t)
	defer l.Close()
	var asked agent.Unlock
	go func() {
		for {
			guest, err := l.Accept()
			if err != nil {
				return
			}
			line, err := bufio.NewReader(guest).ReadBytes('\n')
			if err == nil && json.Unmarshal(line, &asked) == nil && asked.Examine != nil {
				_, _ = guest.Write([]byte("\n" + beginsLine + "\n" + `{"version":1,"agent":"a","examination":{"seconds":2,"systems":[]}}` + "\n"))
			}
			_ = guest.Close()
		}
	}()
	r := w.done(order())
	if string(r.Examination) != `{"seconds":2,"systems":[]}` || len(asked.Examine.LUKSKeys) != 1 || !asked.Examine.OnlyRead || w.machine.Helpers() != 0 {
		t.Errorf("the examination is %s, of %+v", r.Examination, asked.Examine)
	}
}
