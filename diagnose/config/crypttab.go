package config

import (
	"slices"
	"strings"

	"salvor/diagnose"
)

const CrypttabPath = "/etc/crypttab"

// CryptLine is one entry of crypttab(5).
type CryptLine struct {
	Name, Source, Key string
	Options           []string
	Line              int // from 1
	Text              string
}

// ParseCrypttab returns the entries, MaxTableLines at most.
func ParseCrypttab(lines []string) []CryptLine {
	var out []CryptLine
	for i, text := range lines {
		fields := strings.Fields(text)
		if len(fields) < 2 || fields[0][0] == '#' {
			continue
		}
		if len(out) >= MaxTableLines {
			break
		}
		c := CryptLine{Name: fields[0], Source: fields[1], Line: i + 1, Text: text}
		if len(fields) > 2 {
			c.Key = fields[2]
		}
		if len(fields) > 3 {
			c.Options = strings.Split(fields[3], ",")
		}
		out = append(out, c)
	}
	return out
}

func (c *CryptLine) Has(options ...string) bool {
	return slices.ContainsFunc(c.Options, func(o string) bool {
		name, _, _ := strings.Cut(o, "=")
		return slices.Contains(options, name)
	})
}

// FindSource returns the devices of the container.
func FindSource(s *diagnose.System, c CryptLine) []*diagnose.Device {
	name := ParseDeviceName(c.Source)
	if name.Tag != "path" {
		return FindDevices(s, name)
	}
	var out []*diagnose.Device // not by devicePaths, which asks here
	for i := range s.Devices {
		if s.Devices[i].Path == name.Value {
			out = append(out, &s.Devices[i])
		}
	}
	for _, g := range s.Groups {
		for _, v := range g.Volumes {
			if name.Value == "/dev/"+g.Name+"/"+v.Name || name.Value == "/dev/mapper/"+diagnose.MapperName(g.Name, v.Name) {
				if d := DeviceAt(s, v.Path); d != nil && !slices.Contains(out, d) {
					out = append(out, d)
				}
			}
		}
	}
	return out
}
