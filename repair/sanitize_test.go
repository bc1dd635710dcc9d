package repair

import (
	"strings"
	"testing"
)

// TestSanitizeShowsDigests: a digest is what the owner consents to, so it is shown whole, although it looks like a key. What only claims to be one
// is not shown.
func TestSanitizeShowsDigests(t *testing.T) {
	t.Parallel()
	p := &Plan{Version: PlanVersion, Mended: []string{"a"}}
	p.Seal()
	p.Files = []FileChange{{Path: "/etc/fstab", Before: &FileState{SHA256: p.Digest}, After: &FileState{SHA256: "\x1b[31m" + strings.Repeat("0", 60)}}}
	clean := p.Sanitize()
	if clean.Digest != p.Digest || clean.Files[0].Before.SHA256 != p.Digest || clean.Files[0].After.SHA256 != "" {
		t.Errorf("shown: %q, %+v, %+v", clean.Digest, clean.Files[0].Before, clean.Files[0].After)
	}
}
