package ironic

import (
	"salvor/access"
	"salvor/problem"
)

// asLessee gives the project of a principal who may change the node's volumes only by the node's lease; empty otherwise.
func (c *ironicCall) asLessee(node string) (string, error) {
	if c.Principal.Role != access.Scoped || c.Principal.Scope.Project == "" {
		return "", nil
	}
	n, err := c.s.Nodes.Node(c.R.Context(), node)
	if err != nil || n.Lessee != c.Principal.Scope.Project || c.allows("volume:update", access.Target{Owner: n.Owner}) {
		return "", err
	}
	return n.Lessee, nil
}

// markLessee stores the lessee who made a record, or who moved it to its node.
func (k *recordKind[R, F]) markLessee(c *ironicCall, r *R) error {
	if k.byLessee == nil {
		return nil
	}
	lessee, err := c.asLessee(k.nodeOf(r))
	if problem.Is(err, problem.NotFound) {
		return nil // the service refuses a node that does not exist
	}
	*k.byLessee(r) = lessee
	return err
}

// lesseeGate refuses changes of a lessee to records of the operator or the owner.
func (k *recordKind[R, F]) lesseeGate(c *ironicCall, r *R) error {
	if k.byLessee == nil || k.shared || *k.byLessee(r) != "" {
		return nil
	}
	lessee, err := c.asLessee(k.nodeOf(r))
	if err == nil && lessee != "" {
		err = problem.Forbiddenf("%s %s belongs to the node's operator: a lessee changes only what a lessee made. Ask the operator or the owner.", k.name, k.head(r).ID)
	}
	return err
}
