// Package hostkey asks an ssh server to prove that it has a host key. Nobody logs in.
package hostkey

import (
	"context"
	"errors"
	"net"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/crypto/ssh"

	"salvor/problem"
)

const (
	// Timeout bounds one question.
	Timeout = 5 * time.Second
	port    = "22"
)

// errProven ends the handshake once the server has signed with a key that is wanted.
var errProven = errors.New("the host key is proven")

// Check asks the sshd at an IP address, port 22, for a signature with one of the public host keys ("TYPE BASE64"). control is asked for the
// address before the connection; nil: nobody is. Invalid: no key can be read. Unavailable: no sshd answers, or it has no host key of a type that is wanted.
// Conflict: it has another host key, as each sshd does where no keys are given.
func Check(ctx context.Context, address string, keys []string, control func(network, address string, c syscall.RawConn) error) error {
	return CheckServer(ctx, net.JoinHostPort(address, port), keys, control)
}

// CheckServer is Check for an address with a port.
func CheckServer(ctx context.Context, server string, keys []string, control func(network, address string, c syscall.RawConn) error) error {
	wanted, kinds := readKeys(keys)
	if len(wanted) == 0 && len(keys) > 0 {
		return problem.Invalidf("host key of %s: there is no public host key that could be compared", server)
	}
	ctx, cancel := context.WithTimeout(ctx, Timeout)
	defer cancel()
	conn, err := (&net.Dialer{Control: control}).DialContext(ctx, "tcp", server)
	if err != nil {
		return problem.Unavailablef("host key of %s: %w", server, err)
	}
	defer conn.Close()
	if end, ok := ctx.Deadline(); ok {
		if err := conn.SetDeadline(end); err != nil {
			return problem.Unavailablef("host key of %s: %w", server, err)
		}
	}
	other := false
	_, _, _, err = ssh.NewClientConn(conn, server, &ssh.ClientConfig{
		User: "salvor", HostKeyAlgorithms: kinds,
		// The handshake calls this after it has checked the server's signature.
		HostKeyCallback: func(_ string, _ net.Addr, key ssh.PublicKey) error {
			if slices.Contains(wanted, string(key.Marshal())) {
				return errProven
			}
			other = true
			return errors.New("another host key")
		},
	})
	switch {
	case errors.Is(err, errProven):
		return nil
	case other:
		return problem.Conflictf("host key of %s: the sshd there has another host key", server)
	}
	return problem.Unavailablef("host key of %s: %w", server, err)
}

// readKeys gives the keys in wire format, and the algorithms by which a server can prove them.
func readKeys(keys []string) (wanted, algorithms []string) {
	for _, text := range keys {
		key, _, _, _, err := ssh.ParseAuthorizedKey([]byte(strings.TrimSpace(text)))
		if err != nil {
			continue
		}
		wanted = append(wanted, string(key.Marshal()))
		kinds := []string{key.Type()}
		if key.Type() == ssh.KeyAlgoRSA {
			kinds = []string{ssh.KeyAlgoRSASHA512, ssh.KeyAlgoRSASHA256}
		}
		for _, k := range kinds {
			if !slices.Contains(algorithms, k) {
				algorithms = append(algorithms, k)
			}
		}
	}
	return wanted, algorithms
}
