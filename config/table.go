package config

import (
	"net/netip"
	"time"

	"salvor/secret"
)

// interfaceKinds are the kinds of driver interface that Ironic has options for.
var interfaceKinds = []string{
	"bios", "boot", "console", "deploy", "firmware", "inspect", "management",
	"network", "power", "raid", "rescue", "storage", "vendor",
}

var defaultOptions = []Option{
	newOption("DEFAULT", "auth_strategy", NoAuth, oneOf(NoAuth, BasicAuth, TokenAuth, KeystoneAuth), func(c *Config) *string { return &c.Default.AuthStrategy },
		"How clients of the API prove who they are. noauth: nobody has to. http_basic: by a user of http_basic_auth_user_file. token: by a token that \"salvor token create\" made. keystone: by a token of Keystone's. With noauth and http_basic the API accepts salvor's own tokens too. If the API listens beyond loopback, noauth must be set explicitly."),
	newOption("DEFAULT", "http_basic_auth_user_file", "/etc/salvor/htpasswd", path, func(c *Config) *string { return &c.Default.HTTPBasicAuthUserFile },
		"The users of http_basic: lines of htpasswd with bcrypt hashes."),
	newOption("DEFAULT", "debug", "false", boolean, func(c *Config) *bool { return &c.Default.Debug },
		"Log at level debug, and ignore log_level."),
	newOption("DEFAULT", "log_level", "info", oneOf("debug", "info", "warn", "error"), func(c *Config) *string { return &c.Default.LogLevel },
		"The lowest level that salvor logs."),
	newOption("DEFAULT", "host", "", nameSyntax, func(c *Config) *string { return &c.Default.Host },
		"The name of this conductor; each conductor of one database needs its own. By default the machine's host name."),
	newOption("DEFAULT", "state_path", "", path, func(c *Config) *string { return &c.Default.StatePath },
		"The state directory: SQLite database, key file, ramdisks. By default /var/lib/salvor for root, else salvor below $XDG_STATE_HOME or ~/.local/state."),
	newOption("DEFAULT", "enabled_hardware_types", "redfish,ipmi,fake-hardware,manual-management,idrac,ilo", list, func(c *Config) *[]string { return &c.Default.EnabledHardwareTypes },
		"The hardware types that nodes may have."),
	newOption("DEFAULT", "default_resource_class", "", nameSyntax, func(c *Config) *string { return &c.Default.DefaultResourceClass },
		"The resource class of a new node that names none."),
}

// interfaceOptions are the enabled_K_interfaces and default_K_interface of every kind.
func interfaceOptions() []Option {
	var out []Option
	for _, kind := range interfaceKinds {
		enabled := Option{
			Section: "DEFAULT", Name: "enabled_" + kind + "_interfaces", Allowed: list.allowed, Many: true,
			Doc: "The " + kind + " interfaces that nodes may use. Empty: all that the hardware types have.",
			set: func(c *Config, value string) error {
				names, err := list.parse(value)
				delete(c.Default.EnabledInterfaces, kind)
				if len(names) > 0 {
					c.Default.EnabledInterfaces[kind] = names
				}
				return err
			},
		}
		def := Option{
			Section: "DEFAULT", Name: "default_" + kind + "_interface", Allowed: nameSyntax.allowed,
			Doc: "The " + kind + " interface of a node that names none. Empty: the hardware type's own.",
			set: func(c *Config, value string) error {
				name, err := nameSyntax.parse(value)
				delete(c.Default.DefaultInterface, kind)
				if name != "" {
					c.Default.DefaultInterface[kind] = name
				}
				return err
			},
		}
		out = append(out, enabled, def)
	}
	return out
}

var apiOptions = []Option{
	newOption("api", "host_ip", "127.0.0.1", address, func(c *Config) *netip.Addr { return &c.API.HostIP },
		"The address that the API listens on. Ironic's default is 0.0.0.0; salvor opens nothing to a network by default."),
	newOption("api", "port", "6385", integerSyntax(0, 65535), func(c *Config) *int { return &c.API.Port },
		"The port that the API listens on; 0: any free port."),
	newOption("api", "max_limit", "1000", integerSyntax(1, 100000), func(c *Config) *int { return &c.API.MaxLimit },
		"The most items in one page of a list."),
	newOption("api", "public_endpoint", "", webURL, func(c *Config) *string { return &c.API.PublicEndpoint },
		"The URL of the API in the links of its answers. Empty: the URL of the request."),
	newOption("api", "restrict_lookup", "true", boolean, func(c *Config) *bool { return &c.API.RestrictLookup },
		"Answer the lookup of a ramdisk only if its node is in a state that waits for a ramdisk."),
	newOption("api", "legacy_ramdisk_passthru", "false", boolean, func(c *Config) *bool { return &c.API.LegacyRamdiskPassthru },
		"Also serve the vendor passthru by which agents older than API version 1.22 look up and heartbeat. Deprecated: use it only until old ramdisks are rebuilt."),
	newOption("api", "strict_connectors", "false", boolean, func(c *Config) *bool { return &c.API.StrictConnectors },
		"Accept only volume connectors of known types and forms. false: accept any, as Ironic does; validate reports the unknown ones."),
	newOption("api", "ramdisk_heartbeat_timeout", "300", secondsSyntax(1), func(c *Config) *time.Duration { return &c.API.RamdiskHeartbeatTimeout },
		"The longest silence of a ramdisk; agents send a heartbeat at 0.3 to 0.6 of it."),
	newOption("api", "enable_ramdisk_endpoints", "true", fixedBoolSyntax(true, "a control plane without lookup and heartbeat could not rescue"), unusedField,
		"Serve lookup and heartbeat."),
}

// unusedField is the field of an option whose only value changes nothing.
func unusedField(*Config) *bool { return new(bool) }

var conductorOptions = []Option{
	newOption("conductor", "rescue_callback_timeout", "1800", secondsSyntax(0), func(c *Config) *time.Duration { return &c.Conductor.RescueCallbackTimeout },
		"How long a rescue waits for its ramdisk before it fails; 0: for ever. Time without a live conductor does not count."),
	newOption("conductor", "check_rescue_state_interval", "60", secondsSyntax(1), func(c *Config) *time.Duration { return &c.Conductor.CheckRescueStateInterval },
		"The longest delay until salvor notices that a rescue ran out of time. This is an upper bound: normally it notices each deadline at once."),
	newOption("conductor", "rescue_password_hash_algorithm", "sha256", oneOf("sha256", "sha512"), func(c *Config) *string { return &c.Conductor.RescuePasswordHashAlgorithm },
		"The crypt(3) hash of rescue passwords."),
	newOption("conductor", "require_rescue_password_hashed", "true", fixedBoolSyntax(true, "salvor keeps no password in clear and sends none to a ramdisk"), unusedField,
		"Send ramdisks only the hash of a rescue password."),
	newOption("conductor", "rescue_kernel", "", bootFile, func(c *Config) *string { return &c.Conductor.RescueKernel },
		"The kernel of the rescue ramdisk, unless driver_info names one. Empty: the one in the state directory."),
	newOption("conductor", "rescue_ramdisk", "", bootFile, func(c *Config) *string { return &c.Conductor.RescueRamdisk },
		"The rescue ramdisk, unless driver_info names one. Empty: the one in the state directory."),
	newOption("conductor", "rescue_kernel_by_arch", "", bootFilesByArch, func(c *Config) *map[string]string { return &c.Conductor.RescueKernelByArch },
		"The rescue kernels of nodes by their property cpu_arch, such as aarch64. Other nodes get rescue_kernel."),
	newOption("conductor", "rescue_ramdisk_by_arch", "", bootFilesByArch, func(c *Config) *map[string]string { return &c.Conductor.RescueRamdiskByArch },
		"The rescue ramdisks for the same architectures as rescue_kernel_by_arch."),
	newOption("conductor", "file_url_allowed_paths", "", paths, func(c *Config) *[]string { return &c.Conductor.FileURLAllowedPaths },
		"Directories whose files driver_info may name as kernel or ramdisk. The ramdisk directory in the state directory is always allowed."),
	newOption("conductor", "check_provision_state_interval", "60", secondsSyntax(1), func(c *Config) *time.Duration { return &c.Conductor.CheckProvisionStateInterval },
		"The longest delay until salvor notices that any other wait ran out of time. This is an upper bound."),
	newOption("conductor", "allow_provisioning_in_maintenance", "true", boolean, func(c *Config) *bool { return &c.Conductor.AllowProvisioningMaintenance },
		"Keep the waiting operation of a node in maintenance; false: a heartbeat in maintenance ends it."),
	newOption("conductor", "allow_deleting_available_nodes", "true", boolean, func(c *Config) *bool { return &c.Conductor.AllowDeletingAvailableNodes },
		"Let nodes be deleted in the state available."),
	newOption("conductor", "node_locked_retry_attempts", "3", integerSyntax(0, 1000), func(c *Config) *int { return &c.Conductor.NodeLockedRetryAttempts },
		"How often the API tries again to lock a node that another request works on, before it answers 409."),
	newOption("conductor", "node_locked_retry_interval", "1", secondsSyntax(0), func(c *Config) *time.Duration { return &c.Conductor.NodeLockedRetryInterval },
		"The time between two such tries. Both options only bound how long a request waits: the API notices at once that a node is free."),
	newOption("conductor", "conductor_group", "", nameSyntax, func(c *Config) *string { return &c.Conductor.ConductorGroup },
		"The group (site) whose nodes this conductor works on. Empty: nodes without a group."),
	newOption("conductor", "workers_pool_size", "300", integerSyntax(1, 10000), func(c *Config) *int { return &c.Conductor.WorkersPoolSize },
		"The most actions that this conductor runs at a time."),
	newOption("conductor", "backlog_limit", "1000", integerSyntax(0, 1000000), func(c *Config) *int { return &c.Conductor.BacklogLimit },
		"How many accepted operations of one conductor group may wait for a conductor to begin them. Beyond that, the API answers a new operation with 503 and Retry-After. Reads, heartbeats, leases, aborts, fences and evacuations continue. 0: no bound."),
	newOption("conductor", "max_concurrent_deploy", "250", integerSyntax(0, 100000), func(c *Config) *int { return &c.Conductor.MaxConcurrentDeploy },
		"The most nodes of the whole fleet that are deployed at a time; a further request is answered 503 with Retry-After. Nodes in a hold step do not count, and the bound does not apply to rescues. 0: no bound, and workers_pool_size bounds the work."),
	newOption("conductor", "max_concurrent_clean", "50", integerSyntax(0, 100000), func(c *Config) *int { return &c.Conductor.MaxConcurrentClean },
		"The most nodes of the whole fleet that are cleaned or taken down at a time; a further request is answered 503 with Retry-After. Nodes in a hold step do not count, and the bound does not apply to rescues. 0: no bound, and workers_pool_size bounds the work."),
}

var powerOptions = []Option{
	newOption("conductor", "sync_power_state_interval", "120", secondsSyntax(0), func(c *Config) *time.Duration { return &c.Conductor.SyncPowerStateInterval },
		"How often salvor reads the power state of every node; 0: never."),
	newOption("conductor", "sync_power_state_workers", "8", integerSyntax(1, 1000), func(c *Config) *int { return &c.Conductor.SyncPowerStateWorkers },
		"The most BMCs that salvor reads at a time."),
	newOption("conductor", "power_state_sync_max_retries", "3", integerSyntax(0, 1000), func(c *Config) *int { return &c.Conductor.PowerStateSyncMaxRetries },
		"A node goes into maintenance after this many readings in a row that failed or found the wrong power."),
	newOption("conductor", "force_power_state_during_sync", "true", boolean, func(c *Config) *bool { return &c.Conductor.ForcePowerStateDuringSync },
		"If power sync finds another power state than recorded, switch the machine to the recorded one; false: correct the record."),
	markIdle("power sync itself reads nodes with a power failure again, as often as [conductor]sync_power_state_interval says", newOption("conductor", "power_failure_recovery_interval", "300", secondsSyntax(0), func(c *Config) *time.Duration { return &c.Conductor.PowerFailureRecoveryInterval },
		"How often salvor reads nodes again that are in maintenance because of a power failure; 0: never.")),
	newOption("conductor", "power_state_change_timeout", "60", secondsSyntax(2), func(c *Config) *time.Duration { return &c.Conductor.PowerStateChangeTimeout },
		"How long a machine may take to switch on or off."),
	newOption("conductor", "soft_power_off_timeout", "600", secondsSyntax(1), func(c *Config) *time.Duration { return &c.Conductor.SoftPowerOffTimeout },
		"How long a system may take to shut itself down."),
}

var historyOptions = []Option{
	newOption("conductor", "node_history", "true", boolean, func(c *Config) *bool { return &c.Conductor.NodeHistory },
		"Record the timeline of nodes: node history and the events of nodes. Without it, salvor why cannot say what happened before."),
	newOption("conductor", "node_history_max_entries", "300", integerSyntax(0, 1000000), func(c *Config) *int { return &c.Conductor.NodeHistoryMaxEntries },
		"The most events of one node that are older than node_history_minimum_days; 0: no bound. salvor deletes events of more than 30 days in any case, unless node_history_minimum_days is more."),
	newOption("conductor", "node_history_minimum_days", "0", integerSyntax(0, 36500), func(c *Config) *int { return &c.Conductor.NodeHistoryMinimumDays },
		"salvor never deletes events younger than this."),
	newOption("conductor", "node_history_cleanup_interval", "86400", secondsSyntax(0), func(c *Config) *time.Duration { return &c.Conductor.NodeHistoryCleanupInterval },
		"How often salvor deletes old events; 0: never. It does so first at most 10 minutes after its start."),
	newOption("conductor", "node_history_cleanup_batch_count", "1000", integerSyntax(1, 1000000), func(c *Config) *int { return &c.Conductor.NodeHistoryCleanupBatchCount },
		"How many events one statement deletes at a time."),
}

var agentOptions = []Option{
	newOption("agent", "rescue_password_in_lookup", "false", boolean, func(c *Config) *bool { return &c.Agent.RescuePasswordInLookup },
		"For agents that take no commands: give the hash of the rescue password once, with the lookup that gives the token. The first machine that asks on the rescuing network gets it."),
	newOption("agent", "rescue_root_password", "false", boolean, func(c *Config) *bool { return &c.Agent.RescueRootPassword },
		"Set the rescue password for root as well as for the user rescue. Only salvor's own agent does so."),
	newOption("agent", "require_tls", "true", boolean, func(c *Config) *bool { return &c.Agent.RequireTLS },
		"Refuse agents whose callback URL is not https."),
	newOption("agent", "command_timeout", "60", secondsSyntax(1), func(c *Config) *time.Duration { return &c.Agent.CommandTimeout },
		"How long an agent may take to answer a request, as the start of a command."),
	markIdle("salvor repeats a command until the operation runs out of its time ([conductor]*_callback_timeout bounds it)", newOption("agent", "max_command_attempts", "3", integerSyntax(1, 100), func(c *Config) *int { return &c.Agent.MaxCommandAttempts },
		"How often a command is sent to an agent that does not answer.")),
	newOption("agent", "manage_agent_boot", "true", fixedBoolSyntax(true, "salvor boots the ramdisk itself"), unusedField,
		"Boot the ramdisk of the agent."),
	newOption("agent", "agent_api_version", "v1", oneOf("v1"), func(*Config) *string { return new(string) },
		"The version of the agent's own API."),
}

var bootOptions = []Option{
	newOption("pxe", "kernel_append_params", "", text, func(c *Config) *string { return &c.PXE.KernelAppendParams },
		"Kernel parameters of every ramdisk, unless driver_info names others."),
	newOption("ramdisk", "listen", "", listen, func(c *Config) *string { return &c.Ramdisk.Listen },
		"A listener that serves only ramdisks: lookup, heartbeat and boot files. Empty: none."),
	newOption("service_catalog", "endpoint_override", "", webURL, func(c *Config) *string { return &c.ServiceCatalog.EndpointOverride },
		"The URL under which ramdisks reach the API. Empty: that of [ramdisk]listen where it is no wildcard."),
	newOption("netboot", "interfaces", "", bootInterfaces, func(c *Config) *[]BootInterface { return &c.Netboot.Interfaces },
		"The network interfaces on which salvor serves DHCP and TFTP; it serves nothing on any other. authoritative leases addresses, proxy answers beside another DHCP server. Example: br-prov:authoritative:10.77.0.50-10.77.0.99"),
	newOption("netboot", "tftp_root", "/usr/lib/ipxe", path, func(c *Config) *string { return &c.Netboot.TFTPRoot },
		"The directory of the iPXE boot loaders."),
	newOption("netboot", "lease", "600", secondsSyntax(60), func(c *Config) *time.Duration { return &c.Netboot.Lease },
		"How long a DHCP lease of an address lasts."),
	newOption("ipmi", "client", "native", oneOf("native", "ipmitool"), func(c *Config) *string { return &c.IPMI.Client },
		"The IPMI client: native is built in; ipmitool runs that program, for BMCs that the built-in client cannot talk to."),
	newOption("ipmi", "cipher", "auto", cipherSuite, func(c *Config) *int { return &c.IPMI.Cipher },
		"The cipher suite, unless driver_info names one. auto: 3, then 17."),
	bridgeOption("provisioning_network", func(c *Config) *string { return &c.Bridge.ProvisioningNetwork }, "while it is deployed"),
	bridgeOption("cleaning_network", func(c *Config) *string { return &c.Bridge.CleaningNetwork }, "while it is cleaned"),
	bridgeOption("inspection_network", func(c *Config) *string { return &c.Bridge.InspectionNetwork }, "while it is inspected"),
	bridgeOption("rescuing_network", func(c *Config) *string { return &c.Bridge.RescuingNetwork }, "until its rescue ramdisk is told the password; its own, apart from provisioning and cleaning"),
	bridgeOption("tenant_network", func(c *Config) *string { return &c.Bridge.TenantNetwork }, "while it is in use, unless a port's extra.vif_port_id says"),
}

func bridgeOption(name string, field func(*Config) *string, when string) Option {
	return newOption("bridge", name, "", nameSyntax, field, "The Linux bridge that a machine is on "+when+".")
}

var storageOptions = []Option{
	markSecret(newOption("database", "connection", "", connection, func(c *Config) *secret.Value { return &c.Database.Connection },
		"The database that stores everything. By default SQLite in the state directory: sqlite:<state_path>/salvor.db")),
	newOption("secrets", "key_file", "", path, func(c *Config) *string { return &c.Secrets.KeyFile },
		"The key that seals secrets in the database, made at the first start. By default secrets.key in the state directory."),
	newOption("secrets", "key_command", "", text, func(c *Config) *string { return &c.Secrets.KeyCommand },
		"A shell command that prints that key, in place of key_file. During a key rotation it prints both keys, a line each. salvor runs it once at each start. Example: systemd-creds cat salvor.key"),
	newOption("secrets", "key_command_timeout", "30", secondsSyntax(1), func(c *Config) *time.Duration { return &c.Secrets.KeyCommandTimeout },
		"How long key_command may take."),
	newOption("hosts", "listen", "", listen, func(c *Config) *string { return &c.Hosts.Listen },
		"A listener with TLS that serves only VM hosts: ADDRESS:PORT. Empty: none."),
	newOption("hosts", "names", "", list, func(c *Config) *[]string { return &c.Hosts.Names },
		"Names and addresses by which VM hosts reach that listener; they go into its certificate. Its own address is always one of them; if it is a wildcard, all addresses of this machine are."),
}

// ignored lists options of Ironic's that a configuration brought from there may hold
// and that mean nothing here, because there is nothing for them to tune.
var ignored = map[string]string{
	"DEFAULT": `transport_url rpc_transport control_exchange log_file log_dir log_config_append log_date_format use_stderr use_syslog use_journal
		syslog_log_facility default_log_levels publish_errors rate_limit_interval instance_format my_ip my_ipv6 pybasedir bindir tempdir
		hash_partition_exponent hash_ring_reset_interval hash_distribution_replicas executor_thread_pool_size rpc_response_timeout
		fatal_exception_format_errors parallel_image_downloads image_download_concurrency force_raw_images raw_image_growth_factor
		isolinux_bin isolinux_config_template grub_config_path grub_config_template esp_image notification_level versioned_notifications_topics
		webserver_verify_ca webserver_connection_timeout minimum_required_memory minimum_memory_wait_time minimum_memory_wait_retries
		minimum_memory_warning_only pin_release_version debug_tracebacks_in_api`,
	"api": `api_workers network_data_schema unix_socket unix_socket_mode`,
	"conductor": `heartbeat_interval heartbeat_timeout periodic_max_workers reserved_workers_pool_percentage sync_local_state_interval configdrive_use_object_store configdrive_swift_container configdrive_swift_temp_url_duration
		inspection_network send_sensor_data send_sensor_data_interval send_sensor_data_workers send_sensor_data_wait_timeout
		send_sensor_data_data_types send_sensor_data_for_undeployed_nodes bootloader clean_step_priority_override verify_step_priority_override
		poweroff_in_cleanfail bios_verify  disable_deep_image_inspection conductor_always_validates_images
		bootloader_by_arch`,
	"deploy": `http_url http_root external_http_url external_callback_url enable_ata_secure_erase enable_nvme_secure_erase shred_random_overwrite_iterations
		shred_final_overwrite_with_zeros continue_if_disk_secure_erase_fails disk_erasure_concurrency power_off_after_deploy_failure default_boot_option
		default_boot_mode configdrive_use_object_store ramdisk_image_download_source fast_track fast_track_timeout iso_cache_path erase_skip_read_only
		iso_master_size iso_cache_time_to_live create_configuration_priority enable_bios_bootloader_install`,
	"inspector": `power_off extra_kernel_params hooks default_hooks enabled_hooks callback_endpoint_override require_managed_boot endpoint_override auth_type
		auth_url auth_section username password project_name user_domain_name project_domain_name region_name service_type service_name
		valid_interfaces cafile certfile keyfile insecure timeout enabled status_check_period disk_partitioning_spacing update_pxe_enabled
		physical_network_cidr_map cleanup_period ipmi_address_fields`,
	"agent": `deploy_logs_collect deploy_logs_storage_backend deploy_logs_local_path deploy_logs_swift_container deploy_logs_swift_days_to_expire
		image_download_source command_wait_attempts command_wait_interval neutron_agent_poll_interval neutron_agent_max_attempts
		neutron_agent_status_retry_interval post_deploy_get_power_state_retries post_deploy_get_power_state_retry_interval
		memory_consumed_by_agent stream_raw_images verify_ca certificates_path api_ca_file allow_md5_checksum`,
	"keystone_authtoken": `auth_section auth_uri identity_uri auth_version delay_auth_decision http_connect_timeout http_request_max_retries
		certfile keyfile region_name interface memcached_servers memcache_secret_key memcache_security_strategy memcache_pool_dead_retry
		memcache_pool_maxsize memcache_pool_socket_timeout memcache_pool_unused_timeout memcache_pool_conn_get_timeout memcache_use_advanced_pool
		memcache_tls_enabled memcache_sasl_enabled include_service_catalog enforce_token_bind service_token_roles service_token_roles_required
		service_type cache user_id default_domain_id default_domain_name`,
	"oslo_policy": `policy_default_rule remote_content_type remote_ssl_verify_server_crt`,
	"neutron": `auth_section user_id project_id tenant_name default_domain_name service_type
		service_name certfile keyfile timeout split_loggers connect_retries status_code_retries collect_timing min_version max_version
		port_setup_delay retries dhcpv6_stateful_address_count add_all_ports fail_on_port_binding_failure system_scope trust_id`,
	"glance": `auth_section user_id project_id tenant_name default_domain_name default_domain_id service_type service_name certfile keyfile split_loggers
		connect_retries connect_retry_delay status_code_retries status_code_retry_delay collect_timing min_version max_version system_scope trust_id
		num_retries allowed_direct_url_schemes swift_account swift_account_project_name swift_api_version swift_container swift_endpoint_url
		swift_store_multiple_containers_seed swift_temp_url_cache_enabled swift_temp_url_duration swift_temp_url_expected_download_start_delay
		swift_temp_url_key`,
	"nova": `auth_section user_id project_id tenant_name default_domain_name service_type
		service_name certfile keyfile split_loggers connect_retries status_code_retries collect_timing min_version max_version system_scope trust_id`,
	"service_catalog": `auth_type auth_url auth_section username password project_name user_domain_name project_domain_name user_domain_id
		project_domain_id region_name service_type service_name valid_interfaces cafile certfile keyfile insecure timeout`,
	"database": `max_retries retry_interval max_overflow pool_timeout connection_recycle_time mysql_engine mysql_sql_mode
		mysql_enable_ndb sqlite_synchronous sqlite_retries sqlite_max_wait_for_retry db_max_retries db_retry_interval slave_connection backend`,
	"ipmi": `command_retry_timeout min_command_interval use_ipmitool_retries kill_on_timeout disable_boot_timeout additional_retryable_ipmi_errors
		debug store_cred_in_env cipher_suite_versions`,
}
