package metal

import (
	"context"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"salvor/job"
	"salvor/problem"
	"salvor/record"
	"salvor/secret"
)

// Options are the choices that configuration makes for machines.
type Options struct {
	// HashAlgorithm of rescue passwords: rescue.SHA256 or rescue.SHA512.
	HashAlgorithm string
	// RestrictLookup answers lookup only in states in which a ramdisk is expected.
	RestrictLookup bool
	// RescuePasswordInLookup lets the lookup that tells the token carry the hash of the rescue password.
	RescuePasswordInLookup bool
	// RequireTLS refuses callback URLs that are not https.
	RequireTLS bool
	// Callback tells why no agent may be called at a host and port; nil: it may at any.
	Callback func(host string, port uint16) error
	// AllowDeletingAvailable lets nodes in available be deleted.
	AllowDeletingAvailable bool
	// Checker is the drivers' part of every check at the door; nil: there is none.
	Checker Checker
	// ResourceClass is the resource class of a new node that names none.
	ResourceClass string
	// MaxDeploying and MaxCleaning bound how many nodes of the fleet are deployed, or cleaned and taken down, at a time. 0: no bound.
	MaxDeploying, MaxCleaning int
	// PowerEvents has each change of the power of an instance's node sent to Nova, by a job of the kind JobPowerEvent.
	PowerEvents bool
}

// Nodes is the service that changes nodes by the rules. It is the only writer of
// provision states.
type Nodes struct {
	store      Store
	jobs       record.Jobs
	key        *secret.Key
	directory  *Directory
	opts       Options
	now        func() time.Time
	heartbeats pendingHeartbeats
	sightings  pendingBootProgress
	refused    refusedHeartbeats
}

// NewNodes makes the service.
func NewNodes(store Store, jobs record.Jobs, key *secret.Key, directory *Directory, opts Options, now func() time.Time) *Nodes {
	return &Nodes{store: store, jobs: jobs, key: key, directory: directory, opts: opts, now: now}
}

// Node reads a node by UUID or name.
func (s *Nodes) Node(ctx context.Context, ident string) (*Node, error) {
	return s.store.Node(ctx, nil, ident)
}

// List reads a page of nodes.
func (s *Nodes) List(ctx context.Context, f NodeFilter, p record.Page) ([]*Node, error) {
	return s.store.Nodes(ctx, nil, f, p)
}

// Shards counts the nodes of each shard.
func (s *Nodes) Shards(ctx context.Context) ([]Shard, error) { return s.store.Shards(ctx) }

// Contacts reads what was heard of these nodes, keyed by node.
func (s *Nodes) Contacts(ctx context.Context, ids []string) (map[string]Contact, error) {
	return s.store.Contacts(ctx, ids)
}

// Mark reads what tells the node's view of now from those before, by UUID or name.
func (s *Nodes) Mark(ctx context.Context, ident string) (NodeMark, error) {
	return s.store.NodeMark(ctx, ident)
}

// Marks reads the marks of a page of nodes.
func (s *Nodes) Marks(ctx context.Context, f NodeFilter, p record.Page) ([]NodeMark, error) {
	return s.store.ListNodeMarks(ctx, f, p)
}

// Marked reads the nodes of marks, by their Num.
func (s *Nodes) Marked(ctx context.Context, nums []int64, part NodePart) (map[int64]*Node, error) {
	return s.store.MarkedNodes(ctx, nums, part)
}

var (
	nodeName = regexp.MustCompile(`^[A-Za-z0-9._~-]{1,255}$`)
	words255 = 255
)

func checkName(name string) error {
	if name == "" {
		return nil
	}
	if !nodeName.MatchString(name) || record.IsUUID(name) {
		return problem.Invalidf("name %q is not valid: use letters, digits and . _ ~ - (at most 255), and no UUID", name)
	}
	return nil
}

// Create adds a node in the given state (enroll, or available for clients that are
// older than enroll), its interfaces checked against what live conductors offer.
func (s *Nodes) Create(ctx context.Context, n *Node, asker record.Asker) error {
	if n.ID == "" {
		n.ID = uuid.NewString()
	}
	if !record.IsUUID(n.ID) {
		return problem.Invalidf("Expected UUID for uuid: %.100s", n.ID)
	}
	n.ID = strings.ToLower(n.ID)
	if n.ProvisionState == "" {
		n.ProvisionState = Enroll
	}
	if n.ResourceClass == "" {
		n.ResourceClass = s.opts.ResourceClass
	}
	if err := checkAppendParams(n, &Node{}); err != nil {
		return err
	}
	if err := s.check(ctx, n); err != nil {
		return err
	}
	n.CreatedAt = s.now()
	return s.jobs.Do(ctx, func(tx job.Tx) error {
		if err := s.checkPlace(ctx, tx, n, &Node{}); err != nil {
			return err
		}
		if err := s.store.InsertNode(tx, n); err != nil {
			return err
		}
		return s.note(tx, n.ID, asker, "request", "node created")
	})
}

// check holds the rules that every stored node obeys.
func (s *Nodes) check(ctx context.Context, n *Node) error {
	if err := checkName(n.Name); err != nil {
		return err
	}
	for field, v := range map[string]string{"resource_class": n.ResourceClass, "owner": n.Owner, "lessee": n.Lessee, "conductor_group": n.ConductorGroup, "shard": n.Shard, "instance_name": n.InstanceName} {
		if len(v) > words255 {
			return problem.Invalidf("%s is longer than %d characters", field, words255)
		}
	}
	if len(n.ResourceClass) > 80 {
		return problem.Invalidf("resource_class is longer than 80 characters")
	}
	if len(n.Description) > 4096 {
		return problem.Invalidf("description is longer than 4096 characters")
	}
	n.ConductorGroup = strings.ToLower(n.ConductorGroup)
	catalog, err := s.directory.Catalog(ctx, n.ConductorGroup)
	if err != nil {
		return err
	}
	d, ok := catalog.Driver(n.Driver)
	if !ok {
		return problem.Invalidf("No valid host was found. Reason: No conductor service registered which supports driver %s for conductor group %q.", n.Driver, n.ConductorGroup)
	}
	return s.checkInterfaces(n, d)
}

// checkPlace holds a node's new chassis and parent to be there, in the transaction that writes them down.
func (s *Nodes) checkPlace(ctx context.Context, tx job.Tx, n, was *Node) error {
	if n.ChassisUUID != "" && n.ChassisUUID != was.ChassisUUID {
		err := s.store.LockChassis(tx, n.ChassisUUID)
		if problem.Is(err, problem.NotFound) {
			err = problem.Invalidf("Invalid input for field/attribute chassis_uuid. Value: '%s'. Chassis %s could not be found.", n.ChassisUUID, n.ChassisUUID)
		}
		if err != nil {
			return err
		}
	}
	return s.checkParent(ctx, tx, n, was.ParentNode)
}

// checkParent holds a new parent to be a node of the same owner, and puts its UUID where its name was given.
func (s *Nodes) checkParent(ctx context.Context, tx job.Tx, n *Node, was string) error {
	if n.ParentNode == "" || n.ParentNode == was {
		return nil
	}
	p, err := s.store.Node(ctx, tx, n.ParentNode)
	if err != nil && !problem.Is(err, problem.NotFound) {
		return err
	}
	if err != nil || p.ID == n.ID || p.Owner != n.Owner { // the same words, or they would tell which nodes there are
		return problem.Invalidf("Unable to apply the requested parent_node '%.100s'. Requested value was invalid.", n.ParentNode)
	}
	n.ParentNode = p.ID
	return nil
}

func (s *Nodes) checkInterfaces(n *Node, d DriverInfo) error {
	for _, kind := range slices.Sorted(maps.Keys(n.Interfaces)) { // so that of two errors the same one is told
		name := n.Interfaces[kind]
		if name == "" {
			delete(n.Interfaces, kind)
			continue
		}
		if _, ok := d.Find(n, kind); !ok {
			return problem.Invalidf("Could not find the following interface in the 'ironic.hardware.interfaces.%s' entrypoint: %s. Valid interfaces are %v.", kind, name, d.names(kind))
		}
	}
	return nil
}

func (d DriverInfo) names(kind string) []string {
	var names []string
	for _, i := range d.Interfaces[kind].Enabled {
		names = append(names, i.Name)
	}
	return names
}

// Locked is the error for a node that somebody works on.
func Locked(n *Node) error {
	return problem.Conflictf("%w", job.Locked{Subject: "Node " + n.ID, Host: n.Reservation})
}

// Update changes a record: change edits a copy, which is then checked and saved if
// nobody else changed the node meanwhile (else change runs again on the newer one).
func (s *Nodes) Update(ctx context.Context, ident string, asker record.Asker, change func(*Node) error) (*Node, error) {
	for range 5 {
		n, err := s.tryUpdate(ctx, ident, asker, change)
		if err == record.ErrChanged {
			continue
		}
		return n, err
	}
	return nil, problem.Conflictf("node %s keeps changing; ask again", ident)
}

func (s *Nodes) tryUpdate(ctx context.Context, ident string, asker record.Asker, change func(*Node) error) (*Node, error) {
	old, err := s.store.Node(ctx, nil, ident)
	if err != nil {
		return nil, err
	}
	n := old.Clone()
	if err := change(n); err != nil {
		return nil, err
	}
	mend := old.Reservation != "" && changesOnlyDriverInfo(old, n)
	if old.Reservation != "" && !mend {
		return nil, Locked(old)
	}
	if !mend && !old.ProvisionState.Info().Updatable && !old.Maintenance {
		return nil, problem.Conflictf("Node %s can not be updated while a state transition is in progress.", old.ID)
	}
	if err := s.checkRehome(old, n); err != nil {
		return nil, err
	}
	if err := checkAppendParams(n, old); err != nil {
		return nil, err
	}
	if old.Driver != n.Driver || !reflect.DeepEqual(old.DriverInfo, n.DriverInfo) {
		KeepBMC(n, BMC{}) // it may be another BMC
	}
	if err := s.check(ctx, n); err != nil {
		return nil, err
	}
	err = s.jobs.Do(ctx, func(tx job.Tx) error {
		now, err := s.store.Node(ctx, tx, old.ID)
		if err != nil {
			return err
		}
		if now.Version != old.Version {
			return record.ErrChanged
		}
		switch {
		case now.Reservation == "":
		case !mend:
			return Locked(now)
		default:
			if err := s.admitMend(tx, old, n); err != nil {
				return err
			}
		}
		if err := s.checkPlace(ctx, tx, n, old); err != nil {
			return err
		}
		if err := s.dropAllocation(ctx, tx, n); err != nil {
			return err
		}
		if err := s.EndLease(ctx, tx, n); err != nil {
			return err
		}
		if n.Maintenance != now.Maintenance || n.Fault != now.Fault {
			// As in SetMaintenance: a waiting job may have to stop, or may go on.
			if err := s.jobs.Signal(tx, job.Node(n.ID)); err != nil {
				return err
			}
		}
		if err := s.store.SaveNode(tx, n); err != nil {
			return err
		}
		return s.note(tx, n.ID, asker, "request", "record updated")
	})
	if err != nil {
		return nil, err
	}
	return s.store.Node(ctx, nil, n.ID)
}

// checkRehome refuses changes of driver and interfaces where a machine is in use by them.
func (s *Nodes) checkRehome(old, n *Node) error {
	if old.InstanceUUID != "" && n.InstanceUUID != "" && old.InstanceUUID != n.InstanceUUID {
		return problem.Conflictf("Node %s is associated with instance %s.", old.ID, old.InstanceUUID)
	}
	if old.ProvisionState.Info().InRescue && old.Driver != n.Driver {
		return problem.Conflictf("Node %s: the driver cannot be changed during a rescue; unrescue first", old.ID)
	}
	free := []State{Enroll, Manageable, Available, InspectFailed, AdoptFailed, CleanFailed, InspectWait}
	for _, kind := range InterfaceKinds {
		if old.Interfaces[kind] != n.Interfaces[kind] && !slices.Contains(free, old.ProvisionState) && !old.Maintenance {
			return problem.Invalidf("Node %s: %s_interface can only be changed in the states %v or in maintenance", old.ID, kind, free)
		}
	}
	return nil
}

// Remove deletes a node, with its ports and history, in the states that allow it.
func (s *Nodes) Remove(ctx context.Context, ident string, asker record.Asker) error {
	return s.jobs.Do(ctx, func(tx job.Tx) error {
		n, err := s.store.Node(ctx, tx, ident)
		if err != nil {
			return err
		}
		if n.Reservation != "" {
			return Locked(n)
		}
		if n.InstanceUUID != "" && !n.Maintenance {
			return problem.Conflictf("Node %s is associated with instance %s.", n.ID, n.InstanceUUID)
		}
		info := n.ProvisionState.Info()
		allowed := info.Deletable && (n.ProvisionState != Available || s.opts.AllowDeletingAvailable)
		if !allowed && !n.Maintenance {
			return problem.Conflictf("Can not delete node \"%s\" while it is in provision state \"%s\". Valid provision states for deletion are manageable, enroll, adopt failed and available, or put it in maintenance first.", n.ID, n.ProvisionState)
		}
		if n.Protected {
			return problem.Forbiddenf("Node %s is protected and can not be undeployed, rebuilt or deleted.", n.ID)
		}
		waiting, err := s.jobs.Unended(tx, job.Node(n.ID))
		if err != nil {
			return err
		}
		for _, j := range waiting {
			if err := s.jobs.Interrupt(tx, j.ID, job.Ended, problem.Conflictf("the node was deleted by %s", asker.User)); err != nil {
				return err
			}
		}
		return s.store.DeleteNode(tx, n)
	})
}

// SetMaintenance switches maintenance on or off; it is allowed in every state and beside every job.
func (s *Nodes) SetMaintenance(ctx context.Context, ident string, on bool, reason string, asker record.Asker) error {
	return s.jobs.Do(ctx, func(tx job.Tx) error {
		n, err := s.store.Node(ctx, tx, ident)
		if err != nil {
			return err
		}
		// An operator's word stands until it is taken back: no recovery of a fault ends it.
		n.Maintenance, n.MaintenanceReason, n.Fault = on, reason, ""
		word := "on: " + reason
		if !on {
			n.MaintenanceReason, word = "", "off"
		}
		// What waits may have to stop, or may go on.
		if err := s.jobs.Signal(tx, job.Node(n.ID)); err != nil {
			return err
		}
		if err := s.store.SaveNode(tx, n); err != nil {
			return err
		}
		return s.note(tx, n.ID, asker, "request", "maintenance "+word)
	})
}

// note writes a row of the node's timeline.
func (s *Nodes) note(tx job.Tx, nodeID string, asker record.Asker, kind, text string) error {
	return s.jobs.Append(tx, job.Event{Subject: job.Node(nodeID), At: s.now(), Type: kind, Text: text, Severity: "info", RequestID: asker.RequestID, User: asker.User})
}

// Advance moves a node by an event inside a job's transaction, lets change edit it
// in the same write, and writes the timeline. It is how jobs report.
func (s *Nodes) Advance(ctx context.Context, tx job.Tx, nodeID string, e Event, change func(*Node)) error {
	n, err := s.store.Node(ctx, tx, nodeID)
	if err != nil {
		return err
	}
	t, err := ByEvent(n.ProvisionState, e)
	if err != nil {
		return err
	}
	to := t.To
	if to == Available && (n.Retired || n.TargetProvision == Manageable) {
		to = Manageable // as Ironic: cleaned by hand, or retired
	}
	s.enterState(n, to)
	power := n.PowerState
	if change != nil {
		change(n)
	}
	if err := s.dropAllocation(ctx, tx, n); err != nil {
		return err
	}
	if err := s.SavePower(tx, n, power); err != nil {
		return err
	}
	return s.noteState(tx, n, record.Asker{})
}

// Edit changes a node inside a job's transaction without moving it.
func (s *Nodes) Edit(ctx context.Context, tx job.Tx, nodeID string, change func(*Node)) error {
	n, err := s.store.Node(ctx, tx, nodeID)
	if err != nil {
		return err
	}
	boot, power := n.BootNumber, n.PowerState
	change(n)
	if n.Plan != nil && n.BootNumber != boot {
		plan := *n.Plan
		plan.KeyID, n.Plan = s.key.ID(), &plan
	}
	return s.SavePower(tx, n, power)
}

// enterState puts a node into a state, with the target that clients see. A cleaning by hand
// keeps its own target from start to end.
func (s *Nodes) enterState(n *Node, to State) {
	target := to.Info().Target
	if n.TargetProvision == Manageable && n.ProvisionState.Info().Target == Available && target == Available {
		target = Manageable
	}
	n.ProvisionState, n.TargetProvision, n.ProvisionedAt = to, target, s.now()
}

func (s *Nodes) noteState(tx job.Tx, n *Node, asker record.Asker) error {
	e := job.Event{Subject: job.Node(n.ID), At: s.now(), Type: "state", Text: string(n.ProvisionState), Severity: "info", RequestID: asker.RequestID, User: asker.User}
	if n.LastError != "" {
		e.Severity, e.Text = "error", string(n.ProvisionState)+": "+n.LastError
	}
	return s.jobs.Append(tx, e)
}
