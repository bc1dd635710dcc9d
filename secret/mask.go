package secret

import (
	"encoding/base64"
	"regexp"
	"slices"
	"strings"
)

// markers are the parts of a key's name by which Ironic and its clients know a
// secret; the same rule seals keys of driver_info one by one and masks them in answers.
var markers = []string{
	"password", "passwd", "secret", "token", "private_key", "passphrase",
	"auth_key", "priv_key", "access_key", "admin_pass", "snmp_community", "api_key", "psk", "kg_key",
}

// IsKey reports whether the value under this key of driver_info, instance_info,
// properties or driver_internal_info is a secret. Upper and lower case are alike. A misspelt word for a secret, as in ipmi_passwrd, counts.
func IsKey(key string) bool {
	if len(key) > maxMisspelt {
		return isMarked(strings.ToLower(key))
	}
	return rememberKey(key, func(key string) bool {
		key = strings.ToLower(key)
		return isMarked(key) || key != "configdrive" && key != "image_url" && isMisspelt(key)
	})
}

// isMarked tells whether a key in lower case has a word for a secret.
func isMarked(key string) bool {
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

// standardBase64 rewrites the digits of base64 for URLs.
var standardBase64 = strings.NewReplacer("-", "+", "_", "/")

// encoded is a word that may be base64, as in a header of HTTP with user and password.
var encoded = regexp.MustCompile(`[A-Za-z0-9+/_-]{8,}={0,2}`)

// Hide masks secrets in a text of somebody who was sent them: as they are, and inside of base64.
func Hide(text string, secrets ...Value) string {
	secrets = slices.DeleteFunc(slices.Clone(secrets), Value.Empty)
	if len(secrets) == 0 {
		return text
	}
	for _, s := range secrets {
		text = strings.ReplaceAll(text, s.Reveal(), Mask)
	}
	return encoded.ReplaceAllStringFunc(text, func(word string) string {
		plain := standardBase64.Replace(strings.TrimRight(word, "="))
		b, err := base64.RawStdEncoding.DecodeString(plain)
		if err != nil {
			return word
		}
		for _, s := range secrets {
			if strings.Contains(string(b), s.Reveal()) {
				return Mask
			}
		}
		return word
	})
}

// InURL masks the password of a text that is a URL with one; other texts stay as they are.
func InURL(text string) string {
	at := strings.Index(text, "://")
	if at < 0 {
		return text
	}
	rest := text[at+3:]
	end := strings.IndexAny(rest, "/?#")
	if end < 0 {
		end = len(rest)
	}
	user := strings.LastIndexByte(rest[:end], '@')
	if user < 0 {
		return text
	}
	name, _, ok := strings.Cut(rest[:user], ":")
	if !ok {
		return text
	}
	return text[:at+3] + name + ":" + Mask + rest[user:]
}

// Masked copies a decoded JSON value with every secret key's value replaced by
// Mask, and the password in every URL, at any depth.
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
	case string:
		return InURL(v)
	}
	return v
}

// harmless keys bear a marker but hold no secret; clients read them.
func harmless(key string) bool {
	return strings.EqualFold(key, "agent_secret_token_pregenerated")
}
