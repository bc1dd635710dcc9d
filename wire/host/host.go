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
	Did []Deed `json:"did,omitempty"`
}

// Deed is what a host did without an order.
type Deed struct {
	ServerID string    `json:"server_id"`
	Text     string    `json:"text"`
	At       time.Time `json:"at"`
}

// Renewed answers a renewal. Resend asks for inventory and guests in the next one.
type Renewed struct {
	Resend bool `json:"resend,omitempty"`
	// Servers are what should be on this host, where Guests were sent: what is not in it is left alone.
	Servers map[string]Wanted `json:"servers,omitempty"`
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
