package service

import (
	"path"
	"strings"
	"testing"

	"salvor/compute"
	"salvor/rescue"
)

// FuzzLocation: whatever is asked for, what is taken is below the directory and stays what it is when it is checked again.
func FuzzLocation(f *testing.F) {
	for _, seed := range []string{"a.iso", "../x", "/etc/passwd", "a/../..", "a//b", ".", "", "http://h/x", "HTTP://h", `a\b`, "a/.../b", "..a/b", "\x00"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, location string) {
		img := rescue.Image{Name: "n", Source: rescue.Source{Location: location}}
		if checkRescueImage(&img) != nil {
			return
		}
		taken := img.Source.Location
		if err := checkRescueImage(&img); err != nil || img.Source.Location != taken {
			t.Errorf("%q becomes %q, then %q: %v", location, taken, img.Source.Location, err)
		}
		if img.Source.LocationType != rescue.LocationFile {
			return
		}
		at, err := compute.ResolvePath("/srv/rescue", taken)
		if err != nil || !strings.HasPrefix(at, "/srv/rescue/") || path.Clean(at) != at {
			t.Errorf("%q lies at %q: %v", location, at, err)
		}
	})
}
