package node

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
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
	"salvor/test/fixture"
	"salvor/test/must"
	"salvor/wire/agent"
)

// fakeAgent plays the agent of a ramdisk. A command runs until somebody looks in on the
// ramdisk, and a restart forgets all.
type fakeAgent struct {
	image    bool   // the deploy interface writes one
	steps    bool   // the agent has the step write_image, and no command sync
	findings bool   // the ramdisk inspects
	nic      string // and finds this NIC too
	fails    string
	given    string          // the arguments of the step write_image, and the version of the steps
	drive    string          // the config drive that came with the image
	noDrive  bool            // the image comes without a config drive
	plan     *metal.BootPlan // that the image was prepared by
	commands []agent.Result
	did      map[string]int
	ids      int

	examination string // the outcome of a look at the disks
	luksKeys    int    // keys that came with the last one that had any
	onlyRead    []bool // whether each was to run no program of the disks
}

func newFakeAgent() *fakeAgent { return &fakeAgent{did: map[string]int{}} }

func (a *fakeAgent) reboot() {
	if a != nil {
		a.commands = nil
	}
}

// picture counts what may be done once only.
func (a *fakeAgent) picture() string {
	if a == nil {
		return "nothing"
	}
	var out []string
	for _, name := range slices.Sorted(maps.Keys(a.did)) {
		if !strings.Contains(name, "get_") && name != agent.Sync {
			out = append(out, fmt.Sprint(name, "*", a.did[name]))
		}
	}
	if a.luksKeys > 0 {
		out = append(out, fmt.Sprint(a.luksKeys, " LUKS keys"))
	}
	return strings.Join(out, " ")
}

// work ends what runs, and brings the findings of an inspection.
func (a *fakeAgent) work(b *bench) {
	if a == nil {
		return
	}
	b.mu.Lock()
	for i := range a.commands {
		if c := &a.commands[i]; c.Status == agent.Running {
			c.Status = agent.Succeeded
			if c.Name == "examine" && a.fails == "" {
				c.Outcome = json.RawMessage(a.examination)
			}
			if a.fails != "" && strings.Contains(string(c.Outcome), a.fails) {
				c.Status, c.Error = agent.Failed, &agent.CommandError{Type: agent.ErrChecksum, Message: "Error verifying image checksum", Details: "expected aa, found bb"}
			}
		}
	}
	b.mu.Unlock()
	if !a.findings {
		return
	}
	ctx := context.Background()
	if n, err := b.store.Node(ctx, nil, b.node); err != nil || n.ProvisionState != metal.InspectWait {
		return
	}
	_ = b.store.Do(ctx, func(tx job.Tx) error {
		for kind, body := range map[metal.DocumentKind]string{
			metal.Inventory:  `{"cpu": {"count": 4, "architecture": "x86_64"}, "memory": {"physical_mb": 2048}, "boot": {"current_boot_mode": "uefi"}, "interfaces": [{"mac_address": "52:54:00:00:00:01"}, {"mac_address": "52:54:00:00:00:07", "has_carrier": true}, {"mac_address": "` + a.nic + `"}]}`,
			metal.PluginData: `{"root_disk": {"name": "/dev/sda", "size": 10737418240}, "boot_interface": "01-52-54-00-00-00-07", "salvor_initiators": {"iqn": "iqn.2026-11.org:a", "fibre_channel": [{"wwnn": "20000025b5000001", "wwpn": "20000025b5000002"}]}}`,
		} {
			if err := b.store.SaveDocument(tx, metal.Document{NodeID: b.node, Kind: kind, Body: json.RawMessage(body), CreatedAt: time.Now(), UpdatedAt: time.Now()}); err != nil {
				return err
			}
		}
		return b.store.Signal(tx, job.Node(b.node))
	})
}

// Give takes a command as a real agent does: lists at once, all else in the background.
func (b *bench) Give(_ context.Context, n *metal.Node, at driver.Agent, name string, params any) (agent.Result, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if err := b.answersAs(n, at); err != nil {
		return agent.Result{}, err
	}
	if b.mender != nil && strings.HasPrefix(name, "repair.") {
		return b.giveRepair(name, params)
	}
	if !b.agentUp && !agent.InSession(name) {
		return agent.Result{}, problem.Conflictf("%w", driver.ErrNoCommand)
	}
	a := b.agent
	a.ids++
	res := agent.Result{ID: fmt.Sprint("c", a.ids), Name: name[strings.Index(name, ".")+1:], Status: agent.Succeeded}
	key := name
	switch name {
	case agent.GetCleanSteps:
		res.Outcome = json.RawMessage(`{"clean_steps": {"m": [{"step": "erase_devices", "interface": "deploy", "priority": 10}, {"step": "erase_devices_metadata", "interface": "deploy", "priority": 50}, {"step": "restarting", "interface": "deploy", "priority": 5, "reboot_requested": true}, {"step": "not_ours", "interface": "vendor", "priority": 90}]}, "hardware_manager_version": {"m": "1"}}`)
	case agent.GetDeploySteps:
		list := `{"step": "inject_files", "interface": "deploy", "priority": 0}`
		if a.steps {
			list += `, {"step": "write_image", "interface": "deploy", "priority": 0}`
		}
		res.Outcome = json.RawMessage(`{"deploy_steps": {"m": [` + list + `]}, "hardware_manager_version": {"m": "1"}}`)
	case agent.GetServiceSteps:
		res.Outcome = json.RawMessage(`{"service_steps": {"m": [{"step": "burnin", "interface": "deploy", "priority": 0}]}, "hardware_manager_version": {"m": "1"}}`)
	case agent.PowerOff:
		b.power, b.running, b.agentUp = metal.PowerOff, "", false
	case agent.Sync:
		if a.steps {
			return agent.Result{}, problem.Conflictf("%w", driver.ErrNoCommand)
		}
		if a.fails == agent.Sync {
			res.Status, res.Error = agent.Failed, &agent.CommandError{Message: "fsync: input/output error"}
		}
	default:
		res.Status = agent.Running
		if p, ok := params.(agent.ExamineParams); ok && len(p.LUKSKeys)+len(p.LUKSKeysByUUID) > 0 {
			a.luksKeys = len(p.LUKSKeys) + len(p.LUKSKeysByUUID)
		}
		if p, ok := params.(agent.ExamineParams); ok {
			a.onlyRead = append(a.onlyRead, p.OnlyRead)
		}
		if p, ok := params.(agent.StepParams); ok {
			key += ":" + p.Step.Step
			if text := string(p.Step.Args["image_info"]); text != "" {
				a.given = text + string(p.Step.Args["configdrive"]) + p.DeployVersion["m"]
			}
		}
		res.Outcome = json.RawMessage(`"` + key + `"`)
	}
	a.did[key]++
	a.commands = append(a.commands, res)
	return res, nil
}

// List gives the commands since the ramdisk started.
func (b *bench) List(_ context.Context, n *metal.Node, at driver.Agent) ([]agent.Result, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if err := b.answersAs(n, at); err != nil {
		return nil, err
	}
	if b.mender != nil {
		if !b.mender.serves(b) {
			return nil, problem.Unavailablef("%w", driver.ErrGone)
		}
		return slices.Clone(b.mender.commands), nil
	}
	if b.agent == nil {
		return nil, nil
	}
	return slices.Clone(b.agent.commands), nil
}

// Command gives one of them.
func (b *bench) Command(ctx context.Context, n *metal.Node, at driver.Agent, id string) (agent.Result, error) {
	list, err := b.List(ctx, n, at)
	if i := slices.IndexFunc(list, func(r agent.Result) bool { return r.ID == id }); i >= 0 {
		return list[i], err
	}
	if err == nil {
		err = problem.NotFoundf("no such command")
	}
	return agent.Result{}, err
}

func (b *bench) LocalImage(*metal.Node) (string, error) { return "", nil }

func (b *bench) Prepare(n *metal.Node, drive json.RawMessage) (agent.PrepareParams, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.agent.drive, b.agent.plan = string(drive), n.Plan
	params := agent.PrepareParams{ImageInfo: agent.Image{ID: "image"}}
	if !b.agent.noDrive {
		params.ConfigDrive = "a drive"
	}
	return params, nil
}

// looker inspects by a ramdisk.
type looker struct{ *bench }

func (looker) CallsBack() bool { return true }

// withSteps asks for a verb with steps.
func (b *bench) withSteps(t *testing.T, v metal.Verb, steps string) {
	t.Helper()
	args := metal.ProvisionArgs{}
	switch v {
	case metal.Clean:
		args.CleanSteps = json.RawMessage(steps)
	case metal.Service:
		args.ServiceSteps = json.RawMessage(steps)
	default:
		args.DeploySteps = json.RawMessage(steps)
	}
	must.OK(t, b.nodes.Provision(context.Background(), b.node, v, string(v), args, record.Asker{User: "test"}))
}

// TestSweepRamdisk: what works with an agent survives like all else, and no command is given twice.
func TestSweepRamdisk(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		kind   job.Kind
		from   metal.State
		verb   metal.Verb
		steps  string
		set    func(*bench)
		failed metal.State
		did    string
	}{
		{"deploy", metal.Available, metal.Deploy, "", func(b *bench) { b.agent.image, b.agent.steps = true, true }, metal.DeployFailed, "deploy.execute_deploy_step:write_image*1 image.install_bootloader*1 standby.power_off*1"},
		{"provide", metal.Manageable, metal.Provide, "", func(b *bench) { b.agent.image, b.con.AutomatedClean = true, true }, metal.CleanFailed, "clean.execute_clean_step:erase_devices_metadata*1 clean.execute_clean_step:restarting*1"},
		{"service", metal.Active, metal.Service, `[{"interface": "deploy", "step": "burnin"}]`, func(*bench) {}, metal.ServiceFailed, "service.execute_service_step:burnin*1"},
		{"inspect", metal.Manageable, metal.Inspect, "", func(b *bench) { b.agent.findings = true }, metal.InspectFailed, ""},
	} {
		t.Run(string(c.kind), func(t *testing.T) {
			t.Parallel()
			fresh := func(t *testing.T) *bench {
				b := newBench(t, c.from)
				b.agent = newFakeAgent()
				c.set(b)
				if b.agent.findings {
					change(t, b, func(n *metal.Node) { n.Interfaces = map[string]string{"inspect": "ramdisk"} })
				}
				return b
			}
			conductortest.Sweep(t, func(t *testing.T) *jobtest.World {
				b := fresh(t)
				return b.world(c.kind, func(t *testing.T) { b.withSteps(t, c.verb, c.steps) }, func(t *testing.T) {
					n := b.noSecretLeft(t)
					if n.ProvisionState != c.failed || n.LastError == "" {
						t.Errorf("state %s, error %q; want %s", n.ProvisionState, n.LastError, c.failed)
					}
					if b.running == "ramdisk" || n.Plan != nil || b.networks["provisioning"] || b.networks["cleaning"] || b.networks["inspection"] {
						t.Errorf("a ramdisk is left: %s", b.picture(t))
					}
					if _, err := b.store.Document(context.Background(), nil, b.node, metal.Steps); err == nil {
						t.Error("the steps are left")
					}
				})
			})
			b := fresh(t)
			b.run(t)
			b.withSteps(t, c.verb, c.steps)
			b.ends(t)
			if got := b.agent.picture(); got != c.did {
				t.Errorf("the agent did %q; want %q", got, c.did)
			}
			t.Log(b.picture(t))
		})
	}
}

// ends looks in on the ramdisk until the operation has ended.
func (b *bench) ends(t *testing.T) *metal.Node {
	t.Helper()
	fixture.PollActing(t, "all jobs have ended", b.poke, func() bool { return len(b.open(t)) == 0 }, b.picture)
	return b.stored(t)
}
