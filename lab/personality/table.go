package personality

const (
	target  = "BootSourceOverrideTarget"
	enabled = "BootSourceOverrideEnabled"
	mode    = "BootSourceOverrideMode"

	allowed = "@Redfish.AllowableValues"
)

// redfish are the rows of each personality.
var redfish = map[Name][]tableRow{SushyTools: sushyTools, IDRAC9: idrac9, ILO5: ilo5, SupermicroX12: supermicroX12, AMI: ami, OpenBMC: openBMC}

// The sources, so that each has one spelling.
const (
	sushyMain    = "openstack/sushy-tools, sushy_tools/emulator/main.py"
	sushySystem  = "openstack/sushy-tools, sushy_tools/emulator/templates/system.json"
	sushyLibvirt = "openstack/sushy-tools, sushy_tools/emulator/resources/systems/libvirtdriver.py"
	sushyRoot    = "openstack/sushy-tools, sushy_tools/emulator/templates/root.json"
	sushyMedia   = "openstack/sushy-tools, sushy_tools/emulator/resources/vmedia.py"

	dellTree       = "NVIDIA/libredfish, tests/mockups/dell"
	hpeTree        = "NVIDIA/libredfish, tests/mockups/hpe"
	supermicroTree = "NVIDIA/libredfish, tests/mockups/supermicro"
	amiTree        = "NVIDIA/libredfish, tests/mockups/nvidia_viking"
	openBMCTree    = "NVIDIA/libredfish, tests/mockups/nvidia_gb200"
	iloEmulator    = "HewlettPackard/ilo-redfish-emulator, src/api_emulator/redfish/computer_system_api.py"
)

const (
	on     = "On"
	off    = "Off"
	notNow = "iLO.2.14.InvalidOperationForSystemState"
)

// sushyTools is the emulator with its driver for libvirt, as OpenStack's and Metal3's labs run it.
var sushyTools = []tableRow{
	{kind: kindShows, of: ofSystem, member: "Boot." + enabled, value: "Continuous", source: sushySystem},
	{kind: kindReads, of: ofSystem, member: "Boot." + target, value: "None", as: "Hdd", source: sushyLibvirt + ": get_boot_device reads the domain"},
	{kind: kindShows, of: ofSystem, member: "Boot." + target + allowed, value: []string{"Pxe", "Cd", "Hdd"}, source: sushySystem},
	{kind: kindShows, of: ofSystem, member: "Boot." + enabled + allowed, source: sushySystem},
	{kind: kindShows, of: ofSystem, member: "Boot." + mode + allowed, source: sushySystem},
	{kind: kindShows, of: ofSystem, member: "Manufacturer", value: "Sushy Emulator", source: sushySystem},
	{kind: kindShows, of: ofSystem, member: "Model", source: sushySystem},
	{kind: kindShows, of: ofManager, member: "FirmwareVersion", value: "1.00", source: sushyMain + ": manager_resource"},
	{kind: kindShows, of: ofManager, member: "Model", value: "Joo Janta 200", source: sushyMain + ": manager_resource"},
	{kind: kindForces, member: enabled, value: "Continuous", source: sushyMain + ": system_resource ignores the frequency"},
	{kind: kindRefuses, of: ofSystem, when: rowCondition{has: "Boot." + target, isNot: []any{"Pxe", "Hdd", "Cd", "UefiHttp"}},
		answer: answer{status: 500, id: "Base.1.0.GeneralError", text: "Target libvirt device does not exist"}, source: sushyLibvirt + ": set_boot_device"},
	{kind: kindRefuses, of: ofSystem, when: rowCondition{lacks: []string{"Boot." + target, "Boot." + mode}},
		answer: answer{status: 400, text: "Missing a target, a mode or a URI"}, source: sushyMain + ": system_resource"},
	{kind: kindDrives, drives: []virtualDrive{{id: "Cd", types: []string{"CD", "DVD"}}, {id: "Floppy", types: []string{"Floppy", "USBStick"}}}, source: sushyMedia + ": StaticDriver"},
	{kind: kindReads, of: ofDrive, member: "Image", value: nil, as: "", source: sushyMedia + ": get_device_image_info"},
	{kind: kindRefuses, of: ofDrive, when: rowCondition{lacks: []string{"VerifyCertificate"}}, answer: answer{status: 400, id: "Base.1.0.GeneralError", text: "Empty or malformed patch"},
		source: "openstack/sushy-tools, sushy_tools/emulator/controllers/virtual_media.py: virtual_media_patch"},
	{kind: kindEjects, value: object{target: "Hdd", enabled: "Continuous"}, source: sushyLibvirt + ": set_boot_image"},
	{kind: kindBasic, source: sushyRoot},
	{kind: kindShows, of: ofRoot, member: "SessionService", source: sushyRoot},
	{kind: kindShows, of: ofRoot, member: "Links", source: sushyRoot},
	{kind: kindShows, of: ofRoot, member: "Vendor", source: sushyRoot},
	{kind: kindShows, of: ofRoot, member: "Product", source: sushyRoot},
}

// idrac9 is the BMC of a PowerEdge R750 with firmware 6.00.
var idrac9 = []tableRow{
	{kind: kindShows, of: ofRoot, member: "Vendor", value: "Dell", source: dellTree},
	{kind: kindShows, of: ofSystem, member: "Manufacturer", value: "Dell Inc.", source: dellTree},
	{kind: kindShows, of: ofSystem, member: "Model", value: "PowerEdge R750", source: dellTree},
	{kind: kindShows, of: ofManager, member: "Model", value: "15G Monolithic", source: dellTree},
	{kind: kindShows, of: ofManager, member: "FirmwareVersion", value: "6.00.30.00", source: dellTree},
	{kind: kindShows, of: ofSystem, member: "Boot." + target + allowed, source: dellTree,
		value: []string{"None", "Pxe", "Floppy", "Cd", "Hdd", "BiosSetup", "Utilities", "UefiTarget", "SDCard", "UefiHttp"}},
	{kind: kindShows, of: ofSystem, member: "Boot." + enabled + allowed, source: dellTree},
	{kind: kindDrives, source: dellTree, drives: []virtualDrive{
		{id: "1", types: []string{"CD", "DVD", "USBStick"}}, {id: "2", types: []string{"CD", "DVD", "USBStick"}},
	}},
	{kind: kindRefuses, of: ofReset, when: rowCondition{has: "ResetType", value: on, power: on}, answer: answer{status: 409, id: "IDRAC.1.6.PSU501", text: "is on already"},
		source: "dell/dellemc-openmanage-ansible-modules, issue 132"},
	{kind: kindRefuses, of: ofReset, when: rowCondition{has: "ResetType", value: on, afterOff: settleTime}, answer: answer{status: 500, id: "IDRAC.2.7.SYS518", text: "is not ready"},
		source: "openstack/sushy, sushy/connector.py: check_retry_on_exception, and its test"},
	{kind: kindRefuses, of: ofInsert, when: rowCondition{afterEject: settleTime}, answer: answer{status: 500, id: "Base.1.12.InternalError", text: "an ejection is under way"},
		source: "openstack/ironic, releasenotes/notes/fix-redfish-vmedia-insert-retry-6e020acaf993c423.yaml"},
	{kind: kindRefuses, of: ofInsert, when: rowCondition{has: "WriteProtected", value: false},
		answer: answer{status: 400, id: "IDRAC.2.6.SYS458", args: []string{"WriteProtected"}, text: "the value of WriteProtected is not supported"}, source: "stmcginnis/gofish, issue 276"},
}

// ilo5 is the BMC of a ProLiant DL385 Gen10 Plus v2.
var ilo5 = []tableRow{
	{kind: kindShows, of: ofRoot, member: "Vendor", value: "HPE", source: hpeTree},
	{kind: kindShows, of: ofSystem, member: "Manufacturer", value: "HPE", source: hpeTree},
	{kind: kindShows, of: ofSystem, member: "Model", value: "ProLiant DL385 Gen10 Plus v2", source: hpeTree},
	{kind: kindShows, of: ofManager, member: "Model", value: "iLO 5", source: hpeTree},
	{kind: kindShows, of: ofManager, member: "FirmwareVersion", value: "iLO 5 v2.72", source: hpeTree},
	{kind: kindShows, of: ofSystem, member: "Boot." + target + allowed, source: hpeTree,
		value: []string{"None", "Cd", "Hdd", "Usb", "SDCard", "Utilities", "Diags", "BiosSetup", "Pxe", "UefiShell", "UefiHttp", "UefiTarget"}},
	{kind: kindShows, of: ofSystem, member: "Boot." + enabled + allowed, source: hpeTree},
	{kind: kindShows, of: ofSystem, member: "VirtualMedia", source: hpeTree},
	{kind: kindDrives, drives: []virtualDrive{{id: "1", types: []string{"Floppy", "USBStick"}}, {id: "2", types: []string{"CD", "DVD"}}}, source: hpeTree},
	{kind: kindReads, of: ofDrive, member: "Image", value: nil, as: "", source: hpeTree},
	{kind: kindRefuses, of: ofReset, when: rowCondition{has: "ResetType", value: on, power: on}, answer: answer{status: 400, id: notNow, args: []string{"Power is on"}}, source: iloEmulator},
	{kind: kindRefuses, of: ofReset, when: rowCondition{has: "ResetType", value: "ForceOff", power: off}, answer: answer{status: 400, id: notNow, args: []string{"Power is off"}}, source: iloEmulator},
	{kind: kindRefuses, of: ofReset, when: rowCondition{has: "ResetType", value: on, afterOff: settleTime}, answer: answer{status: 400, id: notNow},
		source: "openstack/sushy, releasenotes/notes/retry-ilo-not-ready-error-0b4dce882282eaac.yaml"},
	{kind: kindRefuses, of: ofSystem, when: rowCondition{has: "Boot", afterOn: settleTime, power: on}, answer: answer{status: 400, id: "iLO.2.14.UnableToModifyDuringSystemPOST"},
		source: "openstack/ironic, releasenotes/notes/redfish-post-boot-retry-8da100f84e6fcacf.yaml"},
	{kind: kindRefuses, of: ofSystem, when: rowCondition{has: "Boot." + target, value: "None"}, answer: answer{status: 400, id: "iLO.2.30.UnsupportedOperation"},
		source: "ironcore-dev/metal-operator, pull request 998"},
	{kind: kindRefuses, of: ofSystem, when: rowCondition{has: "Boot." + mode}, answer: answer{status: 400, id: "iLO.2.14.PropertyNotWritableOrUnknown", args: []string{mode}},
		source: "ansible-collections/community.general, issue 3509: the mode is read-only; the message is of NVIDIA/libredfish, pull request 76"},
}

// supermicroX12 has the drives and refusals of X11 and X12 boards.
var supermicroX12 = []tableRow{
	{kind: kindShows, of: ofRoot, member: "Vendor", source: supermicroTree},
	{kind: kindShows, of: ofRoot, member: "Product", source: supermicroTree},
	{kind: kindShows, of: ofSystem, member: "Manufacturer", value: "Supermicro", source: supermicroTree},
	{kind: kindShows, of: ofSystem, member: "Model", value: "X12STW-TF", source: "ansible-collections/community.general, pull request 7470"},
	{kind: kindShows, of: ofManager, member: "Model", value: "ASPEED", source: supermicroTree},
	{kind: kindShows, of: ofSystem, member: "Boot." + target + allowed, source: supermicroTree,
		value: []string{"None", "Pxe", "Floppy", "Cd", "Usb", "Hdd", "BiosSetup", "UsbCd", "UefiBootNext", "UefiHttp"}},
	{kind: kindShows, of: ofSystem, member: "Boot." + enabled + allowed, source: supermicroTree},
	{kind: kindBoots, value: "UsbCd", as: "Cd", source: "openstack/sushy, sushy/resources/system/constants.py: USB_CD"},
	{kind: kindBoots, value: "Cd", as: "Hdd", source: "openstack/sushy, sushy/resources/system/system.py: the boot from Cd fails even if a medium is inserted"},
	{kind: kindAssumes, member: enabled, value: "Once", source: "openstack/ironic, releasenotes/notes/supermicro-redfish-override-enabled-aa51686ed33d3061.yaml"},
	{kind: kindAssumes, member: mode, value: "Legacy", source: "DMTF/Redfishtool, pull request 106: without a mode it is the default one"},
	{kind: kindDrives, drives: []virtualDrive{{id: "CD1", types: []string{"CD", "DVD"}, noEjectEmpty: true}},
		source: "ansible-collections/community.general, pull request 4839; an empty drive shows no ejection in " + supermicroTree},
	{kind: kindStale, source: "ansible-collections/community.general, pull request 4839 and issue 6969"},
	{kind: kindRefuses, of: ofInsert, when: rowCondition{has: "Inserted"}, answer: answer{status: 400, id: "Base.1.4.PropertyUnknown", args: []string{"Inserted"}},
		source: "ansible-collections/community.general, pull request 4839"},
	{kind: kindRefuses, of: ofInsert, when: rowCondition{has: "WriteProtected"}, answer: answer{status: 400, id: "Base.1.4.PropertyUnknown", args: []string{"WriteProtected"}},
		source: "openstack/sushy, sushy/resources/manager/virtual_media.py: insert_media"},
}

// ami is MegaRAC, as ASRock Rack and Gigabyte have it.
var ami = []tableRow{
	{kind: kindShows, of: ofRoot, member: "Vendor", value: "AMI", source: amiTree},
	{kind: kindShows, of: ofRoot, member: "Product", value: "AMI Redfish Server", source: amiTree},
	{kind: kindShows, of: ofSystem, member: "Manufacturer", value: "ASRockRack", source: "openstack/ironic, ironic/drivers/modules/redfish/management.py: VENDORS_REQUIRING_FULL_BOOT_REQUEST"},
	{kind: kindShows, of: ofSystem, member: "Boot." + target + allowed, source: amiTree},
	{kind: kindShows, of: ofSystem, member: "Boot." + enabled + allowed, source: amiTree},
	{kind: kindShows, of: ofSystem, member: "Boot." + mode + allowed, source: amiTree},
	{kind: kindShows, of: ofSystem, member: "VirtualMedia", source: amiTree},
	{kind: kindSettings, value: "SD", source: "DMTF/Redfish-Tacklebox, issue 111"},
	{kind: kindShows, of: ofSettings, member: "Boot." + enabled + allowed, value: []string{"Disabled", "Once", "Continuous"}, source: amiTree},
	{kind: kindShows, of: ofSettings, member: "Boot." + target + allowed, source: amiTree,
		value: []string{"None", "Pxe", "Floppy", "Cd", "Usb", "Hdd", "BiosSetup", "Utilities", "Diags", "UefiShell", "UefiTarget", "SDCard", "UefiHttp", "RemoteDrive", "UefiBootNext"}},
	{kind: kindRefuses, of: ofSystem, when: rowCondition{has: "Boot"}, answer: answer{status: 400, id: "Ami.1.0.OperationSupportedInFutureStateURI"},
		source: "DMTF/Redfish-Tacklebox, issue 144"},
	{kind: kindRefuses, of: ofSettings, when: rowCondition{has: "Boot", lacks: []string{"Boot." + mode}}, answer: answer{status: 400, id: "Base.1.5.PropertyMissing", args: []string{mode}},
		source: "openstack/ironic, releasenotes/notes/redfish-full-boot-payload-asrockrack-79a9291da8ec5a50.yaml; ansible-collections/community.general, issue 11542"},
	{kind: kindRefuses, of: ofSettings, when: rowCondition{has: "Boot", lacks: []string{"Boot." + enabled}}, answer: answer{status: 400, id: "Base.1.5.PropertyMissing", args: []string{enabled}},
		source: "openstack/ironic, releasenotes/notes/redfish-full-boot-payload-asrockrack-79a9291da8ec5a50.yaml"},
	{kind: kindETag, value: "W/", source: "ansible-collections/community.general, pull request 6434"},
}

// openBMC is the BMC of a GB200, with the drive for a browser's media that other OpenBMC machines have.
var openBMC = []tableRow{
	{kind: kindShows, of: ofRoot, member: "Vendor", value: "NVIDIA", source: openBMCTree},
	{kind: kindShows, of: ofRoot, member: "Product", value: "GB200 NVL", source: openBMCTree},
	{kind: kindShows, of: ofSystem, member: "Manufacturer", source: openBMCTree},
	{kind: kindShows, of: ofSystem, member: "Model", source: openBMCTree},
	{kind: kindShows, of: ofManager, member: "Model", value: "OpenBmc", source: openBMCTree},
	{kind: kindShows, of: ofManager, member: "FirmwareVersion", value: "GB200Nvl-24.12-8", source: openBMCTree},
	{kind: kindShows, of: ofSystem, member: "Boot." + target + allowed, value: []string{"None", "Pxe", "Hdd", "Cd", "Diags", "BiosSetup", "Usb"}, source: openBMCTree},
	{kind: kindShows, of: ofSystem, member: "Boot." + enabled + allowed, value: []string{"Once", "Continuous", "Disabled"}, source: openBMCTree},
	{kind: kindShows, of: ofSystem, member: "Boot." + mode, source: openBMCTree},
	{kind: kindShows, of: ofSystem, member: "Boot." + mode + allowed, source: openBMCTree},
	{kind: kindShows, of: ofSystem, member: "VirtualMedia", source: openBMCTree},
	{kind: kindDrives, drives: []virtualDrive{{id: "Slot_0", types: []string{"CD", "USBStick"}, noAction: true}, {id: "USB2", types: []string{"CD", "USBStick"}}, {id: "USB1", types: []string{"CD", "USBStick"}}},
		source: openBMCTree + "; openstack/ironic, releasenotes/notes/cisco-c845a-vmedia-fix-b98a4fadd58a106d.yaml"},
	{kind: kindReads, of: ofDrive, member: "Image", value: nil, as: nil, source: openBMCTree},
}
