package compute

import (
	"context"

	"salvor/problem"
	"salvor/secret"
)

var errSoon = problem.Unavailablef("not yet")

// Creation is what somebody asks to be made.
type Creation struct {
	Name, Description, User string
	Metadata                map[string]string
	Tags                    []string
	Zone                    string
	// Host pins it, by UUID or name; administrators only.
	Host string
	// Flavor by UUID, ref or name; Image by UUID (empty: boots from a volume); KeyName of User.
	Flavor, Image, KeyName string
	UserData               secret.Value // base64
	ConfigDrive            bool
	SecurityGroups         []string
	// Password of the system, in clear; empty: none. Only its hash is kept, and only until it is used.
	Password secret.Value
	Networks []NetworkWish
	Disks    []DiskWish
	// Count of servers; 0 is 1. More than one are named NAME-1, NAME-2...
	Count int
}

// NetworkWish asks for an interface.
type NetworkWish struct {
	Network string // UUID or name
	Address string // empty: any
}

// DiskWish asks for a disk beside the flavor's.
type DiskWish struct {
	// VolumeID of a volume; empty: a blank local disk of SizeGiB.
	VolumeID            string
	SizeGiB             int
	BootIndex           int // 0 is booted from; -1 never
	Device              string
	DeleteOnTermination bool
}

// Create makes servers: all of them and their jobs in one transaction, or none.
func (s *Servers) Create(ctx context.Context, c Creation, who Who) ([]*Server, error) {
	return nil, errSoon
}

// Adoption is a guest that exists already at a Ganeti cluster.
type Adoption struct {
	HostID       string
	Guest        Guest
	Name         string
	OS, OSFamily string
	Project      string
	User         string
}

// Adopt makes a server of a guest that exists: it is Foreign, and no job works on it.
func (s *Servers) Adopt(ctx context.Context, a Adoption, who Who) (*Server, error) {
	return nil, errSoon
}
