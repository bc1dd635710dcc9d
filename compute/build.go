package compute

import "context"

// Blueprint is all that a host must be told of a server: the spec, and what must not be shown.
type Blueprint struct {
	Spec   Spec
	Secret OrderSecret
}

// Blueprint puts together what the host of a server must know; what the server is made of is read from the store.
// The config drive's files are in it if it has one; hash is that of the system's first password, "" after it was set.
func (s *Servers) Blueprint(ctx context.Context, srv *Server, hash string) (*Blueprint, error) {
	return nil, errSoon
}
