package metal

import (
	"net"
	"testing"
)

func TestParseMAC(t *testing.T) {
	for in, want := range map[string]string{
		"52:54:00:AB:cd:01": "52:54:00:ab:cd:01", " 52-54-00-ab-cd-01 ": "52:54:00:ab:cd:01", "5254.00ab.cd01": "52:54:00:ab:cd:01",
		"": "", "52:54:00:ab:cd": "", "52:54:00:ab:cd:01:02:03": "", "52:54:00:ab:cd:0g": "", "5:54:00:ab:cd:01": "", "525400abcd01": "52:54:00:ab:cd:01", "52:54-00:ab:cd:01": "",
	} {
		got, err := ParseMAC(in)
		if got != want || (err == nil) != (want != "") {
			t.Errorf("ParseMAC(%q) = %q, %v; want %q", in, got, err, want)
		}
	}
}

// FuzzParseMAC compares with the standard library's reading of 48 bit addresses.
func FuzzParseMAC(f *testing.F) {
	f.Add("52:54:00:ab:cd:01")
	f.Add("5254.00ab.cd01")
	f.Fuzz(func(t *testing.T, s string) {
		if len(s) == 0 || s[0] <= ' ' || s[len(s)-1] <= ' ' || s[0] >= 0x80 || s[len(s)-1] >= 0x80 {
			return // trimmed here, refused there
		}
		got, err := ParseMAC(s)
		want, wantErr := net.ParseMAC(s)
		if wantErr == nil && len(want) == 6 {
			if got != want.String() {
				t.Errorf("ParseMAC(%q) = %q, %v; want %q", s, got, err, want)
			}
		} else if err == nil {
			t.Errorf("ParseMAC(%q) = %q, which the standard library refuses", s, got)
		}
	})
}
