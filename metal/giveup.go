package metal

import (
	"context"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"salvor/job"
	"salvor/problem"
	"salvor/record"
)

// What is given up leaves nothing harmful behind: the boot of the ramdisk, its files and its token are void at once, whether the BMC
// answers or not.

// ramdiskMark in driver_internal_info tells that the BMC may still be set up for a ramdisk whose boot is void; its value is the boot method.
const ramdiskMark = "salvor_ramdisk_set"

// HoldsRamdisk tells whether a boot of a ramdisk that is not the node's system is valid, or may still be set up in the BMC.
func (n *Node) HoldsRamdisk() bool { return n.BootsRamdisk() || n.InternalInfo[ramdiskMark] != nil }

// BootsRamdisk tells whether the node has a valid boot plan for a ramdisk other than the node's own system.
func (n *Node) BootsRamdisk() bool { return n.Plan != nil && !n.Plan.Persistent && !n.Plan.Volumes }

// armedInRescue tells whether a repair has armed the next boot of a machine in rescue. Its ramdisk is heard although the repair locks the node,
// because only its agent can take back what a power cut has left half-written.
func (n *Node) armedInRescue() bool { return n.ProvisionState == Rescue && n.BootsRamdisk() }

// RamdiskBootMethod is the method of a void boot that the BMC may still be set up for; empty if it is not.
func (n *Node) RamdiskBootMethod() BootMethod {
	return BootMethod(formatScalar(n.InternalInfo[ramdiskMark]))
}

// VoidRamdisk takes the plan of a ramdisk's boot away, and makes its token worthless. The boot of the node's own system stays.
func (n *Node) VoidRamdisk() {
	if !n.BootsRamdisk() {
		return
	}
	n.SetInternal(ramdiskMark, string(n.Plan.Method))
	n.VoidBoot()
}

// VoidBoot takes the plan of any boot away and makes its token worthless.
func (n *Node) VoidBoot() {
	if n.Plan != nil {
		n.Plan = nil
		n.BootNumber++
	}
}

// RamdiskCleared notes that the BMC is no longer set up for a ramdisk.
func (n *Node) RamdiskCleared() {
	if n.InternalInfo[ramdiskMark] != nil {
		n.SetInternal(ramdiskMark, nil)
	}
}

// Causes of aborts. The second ends an undoing, whose own cause differs.
const (
	abortedByRequest  = "aborted by request"
	undoneNoFurther   = "taking it back was aborted by request"
	abortedInMidWords = "asked to abort its %s"
)

// abort has the jobs fail that lock the node: whatever they do, they are stopped within seconds. An undoing is given up.
func (s *Nodes) abort(ctx context.Context, tx job.Tx, n *Node, asker record.Asker) error {
	open, err := s.jobs.Unended(tx, job.Node(n.ID))
	if err != nil {
		return err
	}
	var kinds []string
	for _, j := range open {
		if j.Class == job.Background {
			continue
		}
		if j.Kind == JobWriteRepair {
			return problem.Conflictf("node %s: a repair writes to its disks, and a half-written disk does not boot; the repair ends by itself, or takes back what it wrote", n.ID)
		}
		cause := abortedByRequest
		if j.State == job.Undoing {
			cause = undoneNoFurther
		}
		if err := s.jobs.Abort(tx, j, cause); err != nil {
			return err
		}
		kinds = append(kinds, string(j.Kind))
	}
	if len(kinds) == 0 {
		return Locked(n)
	}
	n.leaveRamdisk()
	if err := s.store.SaveNode(tx, n); err != nil {
		return err
	}
	return s.note(tx, n.ID, asker, "request", fmt.Sprintf(abortedInMidWords, strings.Join(kinds, " and its ")))
}

// loginWords end the keys of driver_info that say how the login to a BMC goes, and not which BMC or machine it is.
var loginWords = []string{"username", "password", "auth_type", "verify_ca", "hex_kg_key", "priv_level", "cipher_suite", "protocol_version"}

func isLogin(key string) bool {
	return slices.ContainsFunc(loginWords, func(w string) bool { return strings.HasSuffix(key, "_"+w) })
}

// admitMend admits a change of driver_info while a job locks the node. It always admits new login data. It admits another BMC or
// machine only while the job retries, before an action of it has succeeded.
func (s *Nodes) admitMend(tx job.Tx, old, n *Node) error {
	open, err := s.jobs.Unended(tx, job.Node(old.ID))
	if err != nil {
		return err
	}
	lead := record.Lead(open)
	if lead == nil || !lead.Locks() {
		return Locked(old)
	}
	var others []string
	for _, info := range []Object{old.DriverInfo, n.DriverInfo} {
		for key := range info {
			if !reflect.DeepEqual(old.DriverInfo[key], n.DriverInfo[key]) && !isLogin(key) && !slices.Contains(others, key) {
				others = append(others, key)
			}
		}
	}
	if len(others) > 0 && lead.Attempt == 0 {
		return Locked(old)
	}
	if len(others) > 0 && lead.Advanced() {
		slices.Sort(others)
		return problem.Conflictf("Node %s: driver_info %s can not be changed while its %s, of which actions have succeeded, tries again; abort it first.", old.ID, strings.Join(others, ", "), lead.Kind)
	}
	return s.jobs.RetryNow(tx, job.Node(old.ID))
}

// changesOnlyDriverInfo tells whether a change of the node is one of driver_info alone.
func changesOnlyDriverInfo(old, n *Node) bool {
	if reflect.DeepEqual(old.DriverInfo, n.DriverInfo) {
		return false
	}
	rest := n.Clone()
	rest.DriverInfo = old.DriverInfo
	return reflect.DeepEqual(old, rest)
}
