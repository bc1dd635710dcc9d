package examine

import (
	"slices"
	"testing"

	"salvor/diagnose"
)

// TestPlacesStayWhileMending: a rule that asks what a file system holds gets the same answer while another one is mended.
func TestPlacesStayWhileMending(t *testing.T) {
	named := func(path string, places ...string) *device {
		return &device{Device: diagnose.Device{Path: path, Places: places}}
	}
	var none *OverlaySession
	none.notePlaces(named("/dev/sda1", "/boot")) // an examination without a session
	s := &OverlaySession{}
	for _, d := range []*device{named("/dev/sda1", "/boot"), named("/dev/sdb1")} {
		s.notePlaces(d)
	}
	mended := []*device{named("/dev/sda1"), named("/dev/sdb1")}
	s.recallPlaces(mended)
	if !slices.Equal(mended[0].Places, []string{"/boot"}) || len(mended[1].Places) > 0 {
		t.Errorf("want the places /boot of /dev/sda1 and none of /dev/sdb1, got %q and %q", mended[0].Places, mended[1].Places)
	}
}
