package nova

import (
	"strings"

	"salvor/access"
	"salvor/problem"
)

// routeRules are the names that Nova's policy has for our routes. What they allow by default is the need of the route; a policy file
// says otherwise. Routes that Nova holds to no rule are not here.
var routeRules = map[string]string{
	"GET /servers": "servers:index", "POST /servers": "servers:create", "GET /servers/detail": "servers:detail", "GET /servers/{server}": "servers:show",
	"PUT /servers/{server}": "servers:update", "DELETE /servers/{server}": "servers:delete",
	"GET /servers/{server}/metadata": "server-metadata:index", "POST /servers/{server}/metadata": "server-metadata:create",
	"PUT /servers/{server}/metadata": "server-metadata:update_all", "GET /servers/{server}/metadata/{key}": "server-metadata:show",
	"PUT /servers/{server}/metadata/{key}": "server-metadata:update", "DELETE /servers/{server}/metadata/{key}": "server-metadata:delete",
	"GET /servers/{server}/tags": "os-server-tags:index", "PUT /servers/{server}/tags": "os-server-tags:update_all", "DELETE /servers/{server}/tags": "os-server-tags:delete_all",
	"GET /servers/{server}/tags/{tag}": "os-server-tags:show", "PUT /servers/{server}/tags/{tag}": "os-server-tags:update", "DELETE /servers/{server}/tags/{tag}": "os-server-tags:delete",
	"GET /servers/{server}/ips": "ips:index", "GET /servers/{server}/ips/{network}": "ips:show",
	"GET /servers/{server}/os-interface": "os-attach-interfaces:list", "GET /servers/{server}/os-interface/{port}": "os-attach-interfaces:show",
	"GET /servers/{server}/os-security-groups": "os-security-groups:list", "GET /servers/{server}/diagnostics": "os-server-diagnostics",
	"GET /servers/{server}/os-instance-actions": "os-instance-actions:list", "GET /servers/{server}/os-instance-actions/{request}": "os-instance-actions:show",
	"GET /servers/{server}/os-volume_attachments": "os-volumes-attachments:index", "POST /servers/{server}/os-volume_attachments": "os-volumes-attachments:create",
	"GET /servers/{server}/os-volume_attachments/{volume}": "os-volumes-attachments:show", "PUT /servers/{server}/os-volume_attachments/{volume}": "os-volumes-attachments:update",
	"DELETE /servers/{server}/os-volume_attachments/{volume}": "os-volumes-attachments:delete",
	"GET /servers/{server}/migrations":                        "servers:migrations:index", "GET /servers/{server}/migrations/{migration}": "servers:migrations:show",
	"GET /os-migrations": "os-migrations:index",
	"GET /os-keypairs":   "os-keypairs:index", "POST /os-keypairs": "os-keypairs:create", "GET /os-keypairs/{keypair}": "os-keypairs:show", "DELETE /os-keypairs/{keypair}": "os-keypairs:delete",
	"POST /flavors": "os-flavor-manage:create", "PUT /flavors/{flavor}": "os-flavor-manage:update", "DELETE /flavors/{flavor}": "os-flavor-manage:delete",
	"GET /flavors/{flavor}/os-flavor-access": "os-flavor-access", "GET /flavors/{flavor}/os-extra_specs": "os-flavor-extra-specs:index",
	"POST /flavors/{flavor}/os-extra_specs": "os-flavor-extra-specs:create", "GET /flavors/{flavor}/os-extra_specs/{key}": "os-flavor-extra-specs:show",
	"PUT /flavors/{flavor}/os-extra_specs/{key}": "os-flavor-extra-specs:update", "DELETE /flavors/{flavor}/os-extra_specs/{key}": "os-flavor-extra-specs:delete",
	"GET /os-networks": "os-networks:list", "GET /os-networks/{network}": "os-networks:show",
	"GET /os-tenant-networks": "os-tenant-networks:list", "GET /os-tenant-networks/{network}": "os-tenant-networks:show",
	"GET /extensions": "extensions", "GET /extensions/{alias}": "extensions", "GET /limits": "limits",
	"GET /os-quota-sets/{project}": "os-quota-sets:show", "GET /os-quota-sets/{project}/defaults": "os-quota-sets:defaults", "GET /os-quota-sets/{project}/detail": "os-quota-sets:detail",
	"GET /os-aggregates": "os-aggregates:index", "GET /os-server-groups": "os-server-groups:index", "GET /os-security-groups": "os-security-groups:get", "GET /os-floating-ips": "os-floating-ips:list",
	"GET /os-simple-tenant-usage": "os-simple-tenant-usage:list", "GET /os-simple-tenant-usage/{project}": "os-simple-tenant-usage:show",
	"GET /os-services": "os-services:list", "PUT /os-services/{service}": "os-services:update", "DELETE /os-services/{service}": "os-services:delete",
	"GET /os-hypervisors": "os-hypervisors:list", "GET /os-hypervisors/detail": "os-hypervisors:list-detail", "GET /os-hypervisors/statistics": "os-hypervisors:statistics",
	"GET /os-hypervisors/{hypervisor}": "os-hypervisors:show", "GET /os-hypervisors/{hypervisor}/uptime": "os-hypervisors:uptime",
	"GET /os-hypervisors/{hypervisor}/search": "os-hypervisors:search", "GET /os-hypervisors/{hypervisor}/servers": "os-hypervisors:servers",
	"GET /os-availability-zone": "os-availability-zone:list", "GET /os-availability-zone/detail": "os-availability-zone:detail",
}

// actionRules are those of the actions of a server, by their name in the body.
var actionRules = map[string]string{
	"os-start": "servers:start", "os-stop": "servers:stop", "reboot": "servers:reboot", "rebuild": "servers:rebuild",
	"pause": "os-pause-server:pause", "unpause": "os-pause-server:unpause", "suspend": "os-suspend-server:suspend", "resume": "os-suspend-server:resume",
	"lock": "os-lock-server:lock", "unlock": "os-lock-server:unlock", "rescue": "os-rescue", "unrescue": "os-unrescue", "forceDelete": "os-deferred-delete:force",
	"evacuate": "os-evacuate", "migrate": "os-migrate-server:migrate", "os-migrateLive": "os-migrate-server:migrate_live",
	"os-resetState": "os-admin-actions:reset_state", "os-getConsoleOutput": "os-console-output",
}

// HasRule tells whether requests of this API are held to a rule of Nova's policy.
func HasRule(name string) bool {
	short, ok := strings.CutPrefix(name, access.ComputeRules)
	if !ok {
		return false
	}
	for _, all := range []map[string]string{routeRules, actionRules} {
		for _, rule := range all {
			if rule == short {
				return true
			}
		}
	}
	return false
}

// permitted holds a request to the policy file's rule, if it has one, or else to its need. The rule's target is the asker's own
// project: what belongs to another is not there for whoever is no administrator.
func (c *novaCall) permitted(rule string, byDefault bool, doing string) error {
	if allowed, decided := c.s.Policy.Overruled(access.ComputeRules+rule, c.Principal, access.Target{Owner: c.requester.Project}); decided {
		byDefault = allowed
	}
	if !byDefault {
		return problem.Forbiddenf(policyForbidden, doing)
	}
	return nil
}
