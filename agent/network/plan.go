// Package network gives a rescued machine its tenant's network after the agent has ended. It interprets network_data.json, speaks DHCP over
// a network that is still being moved, and makes the netlink calls for both. It knows no API, no token and no password; the agent writes
// the facts that it needs into the Plan.
package network

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"

	"salvor/problem"
)

// Files that the agent, this package and the ramdisk's init share, below the root.
const (
	// PlanFile is written by the agent when it ends, mode 0600, and removed once applied.
	PlanFile = "run/salvor/rescue.json"
	// ListenFile holds the addresses for ssh, one a line.
	ListenFile = "run/salvor/ssh-listen"
	// LeasePrefix and a NIC's name make the file in which init may have left what
	// udhcpc told it, as lines like serverid=192.0.2.1.
	LeasePrefix = "run/salvor/dhcp-"
	// TakenPrefix and a NIC's name make the file with the address that the NIC has by DHCP
	// on the tenant's network; init keeps that lease alive.
	TakenPrefix = "run/salvor/taken-"
	// LeftOutFile says what was left out of the network and why, a sentence a line.
	LeftOutFile = "run/salvor/network-left-out"
	resolver    = "etc/resolv.conf"
)

const maxPlan = 4 << 20

// Move says whether the ports leave the rescuing network after finalize.
type Move string

// The values of Move.
const (
	MoveYes     Move = "yes"
	MoveNo      Move = "no"
	MoveUnknown Move = "unknown" // the server is not salvor
)

// Plan is what the agent knows at its end.
type Plan struct {
	Move          Move            `json:"move"`
	NetworkData   json.RawMessage `json:"network_data,omitempty"`
	SSHInterfaces []string        `json:"ssh_interfaces,omitempty"` // MACs, lower case
	Before        []Lease         `json:"before,omitempty"`
}

// Lease is what one NIC held in the rescuing network.
type Lease struct {
	MAC       string   `json:"mac"`
	Addresses []string `json:"addresses"`        // 192.0.2.7/24
	Server    string   `json:"server,omitempty"` // the DHCP server, where known
}

// WritePlan leaves the plan below root, readable by root only.
func WritePlan(root string, plan Plan) error {
	text, err := json.Marshal(plan)
	if err != nil {
		return err
	}
	return replaceFile(root, PlanFile, text, 0o600)
}

// OpenRoot opens the tree to work in. What is done by it stays in it, whatever links
// lie there. Empty is the machine's own.
func OpenRoot(root string) (*os.Root, error) { return os.OpenRoot(cmp.Or(root, "/")) }

// replaceFile writes a file in one step.
func replaceFile(root, name string, text []byte, mode os.FileMode) error {
	tree, err := OpenRoot(root)
	if err != nil {
		return err
	}
	defer tree.Close()
	if err := tree.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		return err
	}
	if err := tree.WriteFile(name+".new", text, mode); err != nil {
		return err
	}
	return tree.Rename(name+".new", name)
}

func readFile(root, name string) ([]byte, error) {
	tree, err := OpenRoot(root)
	if err != nil {
		return nil, err
	}
	defer tree.Close()
	return tree.ReadFile(name)
}

// ReadPlan is the reverse of WritePlan.
func ReadPlan(root string) (Plan, error) {
	var plan Plan
	text, err := readFile(root, PlanFile)
	if errors.Is(err, fs.ErrNotExist) {
		return plan, problem.NotFoundf("%s is missing: the agent has not finalized a rescue", PlanFile)
	}
	if err != nil {
		return plan, err
	}
	if len(text) > maxPlan {
		return plan, problem.Invalidf("%s is longer than %d bytes", PlanFile, maxPlan)
	}
	if err := json.Unmarshal(text, &plan); err != nil {
		return plan, problem.Invalidf("%s: %w", PlanFile, err)
	}
	return plan, nil
}

// RemovePlan takes the plan away again; a missing one is fine.
func RemovePlan(root string) {
	if tree, err := OpenRoot(root); err == nil {
		_ = tree.Remove(PlanFile)
		_ = tree.Close()
	}
}

// Leases notes what the NICs hold now.
func Leases(root string) ([]Lease, error) {
	nics, err := net.Interfaces()
	if err != nil {
		return nil, fmt.Errorf("list NICs: %w", err)
	}
	var leases []Lease
	for _, nic := range nics {
		if nic.Flags&net.FlagLoopback != 0 || len(nic.HardwareAddr) != 6 {
			continue
		}
		addresses, err := nic.Addrs()
		if err != nil {
			return nil, fmt.Errorf("addresses of %s: %w", nic.Name, err)
		}
		lease := Lease{MAC: nic.HardwareAddr.String(), Server: leaseServer(root, nic.Name)}
		for _, address := range addresses {
			if ip, ok := address.(*net.IPNet); ok && !ip.IP.IsLinkLocalUnicast() {
				lease.Addresses = append(lease.Addresses, ip.String())
			}
		}
		leases = append(leases, lease)
	}
	return leases, nil
}

// leaseServer reads the server's address from what init left, if it did.
func leaseServer(root, nic string) string {
	text, err := readFile(root, LeasePrefix+filepath.Base(nic))
	if err != nil {
		return ""
	}
	for line := range strings.Lines(string(text)) {
		if value, ok := strings.CutPrefix(strings.TrimSpace(line), "serverid="); ok && net.ParseIP(value) != nil {
			return value
		}
	}
	return ""
}
