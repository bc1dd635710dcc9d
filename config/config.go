// Package config reads salvor's configuration: an INI file with Ironic's section and option names where Ironic has them, SALVOR_* variables
// over it, and flags over both. It knows every option with its default, its form and its meaning, and returns plain structs. It must not
// know the effects of the options. It imports no other package of the project but problem and secret, opens only the file that it is given,
// and starts nothing.
package config

import (
	"net/netip"
	"time"

	"salvor/secret"
)

// Config is every option, typed, with its default where nobody set it.
type Config struct {
	Default        Default
	API            API
	Conductor      Conductor
	Deploy         Deploy
	Inspector      Inspector
	Agent          Agent
	Repair         Repair
	PXE            PXE
	Ramdisk        Ramdisk
	ServiceCatalog ServiceCatalog
	Database       Database
	Secrets        Secrets
	Bridge         Bridge
	Neutron        Neutron
	Glance         Glance
	Nova           Nova
	Keystone       Keystone
	Policy         Policy
	IPMI           IPMI
	Netboot        Netboot
	Hosts          Hosts
	Compute        Compute
	Rescue         Rescue
	Image          Image
	Storage        Storage
	Cyclades       Cyclades
	Fetch          Fetch
	Limits         Limits
	Health         Health
	Site           Site
	OTel           OTel

	origin map[string]string
}

// Origin tells who set an option: "file:line", a variable or a flag. It is empty where the default holds.
func (c *Config) Origin(section, option string) string { return c.origin[section+"."+option] }

// The values of [DEFAULT]auth_strategy.
const (
	NoAuth       = "noauth"
	BasicAuth    = "http_basic"
	KeystoneAuth = "keystone"
	TokenAuth    = "token"
)

// Default is [DEFAULT].
type Default struct {
	UseJSON               bool
	AuthStrategy          string
	HTTPBasicAuthUserFile string
	Debug                 bool
	// LogLevel is debug, info, warn or error; Debug wins over it.
	LogLevel string
	// Host names this conductor; unique among the conductors of one database.
	Host string
	// Roles are what the process does, each one of RoleAPI, RoleConductor and RoleNetboot.
	Roles []string
	// StatePath is the state directory.
	StatePath string
	// EnabledHardwareTypes lists the hardware types on offer.
	EnabledHardwareTypes []string
	// EnabledInterfaces lists the interfaces on offer by kind ("rescue"); a kind that is not there offers all.
	EnabledInterfaces map[string][]string
	// DefaultInterface is what a new node gets, by kind; a kind that is not there leaves it to the hardware type.
	DefaultInterface     map[string]string
	DefaultResourceClass string
}

// API is [api].
type API struct {
	HostIP                  netip.Addr
	Port                    int
	MaxLimit                int
	PublicEndpoint          string
	RestrictLookup          bool
	LegacyRamdiskPassthru   bool
	StrictConnectors        bool
	RamdiskHeartbeatTimeout time.Duration
	TLS                     TLS
}

// Conductor is [conductor]. A time-out of 0 means never.
type Conductor struct {
	// BMCNetworks are where BMCs are spoken to.
	BMCNetworks                 Networks
	NodeLockedRetryAttempts     int
	NodeLockedRetryInterval     time.Duration
	RescueCallbackTimeout       time.Duration
	DeployCallbackTimeout       time.Duration
	CleanCallbackTimeout        time.Duration
	InspectWaitTimeout          time.Duration
	ServiceCallbackTimeout      time.Duration
	CheckRescueStateInterval    time.Duration
	CheckProvisionStateInterval time.Duration
	RescuePasswordHashAlgorithm string

	// Kernels and ramdisks are paths or URLs; empty: those in the state directory.
	RescueKernel, RescueRamdisk string
	DeployKernel, DeployRamdisk string
	// Those of nodes by their property cpu_arch, such as aarch64.
	RescueKernelByArch, RescueRamdiskByArch map[string]string
	DeployKernelByArch, DeployRamdiskByArch map[string]string
	// FileURLAllowedPaths are directories whose files may be booted besides the state directory's own.
	FileURLAllowedPaths []string
	// PermittedImageFormats are those of images that may be deployed.
	PermittedImageFormats []string

	SyncPowerStateInterval       time.Duration // 0: no power sync
	SyncPowerStateWorkers        int
	PowerStateSyncMaxRetries     int
	ForcePowerStateDuringSync    bool
	PowerFailureRecoveryInterval time.Duration
	PowerStateChangeTimeout      time.Duration
	SoftPowerOffTimeout          time.Duration
	AutomatedClean               bool
	AllowProvisioningMaintenance bool
	AllowDeletingAvailableNodes  bool
	ConductorGroup               string
	WorkersPoolSize              int
	BacklogLimit                 int
	GracefulShutdownTimeout      time.Duration
	NodeHistory                  bool
	NodeHistoryMaxEntries        int
	NodeHistoryCleanupBatchCount int
	NodeHistoryMinimumDays       int
	NodeHistoryCleanupInterval   time.Duration
	MaxConcurrentDeploy          int
	MaxConcurrentClean           int
}

// Agent is [agent].
type Agent struct {
	RescuePasswordInLookup bool
	RescueRootPassword     bool
	RequireTLS             bool
	CommandTimeout         time.Duration
	MaxCommandAttempts     int
	// CallbackNetworks are where agents are called back.
	CallbackNetworks Networks
}

// PXE is [pxe].
type PXE struct {
	KernelAppendParams string
}

// Ramdisk is [ramdisk]: the listener for ramdisks.
type Ramdisk struct {
	// Listen is host:port; empty: no listener of its own.
	Listen string
}

// ServiceCatalog is [service_catalog].
type ServiceCatalog struct {
	// EndpointOverride is the URL under which ramdisks reach the API; empty: [ramdisk]listen.
	EndpointOverride string
}

// Database is [database].
type Database struct {
	// Connection is sqlite:PATH or postgres://...; it may hold a password.
	Connection secret.Value
	// AutoMigrate is always, empty or never once a configuration is loaded.
	AutoMigrate string
	// WitnessFile is a file outside of the state directory with the incarnation and counter of the database; empty: there is none.
	WitnessFile string
	// MaxPoolSize bounds the connections; 0: as the engine has it.
	MaxPoolSize int
	// PoolMode is none, session or transaction.
	PoolMode string
	// DirectConnection is the URL of PostgreSQL itself if Connection is the URL of a pooler; empty: there is none.
	DirectConnection secret.Value
}

// Secrets is [secrets].
type Secrets struct {
	KeyFile string
	// KeyCommand prints the key; empty: KeyFile has it.
	KeyCommand        string
	KeyCommandTimeout time.Duration
}

// Bridge is [bridge]: Linux bridges by role; empty: none.
type Bridge struct {
	ProvisioningNetwork, CleaningNetwork, InspectionNetwork string
	RescuingNetwork, TenantNetwork                          string
}

// IPMI is [ipmi].
type IPMI struct {
	// Client is native or ipmitool.
	Client string
	// Cipher is the cipher suite asked for unless driver_info says; 0: the driver's own choice.
	Cipher int
}

// Netboot is [netboot]: DHCP, TFTP and HTTP for booting machines.
type Netboot struct {
	Interfaces []BootInterface
	TFTPRoot   string
	Lease      time.Duration
}

// Hosts is [hosts]: the listener for VM hosts.
type Hosts struct {
	Listen string
	// Names are those of the listener's certificate beside the address in Listen.
	Names []string
}
