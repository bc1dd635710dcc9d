package compute

// GuestState is what a guest is made of beside its disks and its record: it lies on the host of the guest alone.
type GuestState struct {
	// Machine is the machine type with its version, as the hypervisor names it: "pc-q35-7.2". Another version is other virtual hardware.
	Machine string `json:"machine,omitempty"`
	// Variables are the UEFI variables (boot entries, enrolled keys), compressed by gzip; empty: the guest has none.
	Variables []byte `json:"variables,omitempty"`
}

// MaxVariables bounds the UEFI variables of a guest, before compression and after; those of OVMF are 528 KiB.
const MaxVariables = 4 << 20
