package compute

import "salvor/rescue"

// Spec is a server as a host must know it to define it; it holds no secret.
type Spec struct {
	ServerID  string `json:"server_id"`
	Name      string `json:"name"`       // the user's, for people
	GuestName string `json:"guest_name"` // the hypervisor's
	Epoch     int64  `json:"epoch"`
	// Incarnation is the incarnation of the control plane's database that gave Epoch; empty: unknown. The host marks the guest with it.
	Incarnation string   `json:"incarnation,omitempty"`
	VCPUs       int      `json:"vcpus"`
	RAM         int      `json:"ram_mib"`
	Firmware    Firmware `json:"firmware"`
	// Initiator is the name by which the guest logs in to volumes, where the host has none for all of its guests.
	Initiator string `json:"initiator,omitempty"`
	// Machine is what the properties of the image ask for: "hw_machine_type", "hw_disk_bus", "hw_vif_model"...
	Machine map[string]string `json:"machine,omitempty"`
	Disks   []SpecDisk        `json:"disks"`
	NICs    []NIC             `json:"nics,omitempty"`
	// Drive: the server has a config drive.
	Drive bool `json:"config_drive,omitempty"`
	// Rescue is what it boots in place of its own disks, all of which stay attached in their order.
	Rescue *SpecRescue `json:"rescue,omitempty"`
	// Restore are the settings of the hypervisor to put back where a rescue replaced them; empty: none of them stays. nil: it touches none.
	Restore map[string]string `json:"restore,omitzero"`
}

// SpecDisk is a disk as a host must know it.
type SpecDisk struct {
	Name      string `json:"name"`
	BootIndex int    `json:"boot_index"`
	// Store, File, SizeGiB and Image are those of a file in a disk store.
	Store   string     `json:"store,omitempty"`
	File    string     `json:"file,omitempty"`
	SizeGiB int        `json:"size_gib,omitempty"`
	Image   *SpecImage `json:"image,omitempty"`
	// VolumeID and what follows are those of an iSCSI volume; the CHAP password is in OrderSecret.
	VolumeID string `json:"volume_id,omitempty"`
	Portal   string `json:"portal,omitempty"`
	IQN      string `json:"iqn,omitempty"`
	LUN      int    `json:"lun,omitempty"`
	CHAPUser string `json:"chap_user,omitempty"`
}

// SpecImage is an image to fetch from the control plane, by its digest.
type SpecImage struct {
	ID     string `json:"id"`
	Digest string `json:"digest"`
	Size   int64  `json:"size"`
	Format string `json:"format"` // raw, qcow2, iso, aki, ari
	// URL is where it lies if not with the control plane.
	URL string `json:"url,omitempty"`
}

// SpecRescue is a rescue system as a host must know it.
type SpecRescue struct {
	rescue.Source
	// Session tells one session of the server from another: what a former one left is not taken for this one's.
	Session string `json:"session,omitempty"`
	// Image and RamdiskImage are fetched by digest where the bytes lie with the control plane.
	Image        *SpecImage `json:"fetch,omitempty"`
	RamdiskImage *SpecImage `json:"fetch_ramdisk,omitempty"`
}
