package ramdisk

// minimalModules suit virtual machines, and with the generic kernel common servers.
// Only those whose device is there are loaded at boot; file systems and the rest wait
// for a mount or a modprobe. Every name costs boot time in reading and unpacking, so
// rare ones belong to the full profile.
var minimalModules = []string{
	"virtio_pci", "virtio_net", "virtio_blk", "virtio_scsi", "virtio_rng", "virtio_mmio", "virtio_console",
	"e1000", "e1000e", "igb", "r8169",
	"hv_netvsc", "hv_storvsc", "xen_netfront", "xen_blkfront", "ena", "vmxnet3", "vmw_pvscsi",
	"ahci", "ata_piix", "nvme", "sd_mod", "sr_mod", "usb_storage", "uas", "xhci_pci", "ehci_pci",
	"af_packet", "8021q", "bonding", "ipv6",
	"isofs", "vfat", "nls_ascii", "nls_cp437", "nls_iso8859_1", "nls_utf8", "ext4", "xfs", "efivarfs",
	"dm_mod", "raid0", "raid1", "loop",
	"ipmi_si", "ipmi_devintf",
}

// diagnoseModules assemble what lies on the disks of a machine over overlays in memory; the last line is the storage controllers of servers.
var diagnoseModules = []string{
	"dm_snapshot", "dm_crypt", "dm_raid", "dm_mirror", "dm_thin_pool", "raid10", "raid456", "linear", "btrfs",
	"aesni_intel", "aes_generic", "aes_arm64", "xts", "cbc", "ecb", "essiv", "sha256_generic", "sha256_ssse3", "sha512_generic", "blake2b_generic",
	"xxhash_generic", "crc32c_intel", "crc32c_generic", "algif_skcipher", "algif_hash",
	"megaraid_sas", "mpt3sas", "mptsas", "aacraid", "hpsa", "smartpqi", "mvsas", "isci",
}

// fullModuleDirs are the parts of a kernel with which servers are repaired.
var fullModuleDirs = []string{
	"kernel/arch/x86/crypto", "kernel/block", "kernel/crypto", "kernel/lib",
	"kernel/drivers/acpi", "kernel/drivers/ata", "kernel/drivers/block", "kernel/drivers/char/ipmi",
	"kernel/drivers/cdrom", "kernel/drivers/hid", "kernel/drivers/hv", "kernel/drivers/md",
	"kernel/drivers/message", "kernel/drivers/net/ethernet", "kernel/drivers/net/bonding", "kernel/drivers/net/hyperv",
	"kernel/drivers/net/phy", "kernel/drivers/net/mdio", "kernel/drivers/net/usb", "kernel/drivers/net/vmxnet3", "kernel/drivers/nvme",
	"kernel/drivers/nvdimm", "kernel/drivers/pci", "kernel/drivers/scsi", "kernel/drivers/usb/host",
	"kernel/drivers/usb/storage", "kernel/drivers/virtio", "kernel/drivers/xen", "kernel/drivers/dax",
	"kernel/fs", "kernel/net/8021q", "kernel/net/bridge", "kernel/net/llc", "kernel/net/802",
	"kernel/net/packet", "kernel/net/ipv6",
	"kernel/drivers/net/dummy", "kernel/drivers/net/veth", "kernel/drivers/net/virtio_net", "kernel/drivers/net/xen-netfront",
	"kernel/drivers/net/vxlan", "kernel/drivers/net/macvlan", "kernel/drivers/net/tun",
}

// fullModulesNot are large and of no use to a repair.
var fullModulesNot = []string{
	"kernel/fs/ocfs2", "kernel/fs/gfs2", "kernel/fs/dlm", "kernel/fs/afs", "kernel/fs/coda", "kernel/fs/ceph",
	"kernel/fs/orangefs", "kernel/fs/nfsd", "kernel/drivers/scsi/qla2xxx/tcm_qla2xxx", "kernel/drivers/scsi/bnx2fc",
}
