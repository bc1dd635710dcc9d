package redfish

import (
	"cmp"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"salvor/driver"
	"salvor/driver/redfish/link"
	"salvor/metal"
	"salvor/problem"
)

func newBIOSSetting(name string, v any, a biosAttribute) metal.BIOSSetting {
	out := metal.BIOSSetting{
		Name: name, AttributeType: a.Type, LowerBound: toWholeNumber(a.LowerBound), UpperBound: toWholeNumber(a.UpperBound),
		MinLength: toWholeNumber(a.MinLength), MaxLength: toWholeNumber(a.MaxLength), ReadOnly: a.ReadOnly, ResetRequired: a.ResetRequired, Unique: a.IsUnique,
	}
	for _, one := range a.Value {
		if value := cmp.Or(one.ValueName, one.ValueDisplayName); value != "" {
			out.AllowableValues = append(out.AllowableValues, value)
		}
	}
	if v != nil && !strings.EqualFold(a.Type, "Password") && !mayBePassword(name, v) {
		text := metal.Text(v)
		out.Value = &text
	}
	return out
}

// secretWords are parts of the names of settings that may hold a secret.
var secretWords = []string{"password", "passwd", "passphrase", "pwd", "secret", "credential"}

// plainStates are values of such settings that say whether there is a secret, and are none.
var plainStates = regexp.MustCompile(`(?i)^(|true|false|yes|no|on|off|none|n/?a|(en|dis)abled?|(not ?)?(set|installed|present|configured|required|supported|available)|locked|unlocked|user|admin|setup|always|never|[0-9]{1,3})$`)

// mayBePassword tells by its name and its value a setting that may hold a password, its hash or its salt: a registry that says what holds a
// password is missing on some BMCs, and wrong on others.
func mayBePassword(name string, v any) bool {
	switch v.(type) {
	case bool, float64:
		return false
	}
	name = strings.ToLower(name)
	hasWord := slices.ContainsFunc(secretWords, func(word string) bool { return strings.Contains(name, word) })
	return hasWord && !plainStates.MatchString(strings.TrimSpace(metal.Text(v)))
}

func toWholeNumber(f *float64) *int64 {
	if f == nil || *f != float64(int64(*f)) {
		return nil
	}
	i := int64(*f)
	return &i
}

const (
	registriesPath = "/redfish/v1/Registries"
	maxRegistries  = 200
)

// registry reads what the named registry says of attributes; nil where it cannot be found: the settings are of use without it.
func (s *bmcSession) registry(name string) map[string]biosAttribute {
	at := s.registryFile(name)
	if at == "" {
		return nil
	}
	var file struct {
		Location []struct{ URI string }
	}
	if _, err := s.bmc.Get(at, &file); err != nil {
		return nil
	}
	for _, at := range file.Location {
		var doc struct {
			RegistryEntries struct{ Attributes []biosAttribute }
		}
		if _, err := s.bmc.Get(at.URI, &doc); err != nil {
			continue
		}
		out := map[string]biosAttribute{}
		for _, a := range doc.RegistryEntries.Attributes {
			out[a.AttributeName] = a
		}
		return out
	}
	return nil
}

// registryFile is the path of the file that tells where a registry lies. BMCs name it with its version, without, or with another one. Where
// the BIOS names none, the only registry of BIOS attributes is meant. Empty: there is none.
func (s *bmcSession) registryFile(name string) string {
	all, err := s.bmc.Members(registriesPath, maxRegistries)
	if err != nil && name != "" {
		return registriesPath + "/" + url.PathEscape(name)
	}
	stem, _, _ := strings.Cut(cmp.Or(name, "BiosAttributeRegistry"), ".")
	file, best := "", 0
	for _, member := range all {
		id := link.ID(member.Path)
		of, _, _ := strings.Cut(id, ".")
		if common := commonPrefix(id, name); (of == stem || name == "" && strings.HasPrefix(of, "BiosAttribute")) && (file == "" || common > best) {
			file, best = member.Path, common
		}
	}
	if file == "" && name != "" {
		return registriesPath + "/" + url.PathEscape(name)
	}
	return file
}

// commonPrefix is how many bytes two texts have in common at their begin.
func commonPrefix(a, b string) int {
	i := 0
	for i < min(len(a), len(b)) && a[i] == b[i] {
		i++
	}
	return i
}

// fit brings wanted values into the types that the settings have; unknown ones are refused.
func (d *biosDoc) fit(wanted map[string]any) error {
	var unknown []string
	for name, v := range wanted {
		is, ok := d.Attributes[name]
		if !ok {
			unknown = append(unknown, driver.Sanitize(name))
			continue
		}
		text := metal.Text(v)
		switch is.(type) {
		case float64:
			if f, err := strconv.ParseFloat(text, 64); err == nil {
				wanted[name] = f
			}
		case bool:
			if on, err := strconv.ParseBool(text); err == nil {
				wanted[name] = on
			}
		case string:
			wanted[name] = text
		}
	}
	if len(unknown) > 0 {
		slices.Sort(unknown)
		return problem.Invalidf("the firmware has no settings %s", strings.Join(unknown[:min(len(unknown), 10)], ", "))
	}
	return nil
}

func (d *biosDoc) hold(wanted map[string]any) bool {
	for name, v := range wanted {
		if is, ok := d.Attributes[name]; !ok || metal.Text(is) != metal.Text(v) {
			return false
		}
	}
	return true
}
