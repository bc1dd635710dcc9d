package personality

const (
	target  = "BootSourceOverrideTarget"
	enabled = "BootSourceOverrideEnabled"
	mode    = "BootSourceOverrideMode"

	allowed = "@Redfish.AllowableValues"
)

// redfish are the rows of each personality.
var redfish = map[Name][]row{SushyTools: sushyTools}

// The sources, so that each has one spelling.
const (
	sushyMain    = "openstack/sushy-tools, sushy_tools/emulator/main.py"
	sushySystem  = "openstack/sushy-tools, sushy_tools/emulator/templates/system.json"
	sushyLibvirt = "openstack/sushy-tools, sushy_tools/emulator/resources/systems/libvirtdriver.py"
	sushyMedia   = "openstack/sushy-tools, sushy_tools/emulator/resources/vmedia.py"
)

// sushyTools is the emulator with its driver for libvirt, as OpenStack's and Metal3's labs run it.
var sushyTools = []row{
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
	{kind: kindRefuses, of: ofSystem, when: condition{has: "Boot." + target, isNot: []any{"Pxe", "Hdd", "Cd"}},
		answer: answer{status: 500, id: "Base.1.0.GeneralError", text: "Target libvirt device does not exist"}, source: sushyLibvirt + ": set_boot_device"},
	{kind: kindRefuses, of: ofSystem, when: condition{lacks: []string{"Boot." + target, "Boot." + mode}},
		answer: answer{status: 400, text: "Missing a target, a mode or a URI"}, source: sushyMain + ": system_resource"},
	{kind: kindDrives, drives: []drive{{id: "Cd", types: []string{"CD", "DVD"}}, {id: "Floppy", types: []string{"Floppy", "USBStick"}}}, source: sushyMedia + ": StaticDriver"},
	{kind: kindEjects, value: object{target: "Hdd", enabled: "Continuous"}, source: sushyLibvirt + ": set_boot_image"},
	{kind: kindBasic, source: "openstack/sushy-tools, sushy_tools/emulator/templates/root.json names no sessions"},
	{kind: kindShows, of: ofRoot, member: "SessionService", source: "openstack/sushy-tools, sushy_tools/emulator/templates/root.json"},
	{kind: kindShows, of: ofRoot, member: "Links", source: "openstack/sushy-tools, sushy_tools/emulator/templates/root.json"},
	{kind: kindShows, of: ofRoot, member: "Vendor", source: "openstack/sushy-tools, sushy_tools/emulator/templates/root.json"},
	{kind: kindShows, of: ofRoot, member: "Product", source: "openstack/sushy-tools, sushy_tools/emulator/templates/root.json"},
}
