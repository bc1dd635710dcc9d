package node

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"salvor/conductor/conductortest"
	"salvor/driver"
	"salvor/job"
	"salvor/job/jobtest"
	"salvor/metal"
	"salvor/problem"
	"salvor/record"
	"salvor/secret"
	"salvor/test/fixture"
	"salvor/test/must"
)

// gear is what the bench's machine has beside power and boot.
type gear struct {
	mode, indicator, medium, health string
	secure, console                 bool
	nmis, restarts, softRestarts    int
	called                          metal.VendorCall
	turbo                           string
	refuses                         error
}

func (b *bench) geared(do func(*gear)) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.gear.refuses != nil {
		return b.gear.refuses
	}
	do(&b.gear)
	return nil
}

func (b *bench) BootMode(context.Context, *metal.Node) (mode string, err error) {
	return mode, b.geared(func(g *gear) { mode = g.mode })
}

func (b *bench) SetBootMode(_ context.Context, _ *metal.Node, mode string) error {
	return b.geared(func(g *gear) { g.mode = mode })
}

func (b *bench) SecureBoot(context.Context, *metal.Node) (on bool, err error) {
	return on, b.geared(func(g *gear) { on = g.secure })
}

func (b *bench) SetSecureBoot(_ context.Context, _ *metal.Node, on bool) error {
	return b.geared(func(g *gear) { g.secure = on })
}

func (b *bench) Indicators(context.Context, *metal.Node) (map[string]map[string]metal.Indicator, error) {
	return map[string]map[string]metal.Indicator{"system": {"led": {States: []string{"on"}}}}, nil
}

func (b *bench) Indicator(context.Context, *metal.Node, string, string) (state string, err error) {
	return state, b.geared(func(g *gear) { state = g.indicator })
}

func (b *bench) SetIndicator(_ context.Context, n *metal.Node, _, _, state string) error {
	n.InternalInfo = metal.Object{"lamp": state, "kept": n.InternalInfo["kept"]}
	return b.geared(func(g *gear) { g.indicator = state })
}

func (b *bench) Media(context.Context, *metal.Node) (out []metal.Medium, err error) {
	return out, b.geared(func(g *gear) { out = []metal.Medium{{Image: g.medium}} })
}

func (b *bench) AttachMedium(_ context.Context, _ *metal.Node, m metal.MediumArgs) error {
	return b.geared(func(g *gear) { g.medium = m.DeviceType + " " + m.ImageURL })
}

func (b *bench) DetachMedia(context.Context, *metal.Node, []string) error {
	return b.geared(func(g *gear) { g.medium = "" })
}

func (b *bench) InjectNMI(context.Context, *metal.Node) error {
	return b.geared(func(g *gear) { g.nmis++ })
}

func (b *bench) Restart(ctx context.Context, n *metal.Node) error {
	if err := b.SetPower(ctx, n, metal.PowerOff); err != nil {
		return err
	}
	if err := b.SetPower(ctx, n, metal.PowerOn); err != nil {
		return err
	}
	return b.geared(func(g *gear) { g.restarts++ })
}

func (b *bench) SoftRestart(ctx context.Context, _ *metal.Node) error {
	if err := b.answers(ctx); err != nil {
		return err
	}
	return b.geared(func(g *gear) { g.softRestarts++ })
}

func (b *bench) ReadPowerAndHealth(ctx context.Context, n *metal.Node) (metal.Power, string, error) {
	power, err := b.PowerState(ctx, n)
	b.mu.Lock()
	defer b.mu.Unlock()
	return power, b.gear.health, err
}

// ReadEventLog has one entry, which says how many were asked for.
func (b *bench) ReadEventLog(_ context.Context, _ *metal.Node, limit int) (metal.EventLog, error) {
	return metal.EventLog{Entries: []metal.LogEntry{{ID: fmt.Sprint(limit), Severity: metal.HealthOK}}}, nil
}

func (b *bench) ReadHealth(context.Context, *metal.Node) (metal.Health, error) {
	return metal.Health{Health: metal.HealthWarning}, nil
}

// parts are the bench's interfaces of the kinds that not all hardware has.
type parts struct{ b *bench }

func (p parts) BIOSSettings(context.Context, *metal.Node) (out []metal.BIOSSetting, err error) {
	return out, p.b.geared(func(g *gear) { value := g.turbo; out = []metal.BIOSSetting{{Name: "Turbo", Value: &value}} })
}

func (p parts) Components(context.Context, *metal.Node) ([]metal.FirmwareComponent, error) {
	return []metal.FirmwareComponent{{Component: "bmc", InitialVersion: "2", CurrentVersion: "2"}}, p.b.geared(func(*gear) {})
}

func (p parts) StartConsole(context.Context, *metal.Node) error {
	return p.b.geared(func(g *gear) { g.console = true })
}

func (p parts) StopConsole(context.Context, *metal.Node) error {
	return p.b.geared(func(g *gear) { g.console = false })
}

func (p parts) ConsoleInfo(context.Context, *metal.Node) (metal.Object, error) {
	return metal.Object{"type": "socat"}, nil
}

func (p parts) ReadConsole(ctx context.Context, _ *metal.Node, opened func(), w io.Writer) error {
	if p.b.serial == nil {
		return problem.Unsupportedf("the machine has no serial line")
	}
	opened()
	for {
		select {
		case text := <-p.b.serial:
			_, _ = io.WriteString(w, text)
		case err := <-p.b.reads:
			return err
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (p parts) Call(_ context.Context, _ *metal.Node, c metal.VendorCall) (any, error) {
	return c.Args["x"], p.b.geared(func(g *gear) { g.called = c })
}

var (
	_ driver.VirtualMedia  = (*bench)(nil)
	_ driver.Console       = parts{}
	_ driver.ConsoleReader = parts{}
)

// say asks or tells the machine, and waits for what comes of it.
func (b *bench) say(t *testing.T, q metal.Question) (string, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	id, err := b.nodes.Ask(ctx, b.node, q, record.Asker{})
	if err != nil {
		return "", err
	}
	raw, err := b.nodes.Answer(ctx, id)
	return string(raw), err
}

func commandQuestion(kind job.Kind, args any) metal.Question {
	return metal.Question{Class: job.Command, Kind: kind, Args: args}
}

func TestSweepHardware(t *testing.T) {
	t.Parallel()
	for _, q := range []metal.Question{
		commandQuestion("set boot mode", metal.BootModeArgs{Mode: "bios"}),
		commandQuestion("set console", metal.ConsoleArgs{Enabled: true}),
		{Class: job.Command, Kind: "attach virtual media", Args: metal.MediumArgs{DeviceType: "cdrom"}, Secret: secret.New(`{"image_url":"http://user:pw@x/y"}`)},
		commandQuestion("set indicator", metal.IndicatorArgs{Component: "system", Name: "led", State: "on"}),
	} {
		t.Run(string(q.Kind), func(t *testing.T) {
			conductortest.Sweep(t, func(t *testing.T) *jobtest.World {
				b := newBench(t, metal.Active)
				w := b.world(q.Kind, func(t *testing.T) {
					must.Get(b.nodes.Ask(context.Background(), b.node, q, record.Asker{}))(t)
				}, func(t *testing.T) {
					if n := b.noSecretLeft(t); q.Kind != "set indicator" && !strings.HasPrefix(n.LastError, "Failed to "+string(q.Kind)) {
						t.Errorf("error %q", n.LastError)
					}
				})
				w.Picture = func(t *testing.T) string {
					n := b.read(t)
					return b.picture(t) + fmt.Sprint(b.gear, n.BootMode, n.ConsoleEnabled, n.InternalInfo)
				}
				return w
			})
		})
	}
}

func TestWishes(t *testing.T) {
	t.Parallel()
	b := newBench(t, metal.Active)
	change(t, b, func(n *metal.Node) { n.InternalInfo = metal.Object{"kept": "yes", "other": "yes"} })
	b.run(t)
	for _, c := range []struct {
		q    metal.Question
		want string
		is   func() bool
	}{
		{metal.Question{Class: job.Background, Kind: "list indicators", Args: noArgs{}}, `{"system":{"led":{"readonly":false,"states":["on"]}}}`, nil},
		{commandQuestion("set indicator", metal.IndicatorArgs{Component: "system", Name: "led", State: "on"}), "null", func() bool { return b.gear.indicator == "on" }},
		{metal.Question{Class: job.Background, Kind: "get indicator", Args: metal.IndicatorArgs{}}, `"on"`, nil},
		{commandQuestion("inject nmi", noArgs{}), "null", func() bool { return b.gear.nmis == 1 }},
		{metal.Question{Class: job.Background, Kind: metal.EventLogKind, Args: metal.EventLogArgs{Limit: 7}}, `{"entries":[{"log":"","id":"7","severity":"ok","sensor":"","message":"","message_id":"","state":""}],"logs":null}`, nil},
		{metal.Question{Class: job.Background, Kind: metal.HealthKind, Args: noArgs{}}, `{"health":"warning","unhealthy":null,"truncated":false}`, nil},
		{metal.Question{Class: job.Background, Kind: "get console", Args: noArgs{}}, "null", nil},
		{commandQuestion("set console", metal.ConsoleArgs{Enabled: true}), "null", func() bool { return b.read(t).ConsoleEnabled }},
		{metal.Question{Class: job.Background, Kind: "get console", Args: noArgs{}}, `{"type":"socat"}`, nil},
		{commandQuestion("set secure boot", metal.SecureBootArgs{On: true}), "null", func() bool { return *b.read(t).SecureBoot }},
		{
			metal.Question{Class: job.Command, Kind: "vendor command", Args: metal.VendorCall{Method: "m"}, Secret: secret.New(`{"args":{"x":"y"}}`)}, `"y"`,
			func() bool { return b.gear.called.Method == "m" && b.gear.called.Args["x"] == "y" },
		},
		{commandQuestion("detach virtual media", metal.MediumArgs{}), "null", nil},
	} {
		got, err := b.say(t, c.q)
		if err != nil || got != c.want {
			t.Errorf("%s: %s, %v; want %s", c.q.Kind, got, err, c.want)
		}
		if c.is != nil && !c.is() {
			t.Errorf("%s: not so: %+v", c.q.Kind, b.gear)
		}
	}
	info := b.read(t).InternalInfo
	if info["lamp"] != "on" || info["kept"] != "yes" || info["other"] != nil {
		t.Errorf("the driver's facts: %v", info)
	}
	if _, err := b.say(t, metal.Question{Class: job.Background, Kind: metal.EventLogKind, Args: metal.EventLogArgs{Limit: metal.MaxLogEntries + 1}}); !problem.Is(err, problem.Invalid) {
		t.Errorf("a limit out of bounds: %v", err)
	}
	if _, err := b.say(t, metal.Question{Class: job.Background, Kind: "get virtual media", Args: noArgs{}, Part: "bogus"}); !problem.Is(err, problem.Unsupported) {
		t.Errorf("no such part: %v", err)
	}
}

// TestFailureOfAWish is told to who waits, and shown on the node to who did not.
func TestFailureOfAWish(t *testing.T) {
	t.Parallel()
	b := newBench(t, metal.Active)
	b.gear.refuses = problem.Invalidf("it does not like it")
	b.run(t)
	_, err := b.say(t, commandQuestion("set boot mode", metal.BootModeArgs{Mode: "bios"}))
	if n := b.read(t); !problem.Is(err, problem.Invalid) || !strings.Contains(n.LastError, "Failed to set boot mode: it does not like it") || n.BootMode != "" {
		t.Errorf("%v; the node says %q, mode %q", err, n.LastError, n.BootMode)
	}
}

// TestAVendorCommandLeavesLastError: clients read their own operations from it, such as baremetal-operator before it powers off.
func TestAVendorCommandLeavesLastError(t *testing.T) {
	t.Parallel()
	b := newBench(t, metal.Active)
	b.gear.refuses = problem.Invalidf("it does not like it")
	b.run(t)
	_, err := b.say(t, metal.Question{Class: job.Command, Kind: "vendor command", Args: metal.VendorCall{Method: "m"}})
	if n := b.read(t); !problem.Is(err, problem.Invalid) || n.LastError != "" {
		t.Errorf("%v; the node says %q", err, n.LastError)
	}
}

// TestSentOnce: a command that cannot be repeated is not, whoever died over it.
func TestSentOnce(t *testing.T) {
	t.Parallel()
	b := newBench(t, metal.Active)
	must.OK(t, b.store.Do(context.Background(), func(tx job.Tx) error {
		return b.store.Insert(tx, &job.Job{Kind: "inject nmi", Class: job.Command, Subject: job.Node(b.node), Args: json.RawMessage(`{}`), Memo: map[string]string{sentMemo: "once"}})
	}))
	b.run(t)
	fixture.Poll(t, "the command ends", func() bool { return len(b.open(t)) == 0 })
	if b.gear.nmis != 0 {
		t.Error("it was sent again")
	}
}

// TestManageNotesTheHardware: what the controller tells is kept, and what it does not is no failure.
func TestManageNotesTheHardware(t *testing.T) {
	t.Parallel()
	b := newBench(t, metal.Enroll)
	b.gear = gear{mode: "uefi", secure: true, health: "Warning", turbo: "on"}
	b.run(t)
	b.start(t, metal.Manage)
	n := b.until(t, metal.Manageable)
	if n.BootMode != "uefi" || n.SecureBoot == nil || !*n.SecureBoot || n.Health != "Warning" {
		t.Errorf("mode %q, secure %v, health %q", n.BootMode, n.SecureBoot, n.Health)
	}
	settings, err := b.nodes.BIOSSettings(t.Context(), b.node)
	if err != nil || len(settings) != 1 || *settings[0].Value != "on" || settings[0].CreatedAt.IsZero() || !settings[0].UpdatedAt.IsZero() {
		t.Errorf("settings %+v, %v", settings, err)
	}
	firmware, err := b.nodes.Firmware(t.Context(), b.node)
	if err != nil || len(firmware) != 1 || firmware[0].CurrentVersion != "2" {
		t.Errorf("firmware %+v, %v", firmware, err)
	}
	off := "off"
	err = b.store.Do(t.Context(), func(tx job.Tx) error {
		return b.nodes.KeepBIOSSettings(t.Context(), tx, b.node, []metal.BIOSSetting{{Name: "Turbo", Value: &off}})
	})
	again, err2 := b.nodes.BIOSSettings(t.Context(), b.node)
	if err != nil || err2 != nil || !again[0].CreatedAt.Equal(settings[0].CreatedAt) || again[0].UpdatedAt.IsZero() || *again[0].Value != "off" {
		t.Errorf("changed: %+v, %v, %v", again, err, err2)
	}

	b = newBench(t, metal.Enroll)
	b.gear.refuses = problem.Unavailablef("not now")
	b.run(t)
	b.start(t, metal.Manage)
	if n := b.until(t, metal.Manageable); n.BootMode != "" || n.LastError != "" {
		t.Errorf("mode %q, error %q", n.BootMode, n.LastError)
	}
}

func TestPowerSyncTellsOfHealth(t *testing.T) {
	t.Parallel()
	b := newBench(t, metal.Active)
	for _, word := range []string{"OK", "Critical", ""} {
		b.gear.health = word
		b.con.syncOnce(t.Context(), everyNode)
		if n := b.read(t); n.Health != word {
			t.Errorf("health %q, want %q", n.Health, word)
		}
	}
	events, err := b.store.Events(t.Context(), job.Node(b.node), 0, 100)
	if err != nil || !strings.Contains(fmt.Sprint(events), "health is Critical") {
		t.Errorf("the timeline says nothing of it: %v", err)
	}
}

// TestNoPowerOff: a machine that must not be switched off is restarted instead, by a
// rescue too, and asking for off is refused.
func TestNoPowerOff(t *testing.T) {
	t.Parallel()
	b := newBench(t, metal.Active)
	change(t, b, func(n *metal.Node) { n.DisablePowerOff = true })
	for _, target := range []metal.PowerTarget{metal.TurnOff, metal.SoftOff} {
		if err := b.nodes.SetPower(t.Context(), b.node, target, 0, record.Asker{}); !problem.Is(err, problem.Invalid) {
			t.Errorf("%s: %v", target, err)
		}
	}
	b.run(t)
	must.OK(t, b.nodes.SetPower(t.Context(), b.node, metal.Reboot, 0, record.Asker{}))
	if n := b.ends(t); n.PowerState != metal.PowerOn || b.gear.restarts != 1 {
		t.Errorf("reboot: power %q after %d restarts: %s", n.PowerState, b.gear.restarts, n.LastError)
	}
	must.OK(t, b.nodes.SetPower(t.Context(), b.node, metal.SoftReboot, 0, record.Asker{}))
	if n := b.ends(t); n.PowerState != metal.PowerOn || n.LastError != "" || b.gear.softRestarts != 1 || b.gear.restarts != 1 {
		t.Errorf("soft reboot: power %q after %d soft restarts, %d restarts: %s", n.PowerState, b.gear.softRestarts, b.gear.restarts, n.LastError)
	}
	b.start(t, metal.ToRescue)
	n := b.ends(t)
	if n.ProvisionState != metal.Rescue || b.gear.restarts != 2 {
		t.Errorf("rescue: %s after %d restarts: %s", n.ProvisionState, b.gear.restarts, n.LastError)
	}
	b.start(t, metal.Unrescue)
	if n := b.ends(t); n.ProvisionState != metal.Active || b.gear.restarts != 3 || b.running != "system" {
		t.Errorf("unrescue: %s, runs %q, %d restarts: %s", n.ProvisionState, b.running, b.gear.restarts, n.LastError)
	}
}
