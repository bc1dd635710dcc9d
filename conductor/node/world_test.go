package node

import (
	"cmp"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"log/slog"
	"math/big"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"salvor/conductor/conductortest"
	"salvor/driver"
	"salvor/job"
	"salvor/job/jobtest"
	"salvor/metal"
	"salvor/networkdata"
	"salvor/problem"
	"salvor/record"
	"salvor/rescue"
	"salvor/secret"
	"salvor/store"
	"salvor/test/must"
	"salvor/wire/agent"
)

// bench is a machine in memory behind every interface of a driver, with an agent in
// its ramdisk, and a real store beside it.
type bench struct {
	mu            sync.Mutex
	power         metal.Power
	volume        string // the target that the machine is set up to boot from
	device        rescue.Boot
	media         string // the path of the plan that is inserted
	networks      map[driver.Net]bool
	running       string // "system", "ramdisk" or "": nothing
	credential    string
	agentUp       bool
	nics          []string // MACs by which the agent checks network data; nil: it is of a former release
	agentFaults   int      // how often it answers with an error of its own
	agentLate     int      // how often it refuses the connection before it listens
	agentRefuses  bool
	agentVersion  string // empty: ours
	newStart      string // the certificate of a ramdisk that was started again, PEM; empty: benchCertificate
	formerAgent   bool   // it is of a former release: it ends with the finalize
	serving       string // the token by which it serves in the rescue; empty: it does not
	finals        int
	finalDrive    string // the config drive that came with the last finalize
	ramdiskSystem bool   // the deploy interface boots a ramdisk as the system
	systemOn      int    // boots of the node's own system
	refuses       map[driver.Net]error
	invalid       error              // what the check of the network says
	broken        error              // what the BMC answers to every question of power
	forgetful     bool               // the BMC keeps no boot device for good
	bootsOnce     bool               // a boot device that is set for one boot counts for one boot only, as on real machines
	silent        bool               // the BMC takes connections and answers nothing
	asked         int                // how often it was asked while silent or broken
	reading       func() metal.Power // what the BMC reads instead of the power that is
	agent         *fakeAgent
	mender        *fakeMender   // the part of the agent that repairs; nil: it has none
	agentSilent   int           // so many questions the agent does not answer
	agentSilence  time.Duration // and each of them takes so long by the clock of the conductor, which is later than the true one
	later         time.Duration
	gear          gear
	serial        chan string // what it writes on its serial line; nil: it has none
	reads         chan error  // what ends the reading of the line
	beforeBoot    func()      // is called when its own system begins to boot; nil: nothing is

	store *store.Store
	nodes *metal.Nodes
	key   *secret.Key
	con   *Conductor
	node  string
}

func (b *bench) PowerState(ctx context.Context, _ *metal.Node) (metal.Power, error) {
	err := b.answers(ctx)
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.reading != nil && err == nil {
		return b.reading(), nil
	}
	return b.power, err
}

// answers is how the BMC takes a question: a silent one keeps whoever asks until they give up.
func (b *bench) answers(ctx context.Context) error {
	b.mu.Lock()
	silent, err := b.silent, b.broken
	if silent || err != nil {
		b.asked++
	}
	b.mu.Unlock()
	if silent {
		<-ctx.Done()
		return problem.Unavailablef("no answer in time")
	}
	return err
}

func (b *bench) SetPower(ctx context.Context, n *metal.Node, want metal.Power) error {
	if err := b.answers(ctx); err != nil {
		return err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.power == want {
		return nil
	}
	b.power, b.running, b.agentUp, b.serving = want, "", false, ""
	if want == metal.PowerOn {
		b.running = "system"
		fromMedia := b.media != "" && (!b.bootsOnce || b.device.Device == "cdrom")
		if b.bootsOnce && !b.device.Persistent {
			b.device = rescue.Boot{Device: "disk", Persistent: true}
		}
		if fromMedia {
			b.running, b.agentUp, b.credential = "ramdisk", true, ""
			b.agent.reboot()
			b.mender.reboot()
		} else if b.volume != "" {
			b.running = b.volume
		} else {
			b.systemOn++
			b.mender.bootSystem()
			if b.beforeBoot != nil {
				b.beforeBoot()
			}
		}
	}
	return nil
}

func (b *bench) SoftOff(ctx context.Context, n *metal.Node) error {
	return b.SetPower(ctx, n, metal.PowerOff)
}

func (b *bench) BootDevices(context.Context, *metal.Node) ([]string, error) {
	return []string{"disk", "pxe"}, nil
}

func (b *bench) BootDevice(context.Context, *metal.Node) (rescue.Boot, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.device, nil
}

func (b *bench) SetBootDevice(ctx context.Context, _ *metal.Node, boot rescue.Boot) error {
	if err := b.answers(ctx); err != nil {
		return err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.device = boot
	if b.forgetful {
		b.device.Persistent = false
	}
	return nil
}

func (b *bench) Plan(n *metal.Node, r driver.Ramdisk) (*metal.BootPlan, error) {
	return &metal.BootPlan{Method: metal.BootMedia, Path: strings.ReplaceAll(uuid.NewString(), "-", ""), Kernel: "/k", Ramdisk: "/r", ISO: r.ISO, ConfigDrive: r.ConfigDrive, BootNumber: r.BootNumber, CarryToken: r.CarryToken, Persistent: r.Persistent, MACs: []string{"52:54:00:00:00:01"}}, nil
}

func (b *bench) PrepareRamdisk(_ context.Context, n *metal.Node) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.media, b.device = n.Plan.Path, rescue.Boot{Device: "cdrom"}
	return nil
}

func (b *bench) CleanUpRamdisk(ctx context.Context, _ *metal.Node) error {
	if err := b.answers(ctx); err != nil {
		return err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.media, b.device = "", rescue.Boot{}
	return nil
}

func (b *bench) PrepareInstance(_ context.Context, _ *metal.Node, saved rescue.Boot) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.device = saved
	return nil
}

func (b *bench) Validate(*metal.Node, []*metal.Port, driver.Net) error { return b.invalid }

func (b *bench) Attach(_ context.Context, _ *metal.Node, _ []*metal.Port, net driver.Net) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if err := b.refuses[net]; err != nil {
		return err
	}
	b.networks[net] = true
	return nil
}

func (b *bench) Detach(_ context.Context, _ *metal.Node, _ []*metal.Port, net driver.Net) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.networks, net)
	return nil
}

func (b *bench) Moves(_ *metal.Node, _ []*metal.Port, from, to driver.Net) bool { return from != to }

func (b *bench) Networks(context.Context, *metal.Node, []*metal.Port) ([]driver.Net, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return driver.NetsWhere(func(net driver.Net) (bool, error) { return b.networks[net], nil })
}

func (b *bench) NeedsRamdisk() bool { return true }

// Finalize is an agent that takes the command once and is gone.
func (b *bench) Finalize(_ context.Context, _ *metal.Node, a driver.Agent, f driver.Finalize) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.serving != "" {
		return problem.Conflictf("it does not accept our token")
	}
	if !b.agentUp {
		return driver.ErrGone
	}
	if f.Hash.Empty() && (f.Extras == nil || len(f.Extras.AuthorizedKeys) == 0) {
		return problem.Conflictf("finalize without a hash and without keys")
	}
	if b.agentRefuses {
		return problem.Conflictf("the agent says no")
	}
	if b.agentLate > 0 {
		b.agentLate--
		return driver.ErrGone
	}
	if b.agentFaults > 0 {
		b.agentFaults--
		return problem.Unavailablef("%w: 500", driver.ErrFaulty)
	}
	b.finals++
	b.finalDrive = string(f.ConfigDrive)
	b.credential, b.agentUp = f.Hash.Reveal(), false
	if f.Extras != nil {
		b.credential += strings.Join(f.Extras.AuthorizedKeys, "\n")
		if !b.formerAgent {
			b.serving = f.Extras.SessionToken.Reveal()
			b.agent.reboot()
		}
	}
	return nil
}

// answersAs tells whether the agent takes commands by the token of a call. The lock is held.
func (b *bench) answersAs(n *metal.Node, a driver.Agent) error {
	if b.agentSilent > 0 {
		b.agentSilent--
		b.later += b.agentSilence
		return problem.Unavailablef("no answer in time")
	}
	switch {
	case b.newStart != "" && a.CA != b.newStart:
		return problem.Unavailablef("its certificate is not trusted")
	case b.serving != "" && a.Token.Reveal() == b.serving, b.agentUp && (n == nil || a.Token.Equal(n.AgentToken(b.key))):
		return nil
	case b.serving != "", b.agentUp:
		return problem.Conflictf("it does not accept our token")
	}
	return problem.Unavailablef("%w", driver.ErrGone)
}

// benchCertificate is the one that the agent of the bench shows at its first start, PEM.
var benchCertificate = sync.OnceValue(newCertificate)

// newCertificate is that of another start, PEM.
func newCertificate() string {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		panic(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		panic(err)
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
}

// ReadRescueSystem is an agent that shows its host key until it has taken the last command.
func (b *bench) ReadRescueSystem(_ context.Context, _ *metal.Node, a driver.Agent, f driver.Finalize) (driver.RescueSystem, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.serving != "" {
		return driver.RescueSystem{}, problem.Conflictf("it does not accept our token")
	}
	if !b.agentUp {
		return driver.RescueSystem{}, driver.ErrGone
	}
	if !strings.HasPrefix(a.Version, agent.Product) {
		return driver.RescueSystem{}, nil
	}
	system := driver.RescueSystem{HostKey: benchHostKey, NetworkData: f.Extras.NetworkData, TakesKeys: true}
	if b.nics != nil {
		data, err := networkdata.Parse(f.Extras.NetworkData)
		if err != nil {
			return system, err
		}
		found := data.Forecast(b.nics)
		system.Checked, system.LeftOut = true, found.LeftOut
		for _, a := range found.Addresses {
			system.Addresses = append(system.Addresses, a.String())
		}
	}
	return system, nil
}

// benchHostKey is the ssh host key of the bench's ramdisk.
const benchHostKey = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIG6zbRXkp9CdSvOtcMjNVOyEAsdcbK/jYlSmblVCW5FM root@rescue"

func (b *bench) Inspect(ctx context.Context, _ *metal.Node) (driver.Inspected, error) {
	if err := b.answers(ctx); err != nil {
		return driver.Inspected{}, err
	}
	return driver.Inspected{
		Properties: metal.Object{"cpus": 2.0}, MACs: []string{"52:54:00:00:00:01", "52:54:00:00:00:02"},
		Inventory: &agent.Inventory{CPU: agent.CPU{Count: 2, Architecture: "x86_64"}},
	}, nil
}

func (b *bench) Heartbeats() string { return "wait" }
func (b *bench) NeedsImage() bool   { return b.agent != nil && b.agent.image }
func (b *bench) BootsRamdisk() bool { return b.ramdiskSystem }

const timeout = 5 * time.Minute

// newBench makes a node in a state on a fresh SQLite store.
func newBench(t *testing.T, state metal.State) *bench {
	t.Helper()
	quiet := slog.New(slog.NewTextHandler(io.Discard, nil))
	st, key := conductortest.Store(t, New(Config{}).Definitions())
	b := &bench{power: metal.PowerOn, running: "system", device: rescue.Boot{Device: "disk", Persistent: true}, networks: map[driver.Net]bool{driver.Tenant: true}, refuses: map[driver.Net]error{}, store: st, key: key}
	directory := metal.NewDirectory(st, time.Now, 0, 0)
	b.nodes = metal.NewNodes(st, st, key, directory, metal.Options{RestrictLookup: true}, time.Now)
	b.con = New(Config{Store: st, Nodes: b.nodes, Key: key, Drivers: []driver.HardwareType{b.hardware()}, Log: quiet, Now: time.Now, RescueTimeout: timeout,
		Agents: b, DeployTimeout: timeout, CleanTimeout: timeout, ServiceTimeout: timeout, InspectTimeout: timeout, EraseMetadataPriority: 99, InspectionURL: "http://salvor/v1/continue_inspection"})
	catalog, err := json.Marshal(b.con.Catalog())
	if err != nil {
		t.Fatal(err)
	}
	must.OK(t, st.Register(context.Background(), job.Conductor{ID: "api", Incarnation: "api", Hostname: "api", Groups: []string{""}, Description: catalog}))
	n := &metal.Node{ID: uuid.NewString(), Driver: "bench", ProvisionState: state, TargetProvision: state.Info().Target, PowerState: metal.PowerOn}
	must.OK(t, b.nodes.Create(context.Background(), n, record.Asker{}))
	b.node = n.ID
	err = metal.NewPorts(st, st, b.nodes).Create(context.Background(), &metal.Port{NodeID: n.ID, Address: "52:54:00:00:00:01", PXEEnabled: true}, record.Asker{})
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func (b *bench) hardware() driver.HardwareType {
	info := metal.DriverInfo{Name: "bench", Interfaces: map[string]metal.InterfaceSet{}}
	for _, kind := range metal.InterfaceKinds {
		info.Interfaces[kind] = metal.InterfaceSet{Default: "bench", Enabled: []metal.InterfaceInfo{{Name: "bench"}, {Name: "ramdisk"}}}
	}
	set := info.Interfaces["storage"]
	set.Enabled = append(set.Enabled, metal.InterfaceInfo{Name: "volumes", Volumes: true})
	info.Interfaces["storage"] = set
	set = info.Interfaces["boot"]
	set.Enabled = append(set.Enabled, metal.InterfaceInfo{Name: "volumes", BootsVolumes: []metal.VolumeType{metal.ISCSI}})
	info.Interfaces["boot"] = set
	return driver.HardwareType{
		Info: info, Power: map[string]driver.Power{"bench": b}, Management: map[string]driver.Management{"bench": b},
		Boot: map[string]driver.Boot{"bench": b, "volumes": volumeBoot{b}}, Network: map[string]driver.Network{"bench": b}, Rescue: map[string]driver.Rescue{"bench": b},
		Inspect: map[string]driver.Inspect{"bench": b, "ramdisk": looker{b}}, Deploy: map[string]driver.Deploy{"bench": b},
		Extras: map[string]map[string]any{"bios": {"bench": parts{b}}, "firmware": {"bench": parts{b}}, "console": {"bench": parts{b}}, "vendor": {"bench": parts{b}}},
	}
}

// poke plays the ramdisk: an agent that runs heartbeats with the token of its boot.
func (b *bench) poke() {
	b.mu.Lock()
	b.mender.work(b)
	up, serving, certificate := b.agentUp, b.serving != "", cmp.Or(b.newStart, benchCertificate())
	b.mu.Unlock()
	if serving {
		b.agent.work(b)
	}
	if !up {
		return
	}
	n, err := b.store.Node(context.Background(), nil, b.node)
	if err != nil || n.Plan == nil {
		return
	}
	b.agent.work(b)
	_ = b.nodes.Heartbeat(context.Background(), b.node, metal.Heartbeat{URL: "https://10.0.0.9:9999", Version: cmp.Or(b.agentVersion, "salvor-agent/1"), CA: certificate, Token: n.AgentToken(b.key)})
}

// picture tells all that an operation may leave behind, in the machine and in the store.
func (b *bench) picture(t *testing.T) string {
	t.Helper()
	ctx := context.Background()
	n := must.Get(b.store.Node(ctx, nil, b.node))(t)
	ports := must.Get(b.store.Ports(ctx, metal.PortFilter{NodeID: b.node}, record.Page{Limit: 10, SortKey: "address"}))(t)
	b.mu.Lock()
	defer b.mu.Unlock()
	steps := "none"
	if _, err := b.store.Document(ctx, nil, b.node, metal.Steps); err == nil {
		steps = "some"
	}
	connectors := must.Get(b.store.Connectors().List(ctx, nil, metal.ConnectorFilter{NodeID: b.node}, record.Page{Limit: 10}))(t)
	session := "none"
	if n.Rescue != nil {
		session = fmt.Sprint(n.Rescue.Saved, n.Rescue.SavedKnown, n.Rescue.Fingerprint, n.Rescue.HostKey, n.Rescue.Addresses, n.Rescue.Agent != nil, n.Rescue.Notice, n.Rescue.LeftOut)
	}
	return b.mender.picture(b, t) + fmt.Sprintf("agent did %s; steps %s; step %v%v%v; connectors %d\n", b.agent.picture(), steps, n.CleanStep, n.DeployStep, n.ServiceStep, len(connectors)) +
		fmt.Sprintf("machine: %s runs %q volume %q device %v media %v networks %v credential %v agent %v serving %v\nnode: %s -> %s power %s -> %s plan %v session %s error %q locked %q ports %d properties %v instance %v",
			b.power, b.running, b.volume, b.device, b.media != "", b.networks, b.credential != "", b.agentUp, b.serving != "",
			n.ProvisionState, n.TargetProvision, n.PowerState, n.TargetPower, n.Plan != nil, session, n.LastError, n.Reservation, len(ports), n.Properties, n.InstanceInfo)
}

// start asks for a verb.
func (b *bench) start(t *testing.T, v metal.Verb) {
	t.Helper()
	args := metal.ProvisionArgs{}
	if v == metal.ToRescue {
		args.RescuePassword = secret.New("let me in")
	}
	must.OK(t, b.provision(v, args))
}

func (b *bench) provision(v metal.Verb, args metal.ProvisionArgs) error {
	return b.nodes.Provision(context.Background(), b.node, v, string(v), args, record.Asker{User: "test"})
}

func (b *bench) world(kind job.Kind, start, broken func(t *testing.T)) *jobtest.World {
	return &jobtest.World{
		Store: b.store, Definitions: b.con.Definitions(), Conductor: job.Conductor{ID: "c", Hostname: "c", Groups: []string{""}, Description: json.RawMessage(`{}`)},
		Kind: kind, Subject: job.Node(b.node), Start: start, Poke: b.poke, Broken: broken,
		Picture: func(t *testing.T) string { return b.picture(t) + b.reports(t) },
	}
}

// reports tells how the diagnoses and the repairs of the node ended.
func (b *bench) reports(t *testing.T) string {
	t.Helper()
	var out strings.Builder
	for _, d := range must.Get(b.nodes.Diagnoses(context.Background(), nil, b.node))(t) {
		fmt.Fprintf(&out, "\ndiagnosis: %s problem %q systems %d gaps %q", d.State, d.Problem, len(d.Report.Systems), gapsOf(d))
	}
	for _, r := range must.Get(b.repairs().List(context.Background(), nil, b.node))(t) {
		fmt.Fprintf(&out, "\nrepair: %s problem %q proven by %q finished %v", r.State, r.Problem, r.ProvenBy, !r.FinishedAt.IsZero())
	}
	return out.String()
}

// noSecretLeft proves that no job that has ended or is undone holds a credential, and that the node is unlocked.
func (b *bench) noSecretLeft(t *testing.T) *metal.Node {
	t.Helper()
	n := must.Get(b.store.Node(context.Background(), nil, b.node))(t)
	if n.Reservation != "" {
		t.Errorf("the node is locked by %s", n.Reservation)
	}
	return n
}
