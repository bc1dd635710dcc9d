package agent

// Commands that bring a system to the disk.
const (
	// PrepareImage runs in the background; its outcome is Text.
	PrepareImage = "standby.prepare_image"
	// Sync, PowerOff and RunImage (a reboot) take no parameters: {}.
	Sync     = "standby.sync"
	PowerOff = "standby.power_off"
	RunImage = "standby.run_image"
	// PartitionUUIDs answers what prepare_image found, an object with "root uuid".
	PartitionUUIDs = "standby.get_partition_uuids"
	// InstallBootloader runs in the background; its outcome is null or Text.
	InstallBootloader = "image.install_bootloader"
	// CollectLogs answers {"system_logs": base64 of a tar.gz}.
	CollectLogs = "log.collect_system_logs"
	// Lockdown ends the agent's doors without ending the machine.
	Lockdown = "system.lockdown"
)

// PrepareParams are the params of standby.prepare_image, and the args of the deploy
// step write_image, by which Ironic has the same done.
type PrepareParams struct {
	ImageInfo Image `json:"image_info"`
	// ConfigDrive is a URL, or gzipped ISO 9660 in base64. The real agent takes it
	// from ImageInfo too where it is not here.
	ConfigDrive string `json:"configdrive,omitempty"`
}

// Image is image_info.
type Image struct {
	// ID names the image in messages; an agent does not write the same one twice.
	ID string `json:"id"`
	// URLs are tried in this order; http or https.
	URLs []string `json:"urls"`
	// Checksum is hex (its length tells the algorithm) or the URL of a checksum file.
	Checksum string `json:"checksum,omitempty"`
	// HashAlgo and HashValue go together and come before Checksum; HashValue may be a URL too.
	HashAlgo  string `json:"os_hash_algo,omitempty"`
	HashValue string `json:"os_hash_value,omitempty"`
	// DiskFormat is raw or qcow2, ContainerFormat bare; gzip is told by its content.
	DiskFormat      string `json:"disk_format,omitempty"`
	ContainerFormat string `json:"container_format,omitempty"`
	// StreamRaw writes a raw image while it arrives.
	StreamRaw bool `json:"stream_raw_images,omitempty"`
	// Type is whole-disk (or empty) or partition.
	Type        string `json:"image_type,omitempty"`
	NodeUUID    string `json:"node_uuid,omitempty"`
	BootMode    string `json:"deploy_boot_mode,omitempty"` // bios or uefi
	BootOption  string `json:"boot_option,omitempty"`      // local
	DiskLabel   string `json:"disk_label,omitempty"`       // gpt or msdos
	ConfigDrive string `json:"configdrive,omitempty"`

	// AuthStrategy http_basic sends User and Password to the image's server.
	AuthStrategy string `json:"image_server_auth_strategy,omitempty"`
	User         string `json:"image_server_user,omitempty"`
	Password     string `json:"image_server_password,omitempty"`
	// Authorization is base64 of the value of the header Authorization.
	Authorization string `json:"image_request_authorization,omitempty"`
	// Proxies by scheme (http, https), and the hosts that are asked without one.
	Proxies map[string]string `json:"proxies,omitempty"`
	NoProxy string            `json:"no_proxy,omitempty"`
}

// Text is the outcome of commands whose outcome is words.
type Text struct {
	Result string `json:"result"`
}

// BootloaderParams are the params of image.install_bootloader. A nil root UUID, or
// "0x00000000", means a whole-disk image.
type BootloaderParams struct {
	RootUUID   *string `json:"root_uuid"`
	EFIUUID    *string `json:"efi_system_part_uuid"`
	PRePUUID   *string `json:"prep_boot_part_uuid"`
	TargetMode string  `json:"target_boot_mode,omitempty"` // bios or uefi
	// IgnoreFailure makes a boot entry that cannot be written a warning.
	IgnoreFailure *bool `json:"ignore_bootloader_failure,omitempty"`
}
