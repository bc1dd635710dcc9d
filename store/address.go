package store

import (
	"context"
	"database/sql"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"net/netip"

	"salvor/compute"
	"salvor/job"
	"salvor/problem"
)

// addressKey is an address as its row's key: the upper half in hexadecimal, and the lower half as a number in the order of the addresses.
type addressKey struct {
	block string
	host  int64
}

// signBit is the bit that keeps the order of unsigned numbers in signed ones.
const signBit = 1 << 63

// addressKeyOf gives the key of an address. An invalid address has the zero key, which no row has.
func addressKeyOf(a netip.Addr) addressKey {
	if !a.IsValid() {
		return addressKey{}
	}
	b := a.As16()
	return addressKey{hex.EncodeToString(b[:8]), int64(binary.BigEndian.Uint64(b[8:]) ^ signBit)}
}

func (p addressKey) addr() netip.Addr {
	var b [16]byte
	_, _ = hex.Decode(b[:8], []byte(p.block)) // it was encoded by addressKeyOf
	binary.BigEndian.PutUint64(b[8:], uint64(p.host)^signBit)
	return netip.AddrFrom16(b).Unmap()
}

// addressPool is what a network says of its addresses.
type addressPool struct {
	prefix      netip.Prefix
	gateway     netip.Addr
	first, last addressKey
}

func poolOf(n *compute.Network) (p addressPool, err error) {
	bad := func(what, value string) error {
		return problem.Invalidf("Network %s: %s %q is no address of its subnet %s", n.ID, what, value, n.CIDR)
	}
	if p.prefix, err = netip.ParsePrefix(n.CIDR); err != nil {
		return p, problem.Invalidf("Network %s: %q is no subnet", n.ID, n.CIDR)
	}
	p.prefix = p.prefix.Masked()
	first, last := hosts4and6(p.prefix)
	for _, e := range []struct {
		what, value string
		to          *netip.Addr
	}{{"gateway", n.Gateway, &p.gateway}, {"first address", n.First, &first}, {"last address", n.Last, &last}} {
		if e.value == "" {
			continue
		}
		a, err := netip.ParseAddr(e.value)
		if err != nil || !p.prefix.Contains(a.Unmap()) {
			return p, bad(e.what, e.value)
		}
		*e.to = a.Unmap()
	}
	p.first, p.last = addressKeyOf(first), addressKeyOf(last)
	if p.first.block != p.last.block { // a pool wider than the lower half: its first part is enough for any network
		p.last = addressKey{p.first.block, 1<<63 - 1}
	}
	return p, nil
}

// hosts4and6 are the first and the last address of a subnet that a machine may have.
func hosts4and6(p netip.Prefix) (first, last netip.Addr) {
	first = p.Addr()
	b := first.AsSlice()
	for bit := p.Bits(); bit < 8*len(b); bit++ {
		b[bit/8] |= 0x80 >> (bit % 8)
	}
	last, _ = netip.AddrFromSlice(b)
	if 8*len(b)-p.Bits() < 2 { // point to point: all are for machines
		return first, last
	}
	first = first.Next()
	if first.Is4() {
		last = last.Prev() // broadcast
	}
	return first, last
}

// AllocateAddress is compute.Store's. A network without a subnet gives none: the address is empty.
// Whoever allocates writes the network's row, so allocators of one network take turns on every engine.
func (s serverTables) AllocateAddress(t job.Tx, n *compute.Network, a compute.Address, want string) (string, error) {
	tx, err := s.tx(t)
	if err != nil {
		return "", err
	}
	if n.CIDR == "" {
		if want != "" {
			return "", problem.Invalidf("Network %s has no subnet, so it has no address %.60s", n.ID, want)
		}
		return "", nil
	}
	p, err := poolOf(n)
	if err != nil {
		return "", err
	}
	if want != "" {
		return s.takeAddress(tx, n, a, p, want)
	}
	full, err := s.fullPart(tx, n.ID)
	if err != nil {
		return "", err
	}
	from := p.first
	if full.from == p.first && full.gateway == addressKeyOf(p.gateway).host {
		from.host = max(from.host, full.to)
	}
	at, err := lowestFree(tx, n.ID, from, p)
	if err != nil {
		return "", err
	}
	if _, err := tx.exec(`UPDATE network SET full_block = $2, full_from = $3, full_to = $4, full_gateway = $5 WHERE id = $1`,
		n.ID, p.first.block, p.first.host, at.host+1, addressKeyOf(p.gateway).host); err != nil {
		return "", fmt.Errorf("allocate in network %s: %w", n.ID, err)
	}
	return s.putAddress(tx, n, a, at)
}

// fullPart is the part at the beginning of a network's pool of which all addresses are taken, or the gateway's: from, up to and without to.
type fullPart struct {
	from        addressKey
	to, gateway int64
}

func (s serverTables) fullPart(tx *Tx, networkID string) (f fullPart, err error) {
	found := false
	err = tx.each(func(r *sql.Rows) error { found = true; return r.Scan(&f.from.block, &f.from.host, &f.to, &f.gateway) },
		`SELECT full_block, full_from, full_to, full_gateway FROM network WHERE id = $1`, networkID)
	if err == nil && !found {
		err = networks.notFound(networkID)
	}
	return f, err
}

// lowestFree looks for the first gap from an address on; the gateway's is none.
func lowestFree(tx *Tx, networkID string, at addressKey, p addressPool) (addressKey, error) {
	gateway := addressKeyOf(p.gateway)
	for at.host <= p.last.host {
		var free sql.NullInt64
		// Either the place itself is free, or the neighbour of the first taken one from there on that has none.
		err := tx.each(func(r *sql.Rows) error { return r.Scan(&free) }, `SELECT CASE
			WHEN EXISTS (SELECT 1 FROM address f WHERE f.network_id = $1 AND f.block = $2 AND f.host = $3)
			THEN (SELECT a.host + 1 FROM address a WHERE a.network_id = $1 AND a.block = $2 AND a.host >= $3 AND a.host < $4
				AND NOT EXISTS (SELECT 1 FROM address b WHERE b.network_id = $1 AND b.block = $2 AND b.host = a.host + 1)
				ORDER BY a.host LIMIT 1)
			ELSE CAST($3 AS BIGINT) END`, networkID, at.block, at.host, p.last.host)
		if err != nil {
			return addressKey{}, fmt.Errorf("look for a free address of network %s: %w", networkID, err)
		}
		if !free.Valid {
			break
		}
		if at.host = free.Int64; at != gateway {
			return at, nil
		}
		if at == p.last {
			break
		}
		at.host++
	}
	return addressKey{}, problem.Conflictf("No more IP addresses available on network %s.", networkID)
}

func (s serverTables) takeAddress(tx *Tx, n *compute.Network, a compute.Address, p addressPool, want string) (string, error) {
	addr, err := netip.ParseAddr(want)
	if err != nil || addr.Zone() != "" || !p.prefix.Contains(addr.Unmap()) {
		return "", problem.Invalidf("Fixed IP address %.60s is not a valid address of network %s (%s)", want, n.ID, n.CIDR)
	}
	if addr = addr.Unmap(); addr == p.gateway {
		return "", problem.Conflictf("Fixed IP address %s is the gateway of network %s.", addr, n.ID)
	}
	return s.putAddress(tx, n, a, addressKeyOf(addr))
}

func (s serverTables) putAddress(tx *Tx, n *compute.Network, a compute.Address, at addressKey) (string, error) {
	text := at.addr().String()
	rows, err := tx.exec(`INSERT INTO address (network_id, block, host, address, mac, server_id) VALUES ($1, $2, $3, $4, $5, $6)
		ON CONFLICT DO NOTHING`, n.ID, at.block, at.host, text, a.MAC, a.ServerID)
	switch {
	case err != nil && s.engine.violated(err) == foreignKey:
		return "", networks.notFound(n.ID)
	case err != nil:
		return "", fmt.Errorf("allocate %s of network %s: %w", text, n.ID, err)
	case rows == 0:
		return "", problem.Conflictf("Fixed IP address %s is already in use on network %s.", text, n.ID)
	}
	return text, nil
}

// FreeAddresses is compute.Store's.
func (s serverTables) FreeAddresses(t job.Tx, serverID string) error {
	tx, err := s.tx(t)
	if err != nil || serverID == "" {
		return err
	}
	const freed = `(SELECT MIN(a.host) FROM address a WHERE a.network_id = network.id AND a.block = network.full_block AND a.server_id = $1)`
	_, err = tx.exec(`UPDATE network SET full_to = CASE WHEN `+freed+` < full_to THEN `+freed+` ELSE full_to END
		WHERE id IN (SELECT network_id FROM address WHERE server_id = $1)`, serverID)
	if err == nil {
		_, err = tx.exec(`DELETE FROM address WHERE server_id = $1`, serverID)
	}
	if err != nil {
		return fmt.Errorf("free the addresses of server %s: %w", serverID, err)
	}
	return nil
}

// Addresses is compute.Store's, in the order of the addresses.
func (s serverTables) Addresses(ctx context.Context, t job.Tx, networkID string) ([]compute.Address, error) {
	var out []compute.Address
	err := s.read(ctx, t, func(r *sql.Rows) error {
		a := compute.Address{NetworkID: networkID}
		err := r.Scan(&a.Address, &a.MAC, &a.ServerID)
		out = append(out, a)
		return err
	}, `SELECT address, mac, server_id FROM address WHERE network_id = $1 ORDER BY block, host`, networkID)
	if err != nil {
		return nil, fmt.Errorf("list the addresses of network %s: %w", networkID, err)
	}
	return out, nil
}
