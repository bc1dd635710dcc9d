package node

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"sync"

	"salvor/diagnose"
	"salvor/diagnose/machine"
	"salvor/driver"
	"salvor/metal"
	"salvor/problem"
	"salvor/record"
)

// machineProof finds what shows that the own system of a machine works. Diagnoses and repairs share it.
type machineProof struct{ *Conductor }

// maxProofAddresses bounds how many addresses are asked for a proof.
const maxProofAddresses = 4

// addresses are those at which the machine's own system may answer, as far as salvor knows: those of its network_data, or the one at which the agent of its
// newest ramdisk was heard, if the machine stays on that network.
func (c machineProof) addresses(ctx context.Context, m *managedNode) ([]string, error) {
	contact, err := c.Store.Contact(ctx, nil, m.node.ID)
	if err != nil {
		return nil, err
	}
	data, err := networkData(m.node)
	if err != nil {
		return nil, nil // without an address, a person confirms
	}
	moves := m.network != nil && m.network.Moves(m.node, m.ports, driver.Rescuing, driver.Tenant)
	return rescueEntry{moves: moves}.addresses(data, contact.AgentURL), nil
}

// askSSH asks sshd at the addresses, at all of them at once, for one of the public host keys. proven is an address at which sshd has one. other is one at
// which an sshd with another host key answers. Each is empty where there is none.
func (c machineProof) askSSH(ctx context.Context, addresses, keys []string) (proven, other string) {
	if c.ProveSSH == nil {
		return "", ""
	}
	addresses = addresses[:min(len(addresses), maxProofAddresses)]
	answers := make([]error, len(addresses))
	var asked sync.WaitGroup
	for i, address := range addresses {
		asked.Go(func() { answers[i] = c.ProveSSH(ctx, address, keys) })
	}
	asked.Wait()
	for i, err := range answers {
		switch {
		case err == nil && len(keys) > 0:
			proven = cmp.Or(proven, addresses[i])
		case problem.Is(err, problem.Conflict):
			other = cmp.Or(other, addresses[i])
		}
	}
	return proven, other
}

// hostKeys are the public ssh host keys that lie on the node's disks, as far as the kept diagnoses and repairs know: those of the newest examination and
// those of the newest plan of a repair, which may have made some anew.
func (c machineProof) hostKeys(ctx context.Context, nodeID string) ([]string, error) {
	diagnoses, err := c.Nodes.Diagnoses(ctx, nil, nodeID)
	if err != nil {
		return nil, err
	}
	var out []string
	for _, d := range diagnoses {
		if out = d.Report.HostKeys(); len(out) > 0 {
			break
		}
	}
	service := metal.NewNodeRepairs(c.Nodes)
	repairs, err := service.List(ctx, nil, nodeID)
	if err != nil {
		return nil, err
	}
	for _, r := range repairs {
		plan, err := service.Plan(ctx, nodeID, r.ID)
		if problem.Is(err, problem.NotFound) {
			continue
		}
		if err != nil {
			return nil, err
		}
		return append(out, plan.HostKeys...), nil
	}
	return out, nil
}

// sshd asks sshd of a machine in use for a host key that lies on its disks. Without such a key, or with another one, an sshd that answers is no proof: the
// address may be another machine's.
func (c machineProof) sshd(ctx context.Context, m *managedNode) (*diagnose.Proof, *diagnose.Observation, error) {
	if c.ProveSSH == nil {
		return nil, nil, nil
	}
	addresses, err := c.addresses(ctx, m)
	if err != nil || len(addresses) == 0 {
		return nil, nil, err
	}
	keys, err := c.hostKeys(ctx, m.node.ID)
	if err != nil {
		return nil, nil, err
	}
	proven, other := c.askSSH(ctx, addresses, keys)
	unproven := func(text string) *diagnose.Observation { return &diagnose.Observation{Name: "sshd", Text: text} }
	switch {
	case proven != "":
		return &diagnose.Proof{Kind: diagnose.ProofSSHD, Text: fmt.Sprintf("its sshd answered at %s with a host key that lies on its disks, at %s", proven, record.Moment(c.Now()))}, nil, nil
	case other != "" && len(keys) == 0:
		return nil, unproven("an sshd answers at " + other + ", but no host key of the machine's disks is known, so it may be another machine; an examination of the disks reads the keys"), nil
	case other != "":
		return nil, unproven("an sshd answers at " + other + " with a host key that was on none of the machine's disks when they were last examined; it may be another machine"), nil
	}
	return nil, unproven("no sshd of the machine answers at " + strings.Join(addresses[:min(len(addresses), maxProofAddresses)], ", ")), nil
}

// loginProof is the proof that the kept console log of a node gives; nil: it gives none. The line must have been read without an interruption since before
// the login, and no change of the power may be under way. The log has nothing of what ramdisks write.
func loginProof(n *metal.Node, log *metal.ConsoleLog) *diagnose.Proof {
	part := log.Current()
	if !n.ConsoleEnabled || n.TargetPower != "" || part == nil || !machine.StaysAtLogin(part.Text) {
		return nil
	}
	return &diagnose.Proof{Kind: diagnose.ProofLogin, Text: "the console shows that the newest boot came to the login, and nothing that contradicts; it last wrote at " + record.Moment(part.Until)}
}
