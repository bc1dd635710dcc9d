package image

// rules are the names that Glance's policy has for our routes; a policy file may deny them.
var rules = map[string]string{
	"GET /images": "get_images", "POST /images": "add_image", "GET /images/{image}": "get_image", "PATCH /images/{image}": "modify_image", "DELETE /images/{image}": "delete_image",
	"PUT /images/{image}/file": "upload_image", "GET /images/{image}/file": "download_image", "POST /images/{image}/import": "modify_image",
	"PUT /images/{image}/tags/{tag}": "modify_image", "DELETE /images/{image}/tags/{tag}": "modify_image",
	"POST /images/{image}/actions/deactivate": "deactivate", "POST /images/{image}/actions/reactivate": "reactivate",
	"GET /images/{image}/members": "get_members", "POST /images/{image}/members": "add_member",
}

// HasRule tells whether requests of this API are held to a rule of Glance's policy.
func HasRule(name string) bool {
	for _, rule := range rules {
		if rule == name {
			return true
		}
	}
	return false
}
