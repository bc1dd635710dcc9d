package metal

import (
	"context"
	"maps"
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
	// PowerInterval is the time between two readings of the power of a node.
	PowerInterval time.Duration
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
		if err := s.note(tx, n.ID, asker, "request", "node created"); err != nil {
			return err
		}
		return s.warnOfKeys(ctx, tx, n, &Node{}, asker)
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
