package metal

import (
	"context"
	"time"

	"salvor/problem"
)

// admitWork refuses a verb if its operation could not work, or if the configured maximum of such operations is reached.
func (s *Nodes) admitWork(ctx context.Context, n *Node, v Verb, t Transition, args ProvisionArgs) error {
	if err := s.ready(ctx, n, t, args); err != nil {
		return err
	}
	return s.admitAtOnce(ctx, n, v)
}

// atOnceRetryAfter is the Retry-After of a request that admitAtOnce refuses.
const atOnceRetryAfter = 10 * time.Second

// admitAtOnce refuses to begin more deployments, or cleanings, than the configuration allows at a time, as Ironic does. The client
// sends the request again later. The count precedes the transaction, so concurrent requests may exceed the maximum together. It does
// not count nodes in a hold step, which wait for a person. Rescues have no such maximum.
func (s *Nodes) admitAtOnce(ctx context.Context, n *Node, v Verb) error {
	var most int
	var option, done string
	var states []State
	switch v {
	case Deploy, Rebuild:
		most, option, done, states = s.opts.MaxDeploying, "max_concurrent_deploy", "deployed", []State{Deploying, DeployWait}
	case Clean, Provide, Delete:
		most, option, done, states = s.opts.MaxCleaning, "max_concurrent_clean", "cleaned or taken down", []State{Deleting, Cleaning, CleanWait}
	}
	if most == 0 {
		return nil
	}
	now, err := s.store.CountNodes(ctx, states...)
	if err != nil || now < most {
		return err
	}
	return problem.RetryAfter(atOnceRetryAfter, problem.Unavailablef("Node %s cannot be %s now: %d nodes are, and [conductor]%s allows %d at a time. Ask again when one of them has ended, or raise that option.", n.ID, done, now, option, most))
}
