package serve

import (
	"maps"
	"slices"
	"time"

	"salvor/conductor/node"
	"salvor/driver"
	"salvor/driver/agent"
	"salvor/driver/fake"
	"salvor/driver/ipmi"
	"salvor/driver/manual"
	"salvor/driver/netboot"
	"salvor/driver/network"
	"salvor/driver/redfish"
	"salvor/metal"
)

// driverConfig is what the hardware types need of the configuration.
type driverConfig struct {
	// Files says where ramdisks find boot files and the API, and which images they may be given.
	Files driver.BootFiles
	// Bridges are the bridges that machines may be moved between; none: the network interface bridge is not offered.
	Bridges network.Bridges
	// Neutron is how OpenStack Networking is reached; nil: the network interfaces neutron and flat are not offered.
	Neutron *network.Cloud
	// Networks are those of Neutron that machines are worked on.
	Networks network.Networks
	// Sessions keeps sessions of BMCs between the verbs of an operation; nil: each verb has its own.
	Sessions *redfish.SessionPool
	// IPMIClient is [ipmi]client; empty: native.
	IPMIClient ipmi.Client
	// IPMICipher is [ipmi]cipher; 0: the driver's own choice.
	IPMICipher int
	// RescueKernel and RescueRamdisk are used where driver_info names none; empty: driver_info must.
	RescueKernel, RescueRamdisk string
	// DeployKernel and DeployRamdisk are the same for the ramdisk that deploys, cleans and inspects.
	DeployKernel, DeployRamdisk string
	// RescueByArch and DeployByArch are the same for nodes of some architectures.
	RescueByArch, DeployByArch map[string]node.Images
	// ImageFormats are those that may be deployed, ImageDirs the directories of images that are files here.
	ImageFormats, ImageDirs []string
	// Remote marks the configuration of a conductor on another machine: its files are not looked at.
	Remote bool
	// Callback refuses addresses at which no agent may be called.
	Callback agent.Control
	// AgentTimeout bounds one request to an agent.
	AgentTimeout time.Duration
	// BMC refuses addresses at which no BMC may be spoken to.
	BMC agent.Control
}

// hardwareTypeBuilder is what the composition of all hardware types shares.
type hardwareTypeBuilder struct {
	cfg    driverConfig
	lanes  *driver.AddressLocks
	logins *driver.Logins
}

// hardwareTypes composes the hardware types that this conductor offers, each with the
// description that it publishes. It is the only list of drivers.
func hardwareTypes(cfg driverConfig) []driver.HardwareType {
	h := hardwareTypeBuilder{cfg: cfg, lanes: &driver.AddressLocks{}, logins: &driver.Logins{}}
	return []driver.HardwareType{h.redfish(), h.ipmi(), h.fake(), h.manual(), h.idrac(), h.ilo()}
}

func (h hardwareTypeBuilder) redfish() driver.HardwareType {
	return h.byRedfish("redfish", redfish.AddressKey, redfish.Properties)
}

// idrac is Ironic's hardware type for Dell's BMCs. Its interfaces are those of redfish: what differs is in the table of quirks.
func (h hardwareTypeBuilder) idrac() driver.HardwareType {
	t := h.byRedfish("idrac", redfish.AddressKey, redfish.Properties)
	for _, kind := range []string{"power", "management", "inspect", "bios", "raid", "vendor"} {
		addAlias(&t, kind, "redfish", "idrac-redfish")
	}
	addAlias(&t, "boot", "redfish-virtual-media", "idrac-redfish-virtual-media")
	return t
}

// ilo is the hardware type of former releases of Ironic for HPE's BMCs, which speak Redfish from iLO 5 on.
func (h hardwareTypeBuilder) ilo() driver.HardwareType {
	t := h.byRedfish(redfish.ILO, redfish.ILOAddressKey, redfish.ILOProperties)
	for _, kind := range []string{"power", "management", "inspect", "bios", "vendor"} {
		addAlias(&t, kind, "redfish", "ilo")
	}
	for _, a := range []struct{ of, name string }{{"ipxe", "ilo-ipxe"}, {"pxe", "ilo-pxe"}, {"redfish-virtual-media", "ilo-virtual-media"}} {
		addAlias(&t, "boot", a.of, a.name)
	}
	return t
}

// byRedfish composes a hardware type whose machines are driven by Redfish.
func (h hardwareTypeBuilder) byRedfish(name, address string, properties map[string]string) driver.HardwareType {
	d := &redfish.Driver{Locks: h.lanes, Logins: h.logins, Control: h.cfg.BMC, Sessions: h.cfg.Sessions}
	t := newHardwareType(name, ipmi.Properties, properties, rescueProperties)
	needs := []string{address}
	addInterfaces(&t, "power", t.Power, interfaceChoice[driver.Power]{metal.InterfaceInfo{Name: "redfish", Required: needs}, d})
	addInterfaces(&t, "management", t.Management, interfaceChoice[driver.Management]{metal.InterfaceInfo{Name: "redfish", Required: needs}, d})
	addInterfaces(&t, "inspect", t.Inspect, interfaceChoice[driver.Inspect]{metal.InterfaceInfo{Name: "redfish", Required: needs}, d}, h.agentInspect(), noInspect)
	addInterfaces(&t, "boot", t.Boot,
		interfaceChoice[driver.Boot]{h.boot(metal.InterfaceInfo{Name: "redfish-virtual-media", Required: needs, BootsVolumes: anyVolume}), &redfish.Media{Driver: d, Files: h.cfg.Files}},
		h.ipxe(d.SetBootDevice), h.pxe(d.SetBootDevice),
		interfaceChoice[driver.Boot]{h.boot(metal.InterfaceInfo{Name: "http", NeedsPorts: true, BootsVolumes: anyVolume}),
			netboot.HTTP(h.cfg.Files, d.SetBootDevice, d.SetHTTPBoot).WithInitiator(&redfish.Media{Driver: d})})
	addInterfaces(&t, "network", t.Network, h.networks()...)
	addInterfaces(&t, "rescue", t.Rescue, h.agentRescue(), noRescue)
	addInterfaces(&t, "deploy", t.Deploy, h.direct(), customAgent, ramdiskDeploy, fakeDeploy)
	setDefaultInterface(&t, "bios", metal.InterfaceInfo{Name: "redfish", Required: needs}, redfish.BIOS{Driver: d})
	setDefaultInterface(&t, "raid", metal.InterfaceInfo{Name: "redfish", Required: needs}, redfish.RAID{Driver: d})
	setDefaultInterface(&t, "firmware", metal.InterfaceInfo{Name: "redfish", Required: needs}, redfish.Firmware{Driver: d})
	sol := ipmi.SOL{Driver: h.ipmiDriver()}
	addExtraInterface(&t, "console", metal.InterfaceInfo{Name: "ipmi-sol", Required: []string{ipmi.AddressKey}}, sol)
	setDefaultInterface(&t, "vendor", metal.InterfaceInfo{Name: "redfish", Required: needs, Methods: redfish.Methods}, redfish.Vendor{Driver: d})
	return t
}

func (h hardwareTypeBuilder) ipmiDriver() *ipmi.Driver {
	return &ipmi.Driver{Locks: h.lanes, Logins: h.logins, Client: h.cfg.IPMIClient, Cipher: h.cfg.IPMICipher, Control: h.cfg.BMC}
}

func (h hardwareTypeBuilder) ipmi() driver.HardwareType {
	d := h.ipmiDriver()
	t := newHardwareType("ipmi", ipmi.Properties, rescueProperties)
	needs := []string{ipmi.AddressKey}
	addInterfaces(&t, "power", t.Power, interfaceChoice[driver.Power]{metal.InterfaceInfo{Name: "ipmitool", Required: needs}, d})
	addInterfaces(&t, "management", t.Management, interfaceChoice[driver.Management]{metal.InterfaceInfo{Name: "ipmitool", Required: needs}, d})
	addInterfaces(&t, "inspect", t.Inspect, noInspect, h.agentInspect())
	addInterfaces(&t, "boot", t.Boot, h.ipxe(d.SetBootDevice), h.pxe(d.SetBootDevice),
		interfaceChoice[driver.Boot]{h.boot(metal.InterfaceInfo{Name: "http", NeedsPorts: true, BootsVolumes: fibreChannel}), netboot.HTTP(h.cfg.Files, d.SetBootDevice, nil)})
	addInterfaces(&t, "network", t.Network, h.networks()...)
	addInterfaces(&t, "rescue", t.Rescue, h.agentRescue(), noRescue)
	addInterfaces(&t, "deploy", t.Deploy, h.direct(), customAgent, ramdiskDeploy, fakeDeploy)
	setDefaultInterface(&t, "console", metal.InterfaceInfo{Name: "ipmi-sol", Required: needs}, ipmi.SOL{Driver: d})
	setDefaultInterface(&t, "vendor", metal.InterfaceInfo{Name: "ipmitool", Required: needs, Methods: ipmi.Methods}, ipmi.Vendor{Driver: d})
	return t
}

func (h hardwareTypeBuilder) fake() driver.HardwareType {
	d := fake.Hardware{}
	t := newHardwareType("fake-hardware", map[string]string{
		fake.DelayKey:     "Seconds that every request to the machine takes.",
		fake.EventLogKey:  "What the BMC has logged: a list of objects with time, severity, sensor, message and state.",
		fake.UnhealthyKey: "Components that are not well: a list of objects with component, name, state and health.",
	}, rescueProperties)
	addInterfaces(&t, "power", t.Power, interfaceChoice[driver.Power]{metal.InterfaceInfo{Name: "fake"}, d})
	addInterfaces(&t, "management", t.Management, interfaceChoice[driver.Management]{metal.InterfaceInfo{Name: "fake"}, d})
	addInterfaces(&t, "inspect", t.Inspect, interfaceChoice[driver.Inspect]{metal.InterfaceInfo{Name: "fake"}, d}, h.agentInspect(), noInspect)
	addInterfaces(&t, "boot", t.Boot, interfaceChoice[driver.Boot]{metal.InterfaceInfo{Name: "fake", BootsVolumes: anyVolume}, fake.Boot{Files: h.cfg.Files}}, h.ipxe(d.SetBootDevice), h.pxe(d.SetBootDevice))
	addInterfaces(&t, "network", t.Network, append([]interfaceChoice[driver.Network]{noopNetwork}, h.neutronNetworks()...)...)
	addInterfaces(&t, "rescue", t.Rescue, interfaceChoice[driver.Rescue]{metal.InterfaceInfo{Name: "fake"}, fake.Rescue{}}, h.agentRescue(), noRescue)
	addInterfaces(&t, "deploy", t.Deploy, fakeDeploy, customAgent, h.direct(), ramdiskDeploy)
	setDefaultInterface(&t, "bios", metal.InterfaceInfo{Name: "fake"}, fake.BIOS{})
	setDefaultInterface(&t, "raid", metal.InterfaceInfo{Name: "fake"}, fake.RAID{})
	setDefaultInterface(&t, "firmware", metal.InterfaceInfo{Name: "fake"}, fake.Firmware{})
	setDefaultInterface(&t, "console", metal.InterfaceInfo{Name: "fake"}, fake.Console{})
	setDefaultInterface(&t, "vendor", metal.InterfaceInfo{Name: "fake", Methods: fake.Methods}, fake.Vendor{})
	return t
}

func (h hardwareTypeBuilder) manual() driver.HardwareType {
	d := manual.Hardware{}
	t := newHardwareType("manual-management", rescueProperties)
	addInterfaces(&t, "power", t.Power, interfaceChoice[driver.Power]{metal.InterfaceInfo{Name: "noop"}, d}, interfaceChoice[driver.Power]{metal.InterfaceInfo{Name: "fake"}, fake.Hardware{}})
	addInterfaces(&t, "management", t.Management, interfaceChoice[driver.Management]{metal.InterfaceInfo{Name: "noop"}, d})
	addInterfaces(&t, "inspect", t.Inspect, noInspect, h.agentInspect())
	addInterfaces(&t, "boot", t.Boot, h.ipxe(d.SetBootDevice), h.pxe(d.SetBootDevice))
	addInterfaces(&t, "network", t.Network, h.networks()...)
	addInterfaces(&t, "rescue", t.Rescue, noRescue, h.agentRescue())
	addInterfaces(&t, "deploy", t.Deploy, h.direct(), customAgent, ramdiskDeploy, fakeDeploy)
	return t
}

// interfaceChoice is one interface with its description.
type interfaceChoice[I any] struct {
	info metal.InterfaceInfo
	impl I
}

// addInterfaces adds the interfaces of a kind; the first is the default.
func addInterfaces[I any](t *driver.HardwareType, kind string, into map[string]I, choices ...interfaceChoice[I]) {
	set := metal.InterfaceSet{Default: choices[0].info.Name}
	for _, c := range choices {
		set.Enabled = append(set.Enabled, c.info)
		// A kind that is refused by its name (no-inspect) may have no implementation behind it.
		if any(c.impl) != nil {
			into[c.info.Name] = c.impl
		}
	}
	t.Info.Interfaces[kind] = set
}

// addAlias offers an interface under another name too, which becomes the default of its kind.
func addAlias(t *driver.HardwareType, kind, of, name string) {
	set := t.Info.Interfaces[kind]
	info := set.Enabled[slices.IndexFunc(set.Enabled, func(i metal.InterfaceInfo) bool { return i.Name == of })]
	info.Name = name
	t.Info.Interfaces[kind] = metal.InterfaceSet{Default: name, Enabled: append([]metal.InterfaceInfo{info}, set.Enabled...)}
	switch kind {
	case "power":
		t.Power[name] = t.Power[of]
	case "management":
		t.Management[name] = t.Management[of]
	case "boot":
		t.Boot[name] = t.Boot[of]
	case "inspect":
		t.Inspect[name] = t.Inspect[of]
	default:
		t.Extras[kind][name] = t.Extras[kind][of]
	}
}

// addExtraInterface offers an interface beside those of the kind that are there already.
func addExtraInterface(t *driver.HardwareType, kind string, info metal.InterfaceInfo, impl any) {
	set := t.Info.Interfaces[kind]
	t.Info.Interfaces[kind] = metal.InterfaceSet{Default: set.Default, Enabled: append(slices.Clone(set.Enabled), info)}
	if t.Extras[kind] == nil {
		t.Extras[kind] = map[string]any{}
	}
	t.Extras[kind][info.Name] = impl
}

// setDefaultInterface puts an interface before those of the kind that are there already, and makes it the default.
func setDefaultInterface(t *driver.HardwareType, kind string, info metal.InterfaceInfo, impl any) {
	addExtraInterface(t, kind, info, impl)
	enabled := t.Info.Interfaces[kind].Enabled
	last := len(enabled) - 1
	t.Info.Interfaces[kind] = metal.InterfaceSet{Default: info.Name, Enabled: slices.Insert(enabled[:last], 0, info)}
}

var rescueProperties = map[string]string{
	rescueKernelKey:  "The kernel of the rescue ramdisk: a path on the conductor, or an http(s) URL.",
	rescueRamdiskKey: "The rescue ramdisk itself: a path on the conductor, or an http(s) URL.",
	deployKernelKey:  "The kernel of the ramdisk that deploys, cleans and inspects: a path on the conductor, or an http(s) URL.",
	deployRamdiskKey: "The ramdisk that deploys, cleans and inspects: a path on the conductor, or an http(s) URL.",
	"deploy_iso":     "A ready-made ISO image of the ramdisk that deploys, cleans and inspects, for redfish-virtual-media: a path on the conductor, or an http(s) URL.",
	"rescue_iso":     "The same of the rescue ramdisk.",
	driver.AppendKey: "Kernel parameters for ramdisks; %default% stands for the configured ones.",
}

const (
	deployKernelKey  = "deploy_kernel"
	deployRamdiskKey = "deploy_ramdisk"
	rescueKernelKey  = "rescue_kernel"
	rescueRamdiskKey = "rescue_ramdisk"
)

// newHardwareType starts a hardware type with the kinds that none of ours implements.
func newHardwareType(name string, properties ...map[string]string) driver.HardwareType {
	t := driver.HardwareType{
		Info:  metal.DriverInfo{Name: name, Interfaces: map[string]metal.InterfaceSet{}, Properties: map[string]string{}},
		Power: map[string]driver.Power{}, Management: map[string]driver.Management{}, Boot: map[string]driver.Boot{},
		Network: map[string]driver.Network{}, Rescue: map[string]driver.Rescue{}, Inspect: map[string]driver.Inspect{}, Deploy: map[string]driver.Deploy{},
		Extras: map[string]map[string]any{},
	}
	for _, p := range properties {
		maps.Copy(t.Info.Properties, p)
	}
	for _, kind := range []string{"bios", "console", "firmware", "raid", "vendor"} {
		none := metal.InterfaceInfo{Name: "no-" + kind, Unsupported: true}
		t.Info.Interfaces[kind] = metal.InterfaceSet{Default: none.Name, Enabled: []metal.InterfaceInfo{none}}
	}
	// RAID by the agent is made by a step of the ramdisk; the conductor only keeps the configuration.
	raid := t.Info.Interfaces["raid"]
	raid.Enabled = append(raid.Enabled, metal.InterfaceInfo{Name: "agent"})
	t.Info.Interfaces["raid"] = raid
	// No code is behind storage: what boots from a volume is the boot interface. cinder is another name of external, for nodes
	// that Ironic had: whoever creates a target, Nova or an operator, gives what Ironic would ask Cinder for.
	t.Info.Interfaces["storage"] = metal.InterfaceSet{Default: "noop", Enabled: []metal.InterfaceInfo{
		{Name: "noop"}, {Name: "external", Volumes: true}, {Name: "cinder", Volumes: true},
	}}
	return t
}

// Types of volume by who reaches them: an iPXE script or a BMC's own initiator, and the machine's adapter.
var (
	anyVolume    = []metal.VolumeType{metal.ISCSI, metal.FibreChannel}
	fibreChannel = []metal.VolumeType{metal.FibreChannel}
)

var (
	noInspect     = interfaceChoice[driver.Inspect]{info: metal.InterfaceInfo{Name: "no-inspect", Unsupported: true}}
	noRescue      = interfaceChoice[driver.Rescue]{metal.InterfaceInfo{Name: "no-rescue", Unsupported: true}, agent.NoRescue{}}
	noopNetwork   = interfaceChoice[driver.Network]{metal.InterfaceInfo{Name: "noop"}, network.Noop{}}
	customAgent   = interfaceChoice[driver.Deploy]{metal.InterfaceInfo{Name: "custom-agent", Heartbeat: agent.Deploy{}.Heartbeats()}, agent.Deploy{}}
	ramdiskDeploy = interfaceChoice[driver.Deploy]{metal.InterfaceInfo{Name: "ramdisk", Heartbeat: agent.Deploy{}.Heartbeats(), RequiredInstance: []string{"kernel", "ramdisk"}, InsteadInstance: "boot_iso"}, agent.Deploy{Ramdisk: true}}
	fakeDeploy    = interfaceChoice[driver.Deploy]{metal.InterfaceInfo{Name: "fake"}, fake.Deploy{}}
)

// boot marks a boot interface whose ramdisks would have nobody to call.
func (h hardwareTypeBuilder) boot(info metal.InterfaceInfo) metal.InterfaceInfo {
	if h.cfg.Files.APIURL == "" || h.cfg.Files.URL == "" {
		info.Broken = driver.NoRamdiskURL
	}
	return info
}

func (h hardwareTypeBuilder) ipxe(set netboot.SetDevice) interfaceChoice[driver.Boot] {
	return interfaceChoice[driver.Boot]{h.boot(metal.InterfaceInfo{Name: "ipxe", NeedsPorts: true, BootsVolumes: anyVolume}), netboot.IPXE(h.cfg.Files, set)}
}

// pxe is ipxe under the name that many of Ironic's clients send: the machine's PXE ROM loads iPXE first.
func (h hardwareTypeBuilder) pxe(set netboot.SetDevice) interfaceChoice[driver.Boot] {
	choice := h.ipxe(set)
	choice.info.Name = "pxe"
	return choice
}

// needsDeployRamdisk lists what driver_info has to name because the configuration does not.
func (h hardwareTypeBuilder) needsDeployRamdisk() (keys []string) {
	if len(h.cfg.DeployByArch) > 0 { // whether the node's is among them is known with its boot plan
		return nil
	}
	if h.cfg.DeployKernel == "" {
		keys = append(keys, deployKernelKey)
	}
	if h.cfg.DeployRamdisk == "" {
		keys = append(keys, deployRamdiskKey)
	}
	return keys
}

func (h hardwareTypeBuilder) direct() interfaceChoice[driver.Deploy] {
	d := agent.Direct{Formats: h.cfg.ImageFormats, Dirs: h.cfg.ImageDirs, Remote: h.cfg.Remote}
	return interfaceChoice[driver.Deploy]{metal.InterfaceInfo{Name: "direct", Heartbeat: d.Heartbeats(), Required: h.needsDeployRamdisk(), ImageFormats: h.cfg.ImageFormats}, d}
}

func (h hardwareTypeBuilder) agentInspect() interfaceChoice[driver.Inspect] {
	return interfaceChoice[driver.Inspect]{metal.InterfaceInfo{Name: "agent", Required: h.needsDeployRamdisk()}, agent.Inspect{}}
}

func (h hardwareTypeBuilder) agentRescue() interfaceChoice[driver.Rescue] {
	info := metal.InterfaceInfo{Name: "agent", NeedsHeartbeat: true}
	if h.cfg.RescueKernel == "" && len(h.cfg.RescueByArch) == 0 {
		info.RequiredForRescue = append(info.RequiredForRescue, rescueKernelKey)
	}
	if h.cfg.RescueRamdisk == "" && len(h.cfg.RescueByArch) == 0 {
		info.RequiredForRescue = append(info.RequiredForRescue, rescueRamdiskKey)
	}
	return interfaceChoice[driver.Rescue]{info, agent.Rescue{Locks: h.lanes, Control: h.cfg.Callback, Timeout: h.cfg.AgentTimeout}}
}

// networks puts bridge first where there are bridges: who configures them wants them used.
func (h hardwareTypeBuilder) networks() []interfaceChoice[driver.Network] {
	if len(h.cfg.Bridges) == 0 {
		return append([]interfaceChoice[driver.Network]{noopNetwork}, h.neutronNetworks()...)
	}
	info := metal.InterfaceInfo{Name: "bridge", NeedsPorts: true, Warning: h.cfg.Bridges.Warning()}
	bridge, err := network.NewBridge(h.cfg.Bridges)
	if err != nil {
		info.Broken = err.Error()
		bridge = &network.Bridge{} // which knows no network, so every use of it is refused
	}
	return append([]interfaceChoice[driver.Network]{{info, bridge}, noopNetwork}, h.neutronNetworks()...)
}

// neutronNetworks are those by OpenStack Networking, each with the networks that
// driver_info has to name because the configuration does not.
func (h hardwareTypeBuilder) neutronNetworks() []interfaceChoice[driver.Network] {
	if h.cfg.Neutron == nil {
		return nil
	}
	unnamed := func(nets ...driver.Net) (keys []string) {
		for _, net := range nets {
			if h.cfg.Networks.Of[net] == "" {
				keys = append(keys, network.Key(net))
			}
		}
		return keys
	}
	flat := metal.InterfaceInfo{Name: "flat", NeedsPorts: true, Required: unnamed(driver.CleaningNet)}
	full := metal.InterfaceInfo{Name: "neutron", NeedsPorts: true, Required: unnamed(driver.Provisioning, driver.CleaningNet), RequiredForRescue: unnamed(driver.Rescuing)}
	return []interfaceChoice[driver.Network]{{full, network.NewNeutron(h.cfg.Neutron, h.cfg.Networks)}, {flat, network.NewFlat(h.cfg.Neutron, h.cfg.Networks)}}
}
