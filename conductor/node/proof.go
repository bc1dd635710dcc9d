package node

import (
	"context"

	"salvor/diagnose"
	"salvor/diagnose/machine"
	"salvor/driver"
	"salvor/metal"
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

// sshAddress is the address at which sshd has one of the public host keys; empty: none has.
func (c machineProof) sshAddress(ctx context.Context, addresses, keys []string) string {
	if c.ProveSSH == nil || len(keys) == 0 {
		return ""
	}
	for _, address := range addresses[:min(len(addresses), maxProofAddresses)] {
		if c.ProveSSH(ctx, address, keys) == nil {
			return address
		}
	}
	return ""
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
