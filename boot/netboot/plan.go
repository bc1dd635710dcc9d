package netboot

import (
	"context"
	"strings"

	"salvor/boot/media"
	"salvor/metal"
	"salvor/problem"
	"salvor/secret"
)

// Plans finds the boot plan of the machine that asks; metal.PlanStore is one. It is
// called once per packet or request and must be safe for concurrent use. A machine
// or path without a plan is problem.NotFound.
type Plans interface {
	NodeByMAC(ctx context.Context, mac string) (*metal.Node, error)
	NodeByBootPath(ctx context.Context, path string) (*metal.Node, error)
}

// errNoPlan is the one answer for every way of having nothing to boot.
var errNoPlan = problem.NotFoundf("no boot plan")

// currentPlan gives the plan that holds now. A plan of another boot number belongs to a
// boot that ended: its token is void.
func currentPlan(n *metal.Node) (*metal.BootPlan, error) {
	if n == nil || n.Plan == nil || n.Plan.BootNumber != n.BootNumber {
		return nil, errNoPlan
	}
	return n.Plan, nil
}

// kernelParams gives the kernel parameters of a node's current plan. The result may hold
// the agent token, and so must reach nobody but the machine.
func kernelParams(n *metal.Node, plan *metal.BootPlan, token func(*metal.Node) secret.Value) (string, error) {
	params := append([]string(nil), plan.Params...)
	if plan.CarryToken && token != nil {
		if t := token(n); !t.Empty() {
			for i, word := range params {
				params[i] = metal.AddFindingsProof(word, t.Reveal())
			}
			params = append(params, "ipa-agent-token="+t.Reveal())
		}
	}
	line := strings.Join(params, " ")
	return line, media.CheckParams(line)
}
