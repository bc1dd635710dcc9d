package redfish

import (
	"cmp"
	"net/url"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"salvor/driver"
	"salvor/metal"
	"salvor/problem"
)

func newBIOSSetting(name string, v any, a biosAttribute) metal.BIOSSetting {
	out := metal.BIOSSetting{
		Name: name, AttributeType: a.Type, LowerBound: toWholeNumber(a.LowerBound), UpperBound: toWholeNumber(a.UpperBound),
		MinLength: toWholeNumber(a.MinLength), MaxLength: toWholeNumber(a.MaxLength), ReadOnly: a.ReadOnly, ResetRequired: a.ResetRequired, Unique: a.IsUnique,
	}
	for _, one := range a.Value {
		out.AllowableValues = append(out.AllowableValues, one.ValueName)
	}
	if v != nil && a.Type != "Password" && !isPasswordHash(name, metal.Text(v)) {
		text := metal.Text(v)
		out.Value = &text
	}
	return out
}

// hexDigits is a hash or a salt as BMCs show it.
var hexDigits = regexp.MustCompile(`^[0-9A-Fa-f]{16,}$`)

// isPasswordHash tells a setting that holds the hash of a password or its salt, such as SHA256SetupPassword of Dell: whoever knows it can
// guess the password.
func isPasswordHash(name, value string) bool {
	return strings.Contains(strings.ToLower(name), "password") && hexDigits.MatchString(value)
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
	if _, err := s.get(at, &file); err != nil {
		return nil
	}
	for _, at := range file.Location {
		var doc struct {
			RegistryEntries struct{ Attributes []biosAttribute }
		}
		if _, err := s.get(at.URI, &doc); err != nil {
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
	all, err := s.members(registriesPath, maxRegistries)
	if err != nil && name != "" {
		return registriesPath + "/" + url.PathEscape(name)
	}
	stem, _, _ := strings.Cut(cmp.Or(name, "BiosAttributeRegistry"), ".")
	file, best := "", 0
	for _, member := range all {
		id := path.Base(member.Path)
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
