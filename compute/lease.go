package compute

import (
	"reflect"
	"time"
)

// Renewal is what a host tells with its lease. Inventory and Guests are nil where nothing changed; Guests are all of them otherwise.
type Renewal struct {
	BootID, Name string
	Inventory    *Inventory
	Guests       []Guest
	HasGuests    bool // Guests were sent, though there may be none
	Did          []LocalAction
	// Watchdog, Stopped, Cleaned and Neighbours are told as wire/host says.
	Watchdog   string
	Stopped    bool
	Cleaned    []Cleaned
	Neighbours []Neighbour
}

// Cleaned is the end of a clean-up of the server at that epoch; Error: why it could not be done.
type Cleaned struct {
	ServerID string
	Epoch    int64
	Error    string
}

// Neighbour is a host as another one sees it.
type Neighbour struct {
	HostID, Address string
	Reached         bool
}

// Clean is what a host is told to do with what it has of a server that it lost. Only a guest below Epoch is touched.
type Clean struct {
	Do    CleanUp
	Epoch int64
	// Incarnation limits Do to guests whose mark names this incarnation of the database; empty: Do has no such limit.
	Incarnation string
	Spec        *Spec
	// Erase: the disks that go are removed at once, for their server was deleted; else they go into quarantine.
	Erase bool
}

// LocalAction is what a host did without an order.
type LocalAction struct {
	ServerID, Text string
	At             time.Time
}

// Renewed answers a renewal. Servers is set where Guests were sent.
type Renewed struct {
	Resend  bool
	Servers map[string]WantedServer
	// Hold, Stop, SelfFence, Clean and Look are told as wire/host says.
	Hold, Stop, SelfFence bool
	Clean                 map[string]Clean
	Look                  []Neighbour
	// Held: the control plane does not know whether its records are newer than the host.
	Held bool
	// Now is when it was answered; QuarantineDays is Options.QuarantineDays.
	Now            time.Time
	QuarantineDays int
}

// WantedServer is how a server should be.
type WantedServer struct {
	Power Power
	Epoch int64
	Busy  bool
}

// SameInventory leaves out what changes by itself.
func SameInventory(a, b Inventory) bool {
	a.UptimeS, b.UptimeS = 0, 0
	return reflect.DeepEqual(a, b)
}
