package redfish

import (
	"regexp"
	"strings"
)

// nameForm is the form of a part of a path that names a kind of resource, or counts: words of letters, each with at most three digits behind it. Serial
// numbers, addresses of network cards and UUIDs have another form.
var nameForm = regexp.MustCompile(`^(v1|Boot[0-9A-F]{4}|[#.]?([A-Za-z]{0,40}[0-9]{0,3})([-_.:#]([A-Za-z]{0,40}[0-9]{0,3}))*)$`)

// isPublicName tells whether a part of a path says nothing of the machine's owner: all its words are in publicWords. Owners name systems, managers,
// accounts and boot options after customers, sites and racks. The maker of the BMC alone names actions, so the form is enough for those.
func isPublicName(part string, isOfAction bool) bool {
	if !nameForm.MatchString(part) || isHexadecimal(part) {
		return false
	}
	if isOfAction {
		return true
	}
	letters := strings.FieldsFunc(part, func(r rune) bool { return r < 'A' || r > 'Z' && r < 'a' || r > 'z' })
	for _, run := range letters {
		if !isPublicRun(run) {
			return false
		}
	}
	return true
}

// isPublicRun tells whether a run of letters is a public word, or public words that follow each other, such as FirmwareInventory. A letter by itself,
// such as the A of DIMM_A1, names nobody.
func isPublicRun(run string) bool {
	if len(run) == 1 || publicWords[strings.ToLower(run)] {
		return true
	}
	for begin, i := 0, 1; i <= len(run); i++ {
		if i < len(run) && !beginsWord(run, i) {
			continue
		}
		if word := run[begin:i]; len(word) > 1 && !publicWords[strings.ToLower(word)] {
			return false
		}
		begin = i
	}
	return true
}

// beginsWord tells whether a word begins at a letter that is not the first: VirtualMedia is Virtual and Media, BMCManager is BMC and Manager.
func beginsWord(run string, i int) bool {
	isUpper := func(i int) bool { return i < len(run) && run[i] <= 'Z' }
	return isUpper(i) && (!isUpper(i-1) || i+1 < len(run) && !isUpper(i+1))
}

// publicWords are the words of Redfish's schemas, and those of which the BMCs of known makers form the names of resources, in lower case. A word that is
// missing costs a recording one readable name; a word too many may name an owner.
var publicWords = wordSet(`
	redfish v odata metadata json schema schemas registries registry service services root main
	account accounts role roles session sessions event events subscription subscriptions task tasks monitor job jobs telemetry metric metrics definition
	definitions report reports trigger triggers license licenses key certificate certificates location locations component integrity
	update firmware software inventory previous current installed available rollback pending active backup image images
	system systems computer chassis manager managers fabric fabrics aggregation aggregate aggregates source sources facility facilities
	resource resources block blocks zone zones composition pool pools cables cable cabling
	self embedded integrated internal external virtual local remote shared common default primary secondary standby generic other unknown none new
	bmc mc cmc rmc smc ilo idrac drac imm xcc xclarity irmc cimc hmc ahb asd bios uefi efi boot option options order source legacy secure settings setting
	sd future attribute attributes network protocol protocols ethernet interface interfaces adapter adapters port ports function functions device devices nic
	nics lan lom loms ocp pcie pci slot slots mezz mezzanine riser bridge switch switches host hosts usb vlan vlans link links ip ipv address addresses dns ntp
	dedicated management mgmt eth ens eno enp vnic internet iscsi initiator initiators endpoint endpoints connection connections group groups
	serial console graphical shell command ssh telnet ipmi kvm vnc redirection
	storage controller controllers volume volumes drive drives disk disks ssd hdd nvme sas sata scsi ahci raid jbod non megaraid perc boss smart array arrays
	enclosure enclosures bay bays backplane backplanes expander expanders tape media simple physical logical unassigned hot spare direct attached
	m dot logs log sel iml lc lifecycle audit entry entries crash dump dumps fault journal postcode postcodes security
	memory dimm dimms module modules channel channels domain domains chunks persistent processor processors cpu cpus gpu gpus core cores thread threads
	accelerator accelerators fpga sub subprocessors socket sockets cache operating config configs configuration configurations profile profiles
	power supply supplies psu psus redundancy outlet outlets circuit circuits distribution rectifier battery batteries capacitor subsystem thermal
	temperature temperatures temp fan fans sensor sensors voltage voltages current currents threshold thresholds cooling coolant pump leak detection detector
	detectors inlet exhaust ambient air flow environment environmental control controls led indicator panel front rear left right top bottom upper lower inner outer
	motherboard mainboard mother board boards baseboard planar midplane node nodes blade blades sled sleds tray trays rack frame drawer base unit units cage
	assembly assemblies part parts fru frus trusted tpm platform root of trust
	cd dvd floppy removable usbstick ext rdoc insert eject info cdrom virtualmedia
	oem actions action reset info allow list members member page collection collections odata versions version
	dell hpe hp lenovo supermicro huawei xfusion fujitsu ami insyde cisco ericsson inspur nvidia intel amd arm ampere broadcom mellanox marvell qlogic emulex
	openbmc ibm gigabyte asus quanta wiwynn fsc
	policy policies certificate database databases dbx kek pk signature signatures time date clock ldap active directory kerberos radius snmp syslog smtp mail alert
	alerts alerting destination destinations language languages message messages error errors base privilege privileges map maps
	diagnostic diagnostics data test tests self maintenance window windows queue history status state health summary counters counter statistics statistic
	workload performance advisor quick deploy deployment repository share export import server servers
`)

func wordSet(text string) map[string]bool {
	out := map[string]bool{}
	for word := range strings.FieldsSeq(text) {
		out[word] = true
	}
	return out
}
