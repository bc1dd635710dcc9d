package store

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"strings"

	"salvor/job"
	"salvor/metal"
	"salvor/problem"
	"salvor/rescue"
	"salvor/secret"
)

// nodeFields are the columns of node that a record fills, in the order of nodeArgs and scanNode.
var nodeFields = []string{"id", "version", "name", "driver", "instance_uuid", "chassis_uuid", "resource_class", "description", "owner", "lessee",
	"shard", "conductor_group", "maintenance", "fault", "protected", "retired", "console_enabled", "power_state", "target_power",
	"provision_state", "target_provision", "last_error", "provisioned_at", "inspection_start", "inspection_end", "boot_path",
	"created_at", "updated_at", "parent_node", "allocation_id", "instance_name", "disable_power_off", "health", "body"}

// nodeBody is the part of a node that nobody searches or sorts by.
type nodeBody struct {
	DriverInfo        any               `json:"driver_info,omitempty"`
	Properties        any               `json:"properties,omitempty"`
	Extra             metal.Object      `json:"extra,omitempty"`
	InstanceInfo      any               `json:"instance_info,omitempty"`
	InternalInfo      any               `json:"internal_info,omitempty"`
	RAIDConfig        metal.Object      `json:"raid_config,omitempty"`
	TargetRAID        metal.Object      `json:"target_raid,omitempty"`
	NetworkData       metal.Object      `json:"network_data,omitempty"`
	Traits            []string          `json:"traits,omitempty"`
	AutomatedClean    *bool             `json:"automated_clean,omitempty"`
	MaintenanceReason string            `json:"maintenance_reason,omitempty"`
	ProtectedReason   string            `json:"protected_reason,omitempty"`
	RetiredReason     string            `json:"retired_reason,omitempty"`
	Interfaces        map[string]string `json:"interfaces,omitempty"`
	CleanStep         metal.Object      `json:"clean_step,omitempty"`
	DeployStep        metal.Object      `json:"deploy_step,omitempty"`
	ServiceStep       metal.Object      `json:"service_step,omitempty"`
	BootMode          string            `json:"boot_mode,omitempty"`
	SecureBoot        *bool             `json:"secure_boot,omitempty"`
	BootNumber        int64             `json:"boot_number,omitempty"`
	Plan              any               `json:"plan,omitempty"`
	Rescue            *rescue.Session   `json:"rescue,omitempty"`
	Hold              string            `json:"hold,omitempty"`
}

// nodeSecret tells the keys of a node's objects whose values are sealed: secrets, and what may carry one inside, such as a URL that is
// signed or has a password. These are shown to whoever may see the node, but no copy of the database has to tell them.
func nodeSecret(key string) bool {
	if secret.IsKey(key) {
		return true
	}
	switch key {
	case "configdrive", "image_url", "image_source", "image_checksum", "kernel", "ramdisk", "bootloader":
		return true
	}
	return strings.HasSuffix(key, "_kernel") || strings.HasSuffix(key, "_ramdisk") || strings.HasSuffix(key, "_iso") || strings.HasSuffix(key, "_params") ||
		strings.HasSuffix(key, "_url")
}

// planSecret is the same of a boot plan: what a machine fetches, and with which parameters it starts.
func planSecret(key string) bool {
	return key == "Kernel" || key == "Ramdisk" || key == "Params" || key == "Image" || key == "ISO"
}

const planName = "plan"

// sealPlan makes a plan what its row holds.
func (s nodeTables) sealPlan(n *metal.Node) (any, error) {
	if n.Plan == nil {
		return nil, nil
	}
	text, err := json.Marshal(n.Plan)
	if err != nil {
		return nil, err
	}
	var plain map[string]any
	if err := json.Unmarshal(text, &plain); err != nil {
		return nil, err
	}
	for k, v := range plain {
		if v == "" || v == nil {
			delete(plain, k)
		}
	}
	return s.seal(plain, nodePlace(n.ID, planName), planSecret)
}

// openPlan is the reverse.
func (s nodeTables) openPlan(id string, row any) (*metal.BootPlan, error) {
	if row == nil {
		return nil, nil
	}
	plain, err := s.open(row, nodePlace(id, planName), planSecret)
	if err != nil {
		return nil, err
	}
	text, err := json.Marshal(plain)
	if err != nil {
		return nil, err
	}
	plan := &metal.BootPlan{}
	return plan, json.Unmarshal(text, plan)
}

// sealed pairs the objects that may hold secrets in the record with those in the body.
func (b *nodeBody) sealed(n *metal.Node) []sealedObject {
	return []sealedObject{
		{"driver_info", &n.DriverInfo, &b.DriverInfo},
		{"properties", &n.Properties, &b.Properties},
		{"instance_info", &n.InstanceInfo, &b.InstanceInfo},
		{"internal_info", &n.InternalInfo, &b.InternalInfo},
	}
}

func nodePlace(id, object string) string { return "node:" + id + ":" + object }

type sealedObject struct {
	name  string
	plain *metal.Object
	row   *any
}

func (s nodeTables) encodeNode(n *metal.Node) (string, error) {
	b := nodeBody{Extra: n.Extra, RAIDConfig: n.RAIDConfig, TargetRAID: n.TargetRAID, NetworkData: n.NetworkData, Traits: n.Traits,
		AutomatedClean: n.AutomatedClean, MaintenanceReason: n.MaintenanceReason, ProtectedReason: n.ProtectedReason,
		RetiredReason: n.RetiredReason, Interfaces: n.Interfaces, CleanStep: n.CleanStep, DeployStep: n.DeployStep,
		ServiceStep: n.ServiceStep, BootMode: n.BootMode, SecureBoot: n.SecureBoot, BootNumber: n.BootNumber, Rescue: n.Rescue, Hold: n.PowerLock}
	var err error
	if b.Plan, err = s.sealPlan(n); err != nil {
		return "", problem.Invalidf("node %s: %w", n.ID, err)
	}
	for _, o := range b.sealed(n) {
		if len(*o.plain) == 0 {
			continue
		}
		sealed, err := s.seal(*o.plain, nodePlace(n.ID, o.name), nodeSecret)
		if err != nil {
			return "", err
		}
		*o.row = sealed
	}
	text, err := json.Marshal(&b)
	if err != nil {
		return "", problem.Invalidf("node %s: %w", n.ID, err)
	}
	return string(text), nil
}

func (s nodeTables) decodeNode(n *metal.Node, text string) error {
	var b nodeBody
	if err := json.Unmarshal([]byte(text), &b); err != nil {
		return fmt.Errorf("node %s: %w", n.ID, err)
	}
	n.Extra, n.RAIDConfig, n.TargetRAID, n.NetworkData = b.Extra, b.RAIDConfig, b.TargetRAID, b.NetworkData
	n.Traits, n.AutomatedClean, n.Interfaces = b.Traits, b.AutomatedClean, b.Interfaces
	n.MaintenanceReason, n.ProtectedReason, n.RetiredReason = b.MaintenanceReason, b.ProtectedReason, b.RetiredReason
	n.CleanStep, n.DeployStep, n.ServiceStep, n.BootMode, n.SecureBoot = b.CleanStep, b.DeployStep, b.ServiceStep, b.BootMode, b.SecureBoot
	n.BootNumber, n.Rescue, n.PowerLock = b.BootNumber, b.Rescue, b.Hold
	var err error
	if n.Plan, err = s.openPlan(n.ID, b.Plan); err != nil {
		return err
	}
	for _, o := range b.sealed(n) {
		plain, err := s.open(*o.row, nodePlace(n.ID, o.name), nodeSecret)
		if err != nil {
			return err
		}
		*o.plain, _ = plain.(map[string]any)
	}
	initNilObjects(&n.DriverInfo, &n.Properties, &n.InstanceInfo, &n.InternalInfo, &n.Extra, &n.RAIDConfig, &n.TargetRAID, &n.NetworkData,
		&n.CleanStep, &n.DeployStep, &n.ServiceStep)
	if n.Interfaces == nil {
		n.Interfaces = map[string]string{}
	}
	return nil
}

// initNilObjects makes objects that were empty maps that can be written to.
func initNilObjects(objects ...*metal.Object) {
	for _, o := range objects {
		if *o == nil {
			*o = metal.Object{}
		}
	}
}

func (s nodeTables) nodeArgs(n *metal.Node) ([]any, error) {
	body, err := s.encodeNode(n)
	if err != nil {
		return nil, err
	}
	return []any{n.ID, n.Version, n.Name, n.Driver, n.InstanceUUID, n.ChassisUUID, n.ResourceClass, n.Description, n.Owner, n.Lessee,
		n.Shard, n.ConductorGroup, n.Maintenance, n.Fault, n.Protected, n.Retired, n.ConsoleEnabled, string(n.PowerState), string(n.TargetPower),
		string(n.ProvisionState), string(n.TargetProvision), n.LastError, toMicros(n.ProvisionedAt), toMicros(n.InspectionStart), toMicros(n.InspectionEnd),
		bootPath(n), toMicros(n.CreatedAt), toMicros(n.UpdatedAt), n.ParentNode, n.AllocationID, n.InstanceName, n.DisablePowerOff, n.Health, body}, nil
}

func bootPath(n *metal.Node) string {
	if n.Plan == nil {
		return ""
	}
	return n.Plan.Path
}

// selectNodes begins every query of nodes: the record, its lock and a conductor that serves it, in one.
var selectNodes = `SELECT n.` + strings.Join(nodeFields, ", n.") + lockAndConductor + ` FROM node n` + joinLockAndConductor

const (
	lockAndConductor     = `, CASE WHEN l.id IS NULL THEN '' ELSE COALESCE(h.hostname, NULLIF(` + conductorOf + `, ''), 'salvor') END, ` + conductorOf
	joinLockAndConductor = `
	LEFT JOIN job l ON l.subject_kind = 'node' AND l.subject_id = n.id AND ` + locksSubject + `
	LEFT JOIN conductor h ON h.owner = l.owner`
	conductorOf = `COALESCE((SELECT MIN(c.hostname) FROM conductor_member m JOIN conductor c ON c.id = m.conductor_id WHERE m.group_name = n.conductor_group), '')`
)

// scanNode reads a row of selectNodes, and what stands behind it into more.
func (s nodeTables) scanNode(r *sql.Rows, more ...any) (*metal.Node, error) {
	n := &metal.Node{}
	var provisioned, start, end, created, updated int64
	var path, body string
	err := r.Scan(append([]any{&n.ID, &n.Version, &n.Name, &n.Driver, &n.InstanceUUID, &n.ChassisUUID, &n.ResourceClass, &n.Description, &n.Owner, &n.Lessee,
		&n.Shard, &n.ConductorGroup, &n.Maintenance, &n.Fault, &n.Protected, &n.Retired, &n.ConsoleEnabled, &n.PowerState, &n.TargetPower,
		&n.ProvisionState, &n.TargetProvision, &n.LastError, &provisioned, &start, &end, &path, &created, &updated,
		&n.ParentNode, &n.AllocationID, &n.InstanceName, &n.DisablePowerOff, &n.Health, &body, &n.Reservation, &n.Conductor}, more...)...)
	if err != nil {
		return nil, err
	}
	n.ProvisionedAt, n.InspectionStart, n.InspectionEnd = fromMicros(provisioned), fromMicros(start), fromMicros(end)
	n.CreatedAt, n.UpdatedAt = fromMicros(created), fromMicros(updated)
	return n, s.decodeNode(n, body)
}

func (s nodeTables) nodes(ctx context.Context, t job.Tx, text string, args ...any) ([]*metal.Node, error) {
	var out []*metal.Node
	err := s.read(ctx, t, func(r *sql.Rows) error {
		n, err := s.scanNode(r)
		out = append(out, n)
		return err
	}, text, args...)
	if err != nil {
		return nil, fmt.Errorf("read nodes: %w", err)
	}
	return out, nil
}

// firstNode gives the first node, or says that there is none.
func firstNode(nodes []*metal.Node, err error, format string, args ...any) (*metal.Node, error) {
	if err != nil {
		return nil, err
	}
	if len(nodes) == 0 {
		return nil, problem.NotFoundf(format, args...)
	}
	return nodes[0], nil
}

const nodeByIdent = ` WHERE n.id = COALESCE((SELECT id FROM node WHERE id = $1), (SELECT id FROM node WHERE name = $1 AND name <> ''))`

// Node is metal.NodeStore's.
func (s nodeTables) Node(ctx context.Context, t job.Tx, ident string) (*metal.Node, error) {
	if ident == "" {
		return nil, problem.NotFoundf("Node %s could not be found.", ident)
	}
	nodes, err := s.nodes(ctx, t, selectNodes+nodeByIdent, ident)
	return firstNode(nodes, err, "Node %s could not be found.", ident)
}

// NodeByMAC is metal.PlanStore's. Where two plans name a MAC, the one written last counts.
func (s nodeTables) NodeByMAC(ctx context.Context, mac string) (*metal.Node, error) {
	nodes, err := s.nodes(ctx, nil, selectNodes+` JOIN boot_mac b ON b.node_id = n.id WHERE b.mac = $1 ORDER BY n.updated_at DESC, n.num DESC LIMIT 1`,
		strings.ToLower(mac))
	return firstNode(nodes, err, "No node with a boot plan has a NIC with MAC address %s.", mac)
}

// NodeByBootPath is metal.PlanStore's.
func (s nodeTables) NodeByBootPath(ctx context.Context, path string) (*metal.Node, error) {
	if path == "" {
		return nil, problem.NotFoundf("No node has this boot path.")
	}
	nodes, err := s.nodes(ctx, nil, selectNodes+` WHERE n.boot_path = $1 AND n.boot_path <> ''`, path)
	return firstNode(nodes, err, "No node has this boot path.")
}
