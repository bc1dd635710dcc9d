// Package step does what a server orders for the machine's disks: it writes a system
// with its config drive and boot entry, and it wipes. It speaks the commands of
// ironic-python-agent (standby, image, clean, deploy, service) by a table of orders; it
// must not know HTTP endpoints, tokens, or how the server was found.
package step

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"sync"

	"salvor/agent/disk"
	"salvor/problem"
	wire "salvor/wire/agent"
)

// manager is the name of the one hardware manager, under which steps are listed.
const manager = "SalvorHardwareManager"

// Order is a command that the agent knows.
type Order struct {
	// Background orders go on after the answer; others are done in milliseconds.
	Background bool
	// Unlisted orders answer at once with an outcome that the list of results does not hold, because it is large.
	Unlisted bool
	// Params are the names of those that it takes.
	Params []string
	// Run does it; the outcome is what wire.Result.Outcome holds.
	Run func(ctx context.Context, params Params) (any, error)
}

// Params are the params of a command by name.
type Params map[string]json.RawMessage

// Get reads one into v; one that is absent or null leaves v as it is.
func (p Params) Get(name string, v any) error {
	raw := p[name]
	if len(raw) == 0 || string(raw) == "null" {
		return nil
	}
	if err := json.Unmarshal(raw, v); err != nil {
		return problem.Invalidf("parameter %s has the wrong type", name)
	}
	return nil
}

// ImagePolicy is what the server allows of images, told by lookup.
type ImagePolicy struct {
	MD5     bool
	Formats []string
}

// Runner act on the machine's disks.
type Runner struct {
	// Root is empty in the ramdisk; elsewhere disks are files below Root/dev.
	Root string
	// Version of the agent: another one is another list of steps.
	Version string
	// HTTP fetches images, see image.Client.
	HTTP *http.Client
	// Memory bounds what an image may take of it, in bytes.
	Memory int64
	Log    *slog.Logger
	// Ready waits until the ramdisk has loaded the drivers of the disks.
	Ready func(context.Context) error

	mu     sync.Mutex
	node   stepNode
	permit ImagePolicy
	rootID string // what prepare_image found, for get_partition_uuids
}

// stepNode is what the steps read of one.
type stepNode struct {
	UUID               string         `json:"uuid"`
	Properties         map[string]any `json:"properties"`
	InstanceInfo       map[string]any `json:"instance_info"`
	DriverInternalInfo map[string]any `json:"driver_internal_info"`
}

// SetNode takes what lookup told: the node, as JSON, and what the server permits.
func (h *Runner) SetNode(raw json.RawMessage, permit ImagePolicy) error {
	h.mu.Lock()
	h.permit = permit
	h.mu.Unlock()
	return h.know(raw)
}

// know keeps the newest description of the node; servers send it with each step.
func (h *Runner) know(raw json.RawMessage) error {
	if len(raw) == 0 || string(raw) == "null" {
		return nil
	}
	var n stepNode
	if err := json.Unmarshal(raw, &n); err != nil {
		return problem.Invalidf("node is no object of the API's form")
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if n.UUID != "" && h.node.UUID != "" && n.UUID != h.node.UUID {
		return problem.Invalidf("node is %.40q, this agent serves %s", n.UUID, h.node.UUID)
	}
	h.node = n
	return nil
}

func (h *Runner) known() (stepNode, ImagePolicy) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.node, h.permit
}

// Orders are all commands about disks.
func (h *Runner) Orders() map[string]Order {
	orders := map[string]Order{
		wire.PrepareImage:      {Background: true, Params: []string{"image_info", "configdrive"}, Run: h.prepareOrder},
		wire.InstallBootloader: {Background: true, Params: []string{"root_uuid", "efi_system_part_uuid", "prep_boot_part_uuid", "target_boot_mode", "ignore_bootloader_failure"}, Run: h.bootloader},
		wire.PartitionUUIDs:    {Run: h.partitionUUIDs},
	}
	for _, f := range h.families() {
		orders[f.name+".get_"+f.name+"_steps"] = Order{Params: []string{"node", "ports"}, Run: func(_ context.Context, p Params) (any, error) { return h.list(f, p) }}
		orders[f.name+".execute_"+f.name+"_step"] = Order{Background: true, Params: nil, Run: func(ctx context.Context, p Params) (any, error) { return h.execute(ctx, f, p) }}
	}
	return orders
}

// stepAction is one step of a family.
type stepAction struct {
	wire.Step
	do func(ctx context.Context, args Params) (any, error)
}

// stepFamily is clean, deploy or service; wrong is the wire's type of a failure.
type stepFamily struct {
	name, wrong string
	actions     []stepAction
}

func (h *Runner) families() []stepFamily {
	on := func(name string, priority int, abortable bool, do func(context.Context, Params) (any, error)) stepAction {
		return stepAction{wire.Step{Step: name, Interface: "deploy", Priority: priority, Abortable: abortable}, do}
	}
	write := on("write_image", 0, false, h.writeStep)
	write.ArgsInfo = map[string]wire.ArgInfo{
		"image_info":  {Description: "The image, as in standby.prepare_image.", Required: true},
		"configdrive": {Description: "A config drive: URL, or gzipped ISO 9660 in base64."},
	}
	metadata := func(priority int) stepAction { return on("erase_devices_metadata", priority, true, h.eraseMetadata) }
	return []stepFamily{
		{"clean", wire.ErrCleaning, []stepAction{metadata(99), on("erase_devices", 0, true, h.eraseDevices), on("erase_devices_express", 0, true, h.eraseExpress)}},
		{"deploy", wire.ErrDeployment, []stepAction{write, metadata(0)}},
		{"service", wire.ErrServicing, []stepAction{write}},
	}
}

func (h *Runner) version() map[string]string { return map[string]string{manager: h.Version} }

func (h *Runner) list(f stepFamily, p Params) (any, error) {
	if err := h.know(p["node"]); err != nil {
		return nil, err
	}
	steps := []wire.Step{}
	for _, a := range f.actions {
		steps = append(steps, a.Step)
	}
	return map[string]any{
		f.name + "_steps":          map[string][]wire.Step{manager: steps},
		"hardware_manager_version": h.version(),
	}, nil
}

// Mismatch: the steps were listed by another version of the agent.
type Mismatch struct{ Wanted, Is map[string]string }

func (m *Mismatch) Error() string {
	return fmt.Sprintf("hardware managers: the steps were listed by %v, this agent is %v: list them again", m.Wanted, m.Is)
}

// CommandType is the type on the wire.
func (*Mismatch) CommandType() string { return wire.ErrVersion }

// typedError is an error with its type on the wire.
type typedError struct {
	kind string
	error
}

// Unwrap gives the error without its type.
func (f *typedError) Unwrap() error { return f.error }

// CommandType is the type on the wire.
func (f *typedError) CommandType() string { return f.kind }

func (h *Runner) execute(ctx context.Context, f stepFamily, p Params) (any, error) {
	if err := h.know(p["node"]); err != nil {
		return nil, err
	}
	var wanted map[string]string
	if err := p.Get(f.name+"_version", &wanted); err != nil {
		return nil, err
	}
	if wanted != nil && !maps.Equal(wanted, h.version()) {
		return nil, &Mismatch{wanted, h.version()}
	}
	var ordered struct {
		Step string `json:"step"`
		Args Params `json:"args"`
	}
	if err := p.Get("step", &ordered); err != nil || ordered.Step == "" {
		return nil, problem.Invalidf("step is no object with the name of a step")
	}
	i := slices.IndexFunc(f.actions, func(a stepAction) bool { return a.Step.Step == ordered.Step })
	if i < 0 {
		return nil, &typedError{wire.ErrNoSuchStep, problem.NotFoundf("there is no %s step %.60q", f.name, ordered.Step)}
	}
	h.Log.Info("step begins", "family", f.name, "step", ordered.Step)
	result, err := f.actions[i].do(ctx, ordered.Args)
	if err != nil {
		return nil, withErrorType(f.wrong, fmt.Errorf("%s: %w", ordered.Step, err))
	}
	h.Log.Info("step done", "family", f.name, "step", ordered.Step)
	told, err := stepWithoutArgs(p["step"])
	return map[string]any{f.name + "_result": result, f.name + "_step": told}, err
}

// stepWithoutArgs is the step as it was ordered, by which a server knows whose end this is. Its
// arguments, which may be large and hold passwords, are not kept in a list of results.
func stepWithoutArgs(raw json.RawMessage) (map[string]json.RawMessage, error) {
	var step map[string]json.RawMessage
	err := json.Unmarshal(raw, &step)
	delete(step, "args")
	return step, err
}

// withErrorType gives an error a type unless it has one or is the asker's fault.
func withErrorType(kind string, err error) error {
	var has interface{ CommandType() string }
	if asTyped(err, &has) {
		return &typedError{has.CommandType(), err}
	}
	if problem.Is(err, problem.Invalid) {
		return err
	}
	return &typedError{kind, err}
}

// disks lists them once the drivers are there, without those that the node's
// properties.skip_block_devices name.
func (h *Runner) disks(ctx context.Context) ([]disk.Found, error) {
	if err := h.Ready(ctx); err != nil {
		return nil, err
	}
	all, err := disk.List(h.Root)
	if err != nil {
		return nil, err
	}
	n, _ := h.known()
	skips, _ := n.Properties["skip_block_devices"].([]any)
	for _, raw := range skips {
		object, _ := raw.(map[string]any)
		hints, err := disk.ParseHints(object)
		if err != nil || len(hints) == 0 {
			return nil, problem.Invalidf("skip_block_devices: %v: want a list of objects of root device hints", err)
		}
		all = slices.DeleteFunc(all, func(d disk.Found) bool {
			ok, _ := hints.Match(d.Disk)
			return ok
		})
	}
	return all, nil
}

// target is the disk of the system.
func (h *Runner) target(ctx context.Context) (disk.Found, error) {
	all, err := h.disks(ctx)
	if err != nil {
		return disk.Found{}, err
	}
	n, _ := h.known()
	raw, _ := n.InstanceInfo["root_device"].(map[string]any)
	if len(raw) == 0 {
		raw, _ = n.Properties["root_device"].(map[string]any)
	}
	hints, err := disk.ParseHints(raw)
	if err != nil {
		return disk.Found{}, err
	}
	found, err := disk.Choose(all, hints)
	if err != nil {
		return found, &typedError{wire.ErrNoDevice, err}
	}
	return found, nil
}
