package native

import (
	"testing"

	wire "salvor/wire/native"
)

// TestSiteSources: machines of a site fetch URLs themselves; files and images of Glance come from the centre, which alone reaches Glance.
func TestSiteSources(t *testing.T) {
	s := &siteServer{SiteConfig: SiteConfig{Version: func(ref string) string { return "version of " + ref }}}
	const image = "glance://0a1b2c3d-4e5f-4a6b-8c7d-9e0f1a2b3c4d"
	for ref, want := range map[string]wire.SiteFile{
		"": {}, "http://images/a": {URL: "http://images/a"}, "/srv/kernel": {Version: "version of /srv/kernel"}, image: {Version: "version of " + image},
	} {
		if got := s.source(ref); got != want {
			t.Errorf("%q: %+v, want %+v", ref, got, want)
		}
	}
}
