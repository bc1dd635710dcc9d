package diagnose

import (
	"strconv"
	"strings"
)

// MapperName is the name that device-mapper has for a volume of a group: dashes within a name are doubled.
func MapperName(group, volume string) string {
	return strings.ReplaceAll(group, "-", "--") + "-" + strings.ReplaceAll(volume, "-", "--")
}

// UnescapeOctal decodes the \040 of fstab and mountinfo.
func UnescapeOctal(text string) string {
	var out strings.Builder
	for i := 0; i < len(text); i++ {
		if text[i] == '\\' && i+3 < len(text) {
			if v, err := strconv.ParseUint(text[i+1:i+4], 8, 8); err == nil {
				out.WriteByte(byte(v))
				i += 3
				continue
			}
		}
		out.WriteByte(text[i])
	}
	return out.String()
}
