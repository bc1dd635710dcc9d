"""Asks the Compute API by tempest's own clients, which hold each answer to tempest's schema of its microversion.
Arguments: the API's URL, an image, a volume, and the microversions to speak."""
import json
import sys
import time

from tempest.lib import exceptions
from tempest.lib.services import compute
from tempest.lib.services.compute import base_compute_client

url, image, volume = sys.argv[1:4]
failures = 0


class Open:
    """An auth provider where nobody is asked."""

    def auth_request(self, method, url_, headers=None, body=None, filters=None):
        return url + "/" + url_, headers, body

    def base_url(self, filters, auth_data=None):
        return url

    def clear_auth(self):
        pass


def client(cls):
    return cls(Open(), "compute", "RegionOne")


def hold(version, what, ask, /, *args, **kwargs):
    global failures
    try:
        return ask(*args, **kwargs)
    except Exception as wrong:
        failures += 1
        print("at %s: %s: %s" % (version, what, str(wrong)[:1500]))


def patiently(ask):
    """Asks again while the answer is that something else goes on."""
    def again(*args, **kwargs):
        for left in range(200, -1, -1):
            try:
                return ask(*args, **kwargs)
            except exceptions.Conflict:
                if not left:
                    raise
                time.sleep(0.05)
    return again


def until(servers, ident, status):
    for _ in range(200):
        got = servers.show_server(ident)["server"]["status"]
        if got == status:
            return
        time.sleep(0.05)
    raise RuntimeError("server is %s, not %s" % (got, status))


def walk(version):
    base_compute_client.COMPUTE_MICROVERSION = version
    minor = int(version.split(".")[1])

    def held(what, ask, /, *args, **kwargs):
        return hold(version, what, ask, *args, **kwargs)

    servers, keys = client(compute.ServersClient), client(compute.KeyPairsClient)
    wish = {"name": "walk", "flavorRef": "1", "imageRef": image, "adminPass": "open-sesame", "metadata": {"a": "b"}, "security_groups": [{"name": "default"}]}
    if minor >= 37:
        wish["networks"] = "none"
    held("create key", keys.create_keypair, name="key" + version)
    held("show key", keys.show_keypair, "key" + version)
    held("list keys", keys.list_keypairs)
    held("delete key", keys.delete_keypair, "key" + version)
    made = held("create", servers.create_server, **wish)
    ident = made["server"]["id"]
    held("building", until, servers, ident, "ACTIVE")
    held("show", servers.show_server, ident)
    held("list", servers.list_servers, limit=1)
    held("detail", servers.list_servers, detail=True)
    held("update", servers.update_server, ident, name="other")
    held("metadata", servers.list_server_metadata, ident)
    held("set metadata", servers.set_server_metadata, ident, {"c": "d"})
    held("set item", servers.set_server_metadata_item, ident, "c", {"c": "e"})
    held("show item", servers.show_server_metadata_item, ident, "c")
    held("delete item", servers.delete_server_metadata_item, ident, "c")
    held("addresses", servers.list_addresses, ident)
    held("groups", servers.list_security_groups_by_server, ident)
    if minor < 58:  # tempest holds later ones to the schema of the first
        held("actions", servers.list_instance_actions, ident)
    action = json.loads(servers.get("servers/%s/os-instance-actions" % ident)[1])["instanceActions"][0]
    held("action", servers.show_instance_action, ident, action["request_id"])
    held("attach", patiently(servers.attach_volume), ident, volumeId=volume)
    held("attachments", servers.list_volume_attachments, ident)
    held("attachment", servers.show_volume_attachment, ident, volume)
    if minor >= 26:
        held("tag", servers.update_tag, ident, "one")
        held("tags", servers.list_tags, ident)
        held("has tag", servers.check_tag_existence, ident, "one")
        held("all tags", servers.update_all_tags, ident, ["two"])
        held("no tag", servers.delete_tag, ident, "two")
        held("no tags", servers.delete_all_tags, ident)
    held("lock", servers.lock_server, ident)
    held("unlock", servers.unlock_server, ident)
    held("rescue", patiently(servers.rescue_server), ident, adminPass="open-sesame")
    held("rescuing", until, servers, ident, "RESCUE")
    held("show in rescue", servers.show_server, ident)
    held("unrescue", servers.unrescue_server, ident)
    held("unrescuing", until, servers, ident, "ACTIVE")
    held("rebuild", servers.rebuild_server, ident, image, name="third")
    held("rebuilding", until, servers, ident, "ACTIVE")
    held("stop", servers.stop_server, ident)
    held("stopping", until, servers, ident, "SHUTOFF")
    held("interfaces", client(compute.InterfacesClient).list_interfaces, ident)
    held("reset", servers.reset_state, ident, state="error")
    held("show error", servers.show_server, ident)
    beside(version, minor, held)
    held("delete", servers.delete_server, ident)


def beside(version, minor, held):
    flavors = client(compute.FlavorsClient)
    held("create flavor", flavors.create_flavor, name="f" + version, ram=1, vcpus=1, disk=1, id="f" + version)
    held("list flavors", flavors.list_flavors)
    held("detail flavors", flavors.list_flavors, detail=True)
    held("show flavor", flavors.show_flavor, "f" + version)
    held("specs", flavors.set_flavor_extra_spec, "f" + version, a="b")
    held("list specs", flavors.list_flavor_extra_specs, "f" + version)
    held("show spec", flavors.show_flavor_extra_spec, "f" + version, "a")
    held("delete flavor", flavors.delete_flavor, "f" + version)
    services = client(compute.ServicesClient)
    rows = held("services", services.list_services)["services"]
    if minor >= 53:
        held("disable", services.update_service, rows[0]["id"], status="disabled", disabled_reason="why")
        held("enable", services.update_service, rows[0]["id"], status="enabled")
    else:
        held("disable", services.disable_log_reason, host="rack1", binary="nova-compute", disabled_reason="why")
        held("enable", services.enable_service, host="rack1", binary="nova-compute")
        if minor >= 11:
            held("force down", services.update_forced_down, host="rack1", binary="nova-compute", forced_down=False)
    hypervisors = client(compute.HypervisorClient)
    if minor < 88:  # tempest knows no later form
        held("hypervisors", hypervisors.list_hypervisors)
        held("hypervisor details", hypervisors.list_hypervisors, detail=True)
        held("hypervisor", hypervisors.show_hypervisor, rows[0]["id"])
        held("statistics", hypervisors.show_hypervisor_statistics)
        held("uptime", hypervisors.show_hypervisor_uptime, rows[0]["id"])
    if minor < 53:
        held("search", hypervisors.search_hypervisor, "rack")
        held("servers on it", hypervisors.list_servers_on_hypervisor, "rack1")
    if minor < 36:
        held("tenant networks", client(compute.TenantNetworksClient).list_tenant_networks)
    zones = client(compute.AvailabilityZoneClient)
    held("zones", zones.list_availability_zones)
    held("zone details", zones.list_availability_zones, detail=True)
    held("limits", client(compute.LimitsClient).show_limits)
    held("quotas", client(compute.QuotasClient).show_quota_set, "p")
    held("default quotas", client(compute.QuotasClient).show_default_quota_set, "p")
    held("extensions", client(compute.ExtensionsClient).list_extensions)
    held("aggregates", client(compute.AggregatesClient).list_aggregates)
    held("migrations", client(compute.MigrationsClient).list_migrations)
    held("server groups", client(compute.ServerGroupsClient).list_server_groups)
    held("usage", client(compute.TenantUsagesClient).list_tenant_usages, detailed="1")


for version in sys.argv[4:]:
    walk(version)
sys.exit(min(failures, 100))
