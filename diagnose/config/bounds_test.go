package config

import (
	"strings"
	"testing"
)

func TestGrubBlocksAreFew(t *testing.T) {
	for _, opens := range []string{"submenu a {\n", "if\n", "while\n", "{\n"} {
		script := ParseGrub(strings.Repeat(opens, 20_000) + strings.Repeat("menuentry x {\n}\n", 20_000))
		if script.ErrorLine != maxGrubDepth+1 || !strings.Contains(script.Error, "blocks are open") {
			t.Errorf("%q: line %d: %s", opens, script.ErrorLine, script.Error)
		}
	}
	if script := ParseGrub(strings.Repeat("submenu a {\n", 20) + "menuentry b {\n}\n" + strings.Repeat("}\n", 20)); script.Error != "" || len(script.Entries) != 1 || len(script.Entries[0].Path) != 21 {
		t.Errorf("20 submenus: %+v", script)
	}
}

func TestGrubEntriesAreFew(t *testing.T) {
	if n := len(ParseGrub(strings.Repeat("menuentry x {\n}\n", 2*maxGrubEntries)).Entries); n != maxGrubEntries {
		t.Errorf("%d entries", n)
	}
	if script := ParseGrub("submenu " + strings.Repeat("a", maxGrubPath) + " {\nmenuentry b {\n}\n}\n"); script.ErrorLine != 2 {
		t.Errorf("a long title: line %d: %s", script.ErrorLine, script.Error)
	}
}
