package native

import (
	"encoding/json"

	"salvor/secret"
)

// What a site's boot service and its centre speak. Each request carries the site token as
// "Authorization: Bearer TOKEN"; 401 says that it is none.
const (
	SitePath = "/salvor/v1/site"
	// SitePlanPath gives a SitePlan for ?mac= or ?path=; 404: nothing to boot.
	SitePlanPath = SitePath + "/plan"
	// SitePlansPath gives SitePlans, all of the site; If-None-Match is heeded.
	SitePlansPath = SitePath + "/plans"
	// SiteReportsPath takes SiteReports.
	SiteReportsPath = SitePath + "/words"
	// SiteBootPath, PATH, a slash and "kernel", "ramdisk", "image", "shim", "grub" or "boot.iso" gives the bytes of a SiteFile, and
	// "config-drive.img" those of the node's config drive.
	SiteBootPath = SitePath + "/boot/"
	// SiteRamdiskPath and a path of the bare metal API hands a ramdisk's request on.
	SiteRamdiskPath = SitePath + "/ramdisk"
	// SiteForHeader names the address of the machine whose request is handed on.
	SiteForHeader = "X-Salvor-For"
)

// SitePlans are the plans of a site's group. A node that is not among them has nothing to boot.
type SitePlans struct {
	Group string     `json:"group"`
	Plans []SitePlan `json:"plans"`
}

// SitePlan is what a node has to boot now.
type SitePlan struct {
	NodeID     string         `json:"node_id"`
	BootNumber int64          `json:"boot_number"`
	BootMethod string         `json:"road"`
	Path       string         `json:"path"` // random; part of every URL of this boot
	URL        string         `json:"url"`  // base of those URLs
	MACs       []string       `json:"macs"`
	Kernel     SiteFile       `json:"kernel"`
	Ramdisk    SiteFile       `json:"ramdisk"`
	Image      SiteFile       `json:"image"`
	ISO        SiteFile       `json:"iso"`
	Drive      bool           `json:"config_drive"` // whether the machine is shown its config drive
	Params     []string       `json:"params"`
	CarryToken bool           `json:"carry_token"`
	Token      RevealedSecret `json:"token"` // the agent token of this boot, where CarryToken
	Persistent bool           `json:"persistent"`
	Volumes    *SiteVolumes   `json:"volumes"`                 // where the node boots from them
	SecureBoot bool           `json:"secure_boot,omitempty"`   // the CD image has the signed boot loaders, and HTTP boot gives it
	Firmware   string         `json:"firmware_mode,omitempty"` // "uefi" or "bios"; empty: it is not known
	Shim       SiteFile       `json:"shim,omitzero"`           // those, where SecureBoot
	GRUB       SiteFile       `json:"grub,omitzero"`
}

// SiteFile is a boot file: machines fetch URL themselves; Version names the bytes of a file of the
// centre, in 64 hexadecimal digits. Both are empty where there is none.
type SiteFile struct {
	URL     string `json:"url,omitempty"`
	Version string `json:"version,omitempty"`
}

// SiteVolumes is what a node boots that starts from its volumes.
type SiteVolumes struct {
	Initiator string       `json:"initiator"`
	Root      *SiteVolume  `json:"root"`
	Others    []SiteVolume `json:"others"`
	Problem   string       `json:"problem,omitempty"` // why it cannot be told
}

// SiteVolume is one volume.
type SiteVolume struct {
	TargetID  string           `json:"target_id"`
	BootIndex int              `json:"boot_index"`
	Type      string           `json:"type"`
	Paths     []SiteVolumePath `json:"paths"`
	Login     SiteLogin        `json:"login"`
	Mutual    SiteLogin        `json:"mutual"`
	WWNs      []string         `json:"wwns"`
	LUN       int              `json:"lun"`
}

// SiteVolumePath is one path to an iSCSI volume.
type SiteVolumePath struct {
	Host string `json:"host"`
	Port int    `json:"port"`
	IQN  string `json:"iqn"`
	LUN  int    `json:"lun"`
}

// SiteLogin is a CHAP name with its secret.
type SiteLogin struct {
	Username string         `json:"username"`
	Password RevealedSecret `json:"password"`
}

// SiteReports are what a site saw of machines that boot.
type SiteReports struct {
	Reports []SiteReport `json:"words"`
}

// SiteReport is one: Progress as netboot says it, or Failed, why a machine did not start from its volumes, or Refused.
type SiteReport struct {
	NodeID     string `json:"node_id"`
	BootNumber int64  `json:"boot_number"`
	Progress   string `json:"saw,omitempty"`
	Failed     string `json:"failed,omitempty"`
	// Refused is a boot file that the machine did not get, RefusedWhy the reason, and RefusedFinal tells that asking again does not help.
	Refused      string `json:"refused,omitempty"`
	RefusedWhy   string `json:"refused_why,omitempty"`
	RefusedFinal bool   `json:"refused_final,omitempty"`
}

// RevealedSecret is a secret that its JSON tells: whoever reads it needs it. Nothing else prints it.
type RevealedSecret struct{ secret.Value }

// MarshalJSON writes the secret itself.
func (t RevealedSecret) MarshalJSON() ([]byte, error) { return json.Marshal(t.Reveal()) }
