package secret

import "strings"

// markers are the parts of a key's name by which Ironic and its clients know a
// secret; the same rule seals keys of driver_info one by one and masks them in answers.
var markers = []string{
	"password", "passwd", "secret", "token", "private_key", "passphrase",
	"auth_key", "priv_key", "access_key", "admin_pass", "snmp_community", "api_key", "psk",
}

// IsKey reports whether the value under this key of driver_info, instance_info,
// properties or driver_internal_info is a secret. Upper and lower case are alike.
func IsKey(key string) bool {
	key = strings.ToLower(key)
	if key == "configdrive" || key == "image_url" {
		return false
	}
	for _, m := range markers {
		if strings.Contains(key, m) {
			return true
		}
	}
	return false
}

// Masked copies a decoded JSON value with every secret key's value replaced by
// Mask, at any depth.
func Masked(v any) any {
	switch v := v.(type) {
	case map[string]any:
		out := make(map[string]any, len(v))
		for k, e := range v {
			if IsKey(k) && e != nil && !harmless(k) {
				out[k] = Mask
				continue
			}
			out[k] = Masked(e)
		}
		return out
	case []any:
		out := make([]any, len(v))
		for i, e := range v {
			out[i] = Masked(e)
		}
		return out
	}
	return v
}

// harmless keys bear a marker but hold no secret; clients read them.
func harmless(key string) bool {
	return strings.EqualFold(key, "agent_secret_token_pregenerated")
}
