package compute

import (
	"fmt"
	"slices"
	"time"

	"salvor/job"
)

// ExplainFormer says of a former receipt why it proves nothing, and what to do.
func (r *Receipt) ExplainFormer(host string) string {
	return fmt.Sprintf("host %[1]s was fenced before the database was restored, and may have been admitted again since: it is not proven off. Run: salvor fence %[1]s", host)
}

// ApplyProofs adds to a receipt whose boot spoke again what proves that it is off since.
func (r *Receipt) ApplyProofs(proofs []Proof) bool {
	fresh := slices.DeleteFunc(slices.Clone(proofs), func(p Proof) bool {
		return !p.EndsAllBoots() || !p.At.After(r.HeardAt)
	})
	if !r.Doubted() || len(fresh) == 0 {
		return false
	}
	r.Proofs, r.HeardAt = append(r.Proofs, fresh...), time.Time{}
	return true
}

// MissingEvidence lists what a group requires beside these proofs.
func MissingEvidence(g *HostGroup, proofs []Proof) (out []Evidence) {
	for _, e := range g.Require {
		if !slices.ContainsFunc(proofs, func(p Proof) bool { return p.Evidence == e }) {
			out = append(out, e)
		}
	}
	return out
}

// AnsweredItsCluster tells whether a node of a cluster answered it when that was last looked at: one that does not tells no memory.
func (h *Host) AnsweredItsCluster() bool { return h.Kind == GanetiHost && h.Inventory.RAM > 0 }

// JobReadmit gives the servers of a host whose fence was contradicted their volumes back, which that had taken away.
const JobReadmit job.Kind = "host readmit"

// HeardEvery is how often it is written down that a fenced boot speaks.
const HeardEvery = time.Second
