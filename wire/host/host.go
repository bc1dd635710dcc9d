// Package host is the JSON that "salvor host" and the control plane speak to each
// other, on the door for hosts. It has no behaviour.
package host

import (
	"encoding/json"
	"time"
)

// Paths on the hosts' door.
const (
	JoinPath   = "/salvor/v1/host/join"   // POST, without a client certificate
	RenewPath  = "/salvor/v1/host/renew"  // POST, each RenewEvery
	OrdersPath = "/salvor/v1/host/orders" // GET ?wait=SECONDS: long poll; POST /ID/result, /ID/progress
	CertPath   = "/salvor/v1/host/certificate"
	ImagePath  = "/salvor/v1/host/images/" // GET + digest: the bytes, by range
)

// Join asks for a first certificate.
type Join struct {
	Token  string `json:"token"`
	HostID string `json:"host_id"` // from the host's disk
	Name   string `json:"name"`
	CSR    string `json:"csr"` // PEM
}

// Certificate answers a join or a renewal of the certificate.
type Certificate struct {
	Certificate string `json:"certificate"` // PEM
	CA          string `json:"ca"`          // PEM
	HostID      string `json:"host_id"`
}

// CertificateRequest asks for the next certificate.
type CertificateRequest struct {
	CSR string `json:"csr"`
}

// Renewal keeps the lease. Inventory and Guests are null where nothing changed since the last renewal that was answered.
type Renewal struct {
	BootID    string          `json:"boot_id"`
	Name      string          `json:"name"`
	Inventory json.RawMessage `json:"inventory,omitempty"` // compute.Inventory
	Guests    json.RawMessage `json:"guests,omitempty"`    // [compute.Guest]
	// Did are what reconciliation mended on its own, in words by server id.
	Did []LocalAction `json:"did,omitempty"`
	// Watchdog is the identity of the hardware watchdog that is armed to reset the host when its lease lapses; empty: none is.
	Watchdog string `json:"watchdog,omitempty"`
	// Stopped: the host was told to stop its guests, and none of ours runs.
	Stopped bool `json:"stopped,omitempty"`
	// Cleaned are the clean-ups that were done, or why they could not be.
	Cleaned []Cleaned `json:"cleaned,omitempty"`
	// Neighbours tells which of the hosts that it was asked to look at answer.
	Neighbours []Neighbour `json:"neighbours,omitempty"`
	// Witness is the newest witness that the host has; null: it has none.
	Witness *Witness `json:"witness,omitempty"`
}

// Witness is the incarnation and counter of the control plane's database at the answer to a renewal. The host keeps the newest one
// on its disk.
type Witness struct {
	Incarnation string `json:"incarnation"`
	Counter     int64  `json:"counter"`
	// Proof is sealed by the control plane, so no host can forge one.
	Proof string `json:"proof"`
}

// Cleaned is the end of a clean-up of the server at that epoch.
type Cleaned struct {
	ServerID string `json:"server_id"`
	Epoch    int64  `json:"epoch"`
	Error    string `json:"error,omitempty"`
}

// Neighbour is another host: where it is, and in a renewal whether it answers there.
type Neighbour struct {
	HostID  string `json:"host_id"`
	Address string `json:"address"`
	Reached bool   `json:"reached,omitempty"`
}

// LocalAction is what a host did without an order.
type LocalAction struct {
	ServerID string    `json:"server_id"`
	Text     string    `json:"text"`
	At       time.Time `json:"at"`
}

// Renewed answers a renewal. Resend asks for inventory and guests in the next one.
type Renewed struct {
	Resend bool `json:"resend,omitempty"`
	// Servers are what should be on this host, where Guests were sent: what is not in it is left alone.
	Servers map[string]Wanted `json:"servers,omitempty"`
	// Hold: the host is fenced, or came back from it: it starts nothing, takes no orders and holds no lease; it shows its guests and
	// cleans up.
	Hold bool `json:"hold,omitempty"`
	// Stop: end all guests of ours and tell so by Stopped.
	Stop bool `json:"stop,omitempty"`
	// SelfFence: from this answer on, the host ends its guests after compute.SelfFenceKill and arms its watchdog.
	SelfFence bool `json:"self_fence,omitempty"`
	// Held: the control plane's database may be older than the host's last instructions. The host keeps the last Hold, Stop and
	// SelfFence that it received. It gets no orders and no clean-ups, and the control plane does not judge its guests.
	Held bool `json:"held,omitempty"`
	// Witness is the witness that the host must keep and send in each renewal; null: it keeps the one that it has.
	Witness *Witness `json:"witness,omitempty"`
	// Clean is what to do with servers that this host lost, by server id, until it is told as Cleaned.
	Clean map[string]Clean `json:"clean,omitempty"`
	// Look at these hosts and tell in the next renewal whether they answer.
	Look []Neighbour `json:"look,omitempty"`
	// Now is the control plane's time. QuarantineDays is after how many days quarantined disks are removed; 0: never.
	Now            time.Time `json:"now,omitzero"`
	QuarantineDays int       `json:"quarantine_days,omitempty"`
}

// Clean is what to do with a server that another host has, or may have.
type Clean struct {
	// Do is a compute.CleanUp.
	Do string `json:"do"`
	// Epoch is the server's now: only a guest of a lower one is touched.
	Epoch int64 `json:"epoch"`
	// Incarnation is the incarnation of the database that a guest's mark must name before the host touches the guest; empty: the host
	// touches any guest below Epoch.
	Incarnation string `json:"incarnation,omitempty"`
	// Spec is a compute.Spec, of which the disks are taken that go.
	Spec json.RawMessage `json:"spec,omitempty"`
	// Erase: the disks that go are removed at once, and not put into quarantine: their server was deleted.
	Erase bool `json:"erase,omitempty"`
}

// Wanted is how a server should be.
type Wanted struct {
	Power string `json:"power"`
	Epoch int64  `json:"epoch"`
	// Busy: a job works on it, so nothing is mended.
	Busy bool `json:"busy,omitempty"`
}

// Order is one order: compute.Order with its secret.
type Order struct {
	Order  json.RawMessage `json:"order"`            // compute.Order
	Secret json.RawMessage `json:"secret,omitempty"` // compute.OrderSecret
}

// Orders answers the long poll.
type Orders struct {
	Orders []Order `json:"orders"`
}

// Report is the result of an order.
type Report struct {
	BootID string          `json:"boot_id"`
	Epoch  int64           `json:"epoch"`
	Result json.RawMessage `json:"result"` // compute.Result
}

// Progress is a word on a long order.
type Progress struct {
	Text string `json:"text"`
}
