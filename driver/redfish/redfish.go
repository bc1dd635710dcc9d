// Package redfish drives machines whose BMC speaks DMTF Redfish: power, boot device,
// virtual media, UEFI HTTP boot and a look at what the machine is made of. It holds
// the protocol and the quirks of those who speak it; what an operation is for, it must
// not know. Every operation is a conversation of its own, in which the BMC is read
// before it is told and read again after. The answers are hostile until decoded.
package redfish

import (
	"syscall"

	"salvor/driver"
	"salvor/driver/redfish/memory"
)

// Driver implements driver.Power, driver.Management and driver.Inspect.
type Driver struct {
	// Locks keep it to one request at a time per BMC.
	Locks *driver.AddressLocks
	// Logins remembers the logins that BMCs refused; nil: nothing is remembered.
	Logins *driver.Logins
	// Sessions keeps sessions open between verbs; nil: each verb has its own.
	Sessions *SessionPool
	// Control refuses addresses that may not be connected to, as a net.Dialer's; nil: none.
	Control func(network, address string, c syscall.RawConn) error

	memory  memory.Memory
	infos   actionInfoMemo
	intents updateIntents
}

var (
	_ driver.Power      = (*Driver)(nil)
	_ driver.Management = (*Driver)(nil)
	_ driver.Inspect    = (*Driver)(nil)
	_ driver.Boot       = (*Media)(nil)

	_ driver.PowerAndHealth = (*Driver)(nil)
	_ driver.Restarter      = (*Driver)(nil)
	_ driver.SoftRestarter  = (*Driver)(nil)
	_ driver.BootModes      = (*Driver)(nil)
	_ driver.Indicators     = (*Driver)(nil)
	_ driver.NMI            = (*Driver)(nil)
	_ driver.VirtualMedia   = (*Driver)(nil)
)
