package volume

// rules are the names that Cinder's policy has for our routes; a policy file may deny them.
var rules = map[string]string{
	"GET /volumes": "volume:get_all", "GET /volumes/detail": "volume:get_all", "GET /volumes/summary": "volume:get_all", "GET /volumes/{volume}": "volume:get",
	"POST /volumes": "volume:create", "PUT /volumes/{volume}": "volume:update", "DELETE /volumes/{volume}": "volume:delete",
	"GET /volumes/{volume}/metadata": "volume:get_volume_metadata", "GET /volumes/{volume}/metadata/{key}": "volume:get_volume_metadata",
	"POST /volumes/{volume}/metadata": "volume:create_volume_metadata", "PUT /volumes/{volume}/metadata": "volume:update_volume_metadata",
	"PUT /volumes/{volume}/metadata/{key}": "volume:update_volume_metadata", "DELETE /volumes/{volume}/metadata/{key}": "volume:delete_volume_metadata",
	"GET /types": "volume_extension:type_get_all", "GET /types/{type}": "volume_extension:type_get", "GET /limits": "limits_extension:used_limits",
	"GET /os-quota-sets/{owner}": "volume_extension:quotas:show", "GET /os-quota-sets/{owner}/defaults": "volume_extension:quotas:show",
	"GET /os-availability-zone": "volume:availability_zone_list", "GET /os-services": "volume_extension:services:index",
	"GET /snapshots": "volume:get_all_snapshots", "GET /snapshots/detail": "volume:get_all_snapshots", "GET /backups": "backup:get_all", "GET /backups/detail": "backup:get_all",
}

// actionRules are those of the actions of a volume, by their name in the body.
var actionRules = map[string]string{
	"os-extend": "volume:extend", "os-reset_status": "volume_extension:volume_admin_actions:reset_status", "os-force_delete": "volume_extension:volume_admin_actions:force_delete",
	"os-unmanage": "volume_extension:volume_unmanage", "os-set_bootable": "volume:update",
	"os-set_image_metadata": "volume_extension:volume_image_metadata:set", "os-unset_image_metadata": "volume_extension:volume_image_metadata:remove",
}

// HasRule tells whether requests of this API are held to a rule of Cinder's policy.
func HasRule(name string) bool {
	for _, all := range []map[string]string{rules, actionRules} {
		for _, rule := range all {
			if rule == name {
				return true
			}
		}
	}
	return false
}
