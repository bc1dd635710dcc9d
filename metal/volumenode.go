package metal

import (
	"context"
	"strings"
	"time"

	"salvor/job"
	"salvor/problem"
	"salvor/record"
)

// FromVolumes tells whether the node's storage interface has it boot from its volume targets.
func (d DriverInfo) FromVolumes(n *Node) bool {
	i, ok := d.Find(n, "storage")
	return ok && i.Volumes
}

// VolumePlan reads what the node boots from its targets as they are now; the zero plan where its
// storage interface leaves volumes alone.
func (s *Nodes) VolumePlan(ctx context.Context, n *Node) (VolumePlan, error) {
	d, err := s.directory.Driver(ctx, n)
	if err != nil {
		return VolumePlan{}, err
	}
	return s.volumePlan(ctx, n, d)
}

func (s *Nodes) volumePlan(ctx context.Context, n *Node, d DriverInfo) (VolumePlan, error) {
	if !d.FromVolumes(n) {
		return VolumePlan{}, nil
	}
	targets, err := s.store.Targets().List(ctx, nil, TargetFilter{NodeID: n.ID}, record.Page{Limit: 1000})
	if err != nil {
		return VolumePlan{}, err
	}
	connectors, err := s.store.Connectors().List(ctx, nil, ConnectorFilter{NodeID: n.ID}, record.Page{Limit: 1000})
	if err != nil {
		return VolumePlan{}, err
	}
	plan, err := PlanVolumes(n, connectors, targets)
	if err != nil || plan.Root == nil {
		return plan, err
	}
	if boot, ok := d.Find(n, "boot"); !ok || !boot.boots(plan.Root.Type) {
		return VolumePlan{}, problem.Invalidf("its boot interface %s cannot boot from %s volumes", boot.Name, plan.Root.Type)
	}
	if formatScalar(n.InstanceInfo["image_source"]) != "" {
		return VolumePlan{}, problem.Invalidf("instance_info names an image to write (image_source), but the node boots from volume target %s: take one of them away", plan.Root.TargetID)
	}
	return plan, nil
}

func (i InterfaceInfo) boots(t VolumeType) bool {
	for _, have := range i.BootsVolumes {
		if have == t {
			return true
		}
	}
	return false
}

// storageValidity holds the storage interface to the records of the node's volumes.
func (s *Nodes) storageValidity(ctx context.Context, n *Node, d DriverInfo) (VolumePlan, Validity, error) {
	plan, err := s.volumePlan(ctx, n, d)
	if err == nil && d.FromVolumes(n) {
		err = s.checkConnectors(ctx, n.ID)
	}
	if problem.Is(err, problem.Invalid) {
		return plan, Validity{Known: true, Reason: err.Error()}, nil
	}
	return plan, Validity{OK: true, Known: true}, err
}

const (
	bootFailed = "Failed to boot: "
	// bootWordEvery is shorter than a machine takes to try again.
	bootWordEvery = 10 * time.Second
)

// BootFailed shows on the node why a machine that was given this boot did not start from its
// volumes. The same word again changes nothing, nor does another one that comes soon after: who knows a machine's boot, or has a
// site's token, could fill the timeline with them.
func (s *Nodes) BootFailed(ctx context.Context, nodeID string, boot int64, why string) error {
	return s.jobs.Do(ctx, func(tx job.Tx) error {
		n, err := s.store.Node(ctx, tx, nodeID)
		if err != nil {
			return err
		}
		text := bootFailed + why
		soon := strings.HasPrefix(n.LastError, bootFailed) && s.now().Sub(n.UpdatedAt) < bootWordEvery
		if n.BootNumber != boot || n.LastError == text || soon {
			return nil
		}
		n.LastError = text
		if err := s.store.SaveNode(tx, n); err != nil {
			return err
		}
		return s.jobs.Append(tx, job.Event{Subject: job.Node(n.ID), At: s.now(), Type: "boot", Text: text, Severity: "error"})
	})
}
