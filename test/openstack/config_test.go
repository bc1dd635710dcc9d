//go:build openstack

package openstack

// Configurations, in which names in braces are ports and other values of the run.
const (
	database = "connection = mysql+pymysql://root@127.0.0.1:{DB}/"

	// loggedIn is how a service validates tokens and how it logs in.
	loggedIn = `auth_type = password
auth_url = http://127.0.0.1:{KEYSTONE}/v3
project_name = service
project_domain_name = Default
user_domain_name = Default
password = {PASSWORD}
`

	keystoneConf = `[DEFAULT]
[database]
` + database + `keystone
[identity]
# Log-ins by the hundred; this Keystone keeps nobody's secret.
password_hash_rounds = 4
[token]
provider = fernet
[fernet_tokens]
key_repository = {DIR}/fernet
[fernet_receipts]
key_repository = {DIR}/fernet
[credential]
key_repository = {DIR}/fernet
`

	placementConf = `[placement_database]
` + database + `placement
[api]
auth_strategy = keystone
[keystone_authtoken]
` + loggedIn + `username = placement
www_authenticate_uri = http://127.0.0.1:{KEYSTONE}/v3
`

	glanceConf = `[DEFAULT]
bind_host = 127.0.0.1
bind_port = {GLANCE}
workers = 0
enabled_backends = files:file
[database]
` + database + `glance
[glance_store]
default_backend = files
[files]
filesystem_store_datadir = {DIR}/images
[os_glance_staging_store]
filesystem_store_datadir = {DIR}/glance-staging
[os_glance_tasks_store]
filesystem_store_datadir = {DIR}/glance-tasks
[paste_deploy]
flavor = keystone
config_file = /etc/glance/glance-api-paste.ini
[keystone_authtoken]
` + loggedIn + `username = glance
www_authenticate_uri = http://127.0.0.1:{KEYSTONE}/v3
`

	neutronConf = `[DEFAULT]
bind_host = 127.0.0.1
bind_port = {NEUTRON}
api_paste_config = /etc/neutron/api-paste.ini
core_plugin = ml2
service_plugins =
state_path = {DIR}/neutron
transport_url = rabbit://guest:guest@127.0.0.1:{RABBIT}/
notify_nova_on_port_status_changes = false
notify_nova_on_port_data_changes = false
api_workers = 1
rpc_workers = 0
[ml2]
type_drivers = local
tenant_network_types = local
mechanism_drivers =
[oslo_concurrency]
lock_path = {DIR}/neutron
[database]
` + database + `neutron
[keystone_authtoken]
` + loggedIn + `username = neutron
www_authenticate_uri = http://127.0.0.1:{KEYSTONE}/v3
`

	ironicConf = `[DEFAULT]
auth_strategy = keystone
rpc_transport = none
host = conductor-of-the-test
my_ip = 127.0.0.1
state_path = {DIR}/ironic
tempdir = {DIR}/ironic
enabled_hardware_types = fake-hardware
enabled_bios_interfaces = no-bios
enabled_boot_interfaces = fake
enabled_console_interfaces = no-console
enabled_deploy_interfaces = fake
enabled_inspect_interfaces = no-inspect
enabled_management_interfaces = fake
enabled_network_interfaces = noop
default_network_interface = noop
enabled_power_interfaces = fake
enabled_raid_interfaces = no-raid
enabled_rescue_interfaces = fake
enabled_storage_interfaces = noop
enabled_vendor_interfaces = no-vendor
graceful_shutdown_timeout = 5
[api]
host_ip = 127.0.0.1
port = {IRONIC}
api_workers = 1
[database]
` + database + `ironic
[conductor]
automated_clean = false
[dhcp]
dhcp_provider = none
[oslo_concurrency]
lock_path = {DIR}/ironic/lock
[keystone_authtoken]
` + loggedIn + `username = ironic
www_authenticate_uri = http://127.0.0.1:{KEYSTONE}/v3
[nova]
` + loggedIn + `username = ironic
`

	salvorConf = `[DEFAULT]
auth_strategy = keystone
[keystone_authtoken]
` + loggedIn + `username = salvor
[nova]
` + loggedIn + `username = salvor
[glance]
` + loggedIn + `username = salvor
[ramdisk]
# The noop network interface leaves the machine on this network of the lab.
listen = 10.78.0.1:6386
[conductor]
automated_clean = false
bmc_networks = {BMC}
deploy_kernel = {RAMDISK}/kernel
deploy_ramdisk = {RAMDISK}/initramfs
`

	// novaConf is that of the API, the conductor and the scheduler.
	novaConf = `[DEFAULT]
host = control
my_ip = 127.0.0.1
state_path = {DIR}/nova
transport_url = rabbit://guest:guest@127.0.0.1:{RABBIT}/
enabled_apis = osapi_compute
osapi_compute_listen = 127.0.0.1
osapi_compute_listen_port = {NOVA}
osapi_compute_workers = 1
# Nothing here plugs networks, so no event of Neutron comes.
vif_plugging_is_fatal = false
vif_plugging_timeout = 0
update_resources_interval = 15
[wsgi]
api_paste_config = /etc/nova/api-paste.ini
[api]
auth_strategy = keystone
[api_database]
` + database + `nova_api
[database]
` + database + `{NOVA_DB}
[conductor]
workers = 1
[scheduler]
workers = 1
discover_hosts_in_cells_interval = 5
[vnc]
enabled = false
[oslo_concurrency]
lock_path = {DIR}/nova
[keystone_authtoken]
` + loggedIn + `username = nova
www_authenticate_uri = http://127.0.0.1:{KEYSTONE}/v3
[placement]
` + loggedIn + `username = nova
[neutron]
` + loggedIn + `username = nova
[glance]
` + loggedIn + `username = nova
`

	// computeConf goes over novaConf for one nova-compute.
	computeConf = `[DEFAULT]
host = {HOST}
state_path = {DIR}/{HOST}
compute_driver = ironic.IronicDriver
[oslo_concurrency]
lock_path = {DIR}/{HOST}
[ironic]
` + loggedIn + `username = nova
endpoint_override = {BAREMETAL}
# Two nova-computes of one Keystone are told apart by endpoint, so none looks for nodes of the other.
partition_key =
peer_list = {HOST}
api_retry_interval = 1
`
)
