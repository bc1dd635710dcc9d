package system

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	rules "salvor/diagnose/system"
)

func TestCommentLines(t *testing.T) {
	for _, tc := range []struct {
		text string
		line int
		want string
	}{
		{"a\nb\nc\n", 2, "a\n# b\nc\n"},
		{"a\r\nb", 2, "a\r\n# b"},
		{"a\n# b\n", 2, "a\n# b\n"},
		{"a \\\n  b\nc\n", 1, "# a \n#   b\nc\n"},
		{"a\n", 7, "a\n"},
		{"", 1, ""},
	} {
		if got := commentLines(tc.text, tc.line); got != tc.want {
			t.Errorf("line %d of %q: %q, want %q", tc.line, tc.text, got, tc.want)
		}
	}
}

func TestEditField(t *testing.T) {
	add := func(list string) string { return addOptions(list, "nofail") }
	for _, tc := range []struct{ line, want string }{
		{"UUID=x\t/data  ext4\tdefaults 0 2", "UUID=x\t/data  ext4\tdefaults,nofail 0 2"},
		{"UUID=x /data ext4", "UUID=x /data ext4 nofail"},
		{"UUID=x /data ext4 nofail 0 2", "UUID=x /data ext4 nofail 0 2"},
		{"UUID=x /data", "UUID=x /data"},
	} {
		if got := editField(tc.line, 3, add); got != tc.want {
			t.Errorf("%q: %q, want %q", tc.line, got, tc.want)
		}
	}
}

func TestReplaceName(t *testing.T) {
	for _, tc := range []struct {
		text, from, to string
		fold           bool
		want           string
	}{
		{"auto eth0 eth0.5 eth01 veth0\n# eth0\n", "eth0", "enp1s0", false, "auto enp1s0 enp1s0.5 eth01 veth0\n# eth0\n"},
		{"    eth0:\n      [eth0, \"eth0\"]\n", "eth0", "x1", false, "    x1:\n      [x1, \"x1\"]\n"},
		{"HWADDR=52:54:00:AA:bb:CC\n", "52:54:00:aa:bb:cc", "52:54:00:12:34:56", true, "HWADDR=52:54:00:12:34:56\n"},
		{"x=00:52:54:00:aa:bb:cc:01\n", "52:54:00:aa:bb:cc", "52:54:00:12:34:56", true, "x=00:52:54:00:aa:bb:cc:01\n"},
	} {
		if got := replaceName(tc.text, tc.from, tc.to, tc.fold); got != tc.want {
			t.Errorf("%q: %q, want %q", tc.text, got, tc.want)
		}
	}
}

func TestReplaceArgument(t *testing.T) {
	for _, tc := range []struct{ text, from, to, want string }{
		{"linux /v root=UUID=a ro quiet\n", "root=UUID=a", "root=UUID=b", "linux /v root=UUID=b ro quiet\n"},
		{"linux /v ro single quiet\n", "single", "", "linux /v ro quiet\n"},
		{"GRUB_CMDLINE_LINUX=\"single\"\n", "single", "", "GRUB_CMDLINE_LINUX=\"\"\n"},
		{"GRUB_CMDLINE_LINUX=\"quiet single\"\n", "single", "", "GRUB_CMDLINE_LINUX=\"quiet\"\n"},
		{"linux /single root=UUID=abc singleuser\n", "single", "", "linux /single root=UUID=abc singleuser\n"},
		{"# single mode single\n", "single", "", "# single mode single\n"},
		{"a single single b", "single", "", "a b"},
	} {
		if got := replaceArgument(tc.text, tc.from, tc.to); got != tc.want {
			t.Errorf("%q: %q, want %q", tc.text, got, tc.want)
		}
	}
}

func TestFirewallRules(t *testing.T) {
	for _, tc := range []struct{ got, want string }{
		{insertNftables("table inet f {\n\tchain input {\n\t\ttype filter hook input priority 0; policy drop;\n\t}\n}\n", 3, 22),
			"table inet f {\n\tchain input {\n\t\ttype filter hook input priority 0; policy drop;\n\t\ttcp dport 22 accept\n\t}\n}\n"},
		{insertNftables("chain input { type filter hook input priority 0; policy drop; }\n", 1, 22), "chain input { type filter hook input priority 0; policy drop; tcp dport 22 accept; }\n"},
		{insertIptables("*nat\n-A X -j Y\nCOMMIT\n*filter\n:INPUT DROP [0:0]\n-A INPUT -j DROP\nCOMMIT\n", 2222),
			"*nat\n-A X -j Y\nCOMMIT\n*filter\n:INPUT DROP [0:0]\n-A INPUT -p tcp -m tcp --dport 2222 -j ACCEPT\n-A INPUT -j DROP\nCOMMIT\n"},
	} {
		if tc.got != tc.want {
			t.Errorf("%q, want %q", tc.got, tc.want)
		}
	}
}

func TestMoveNetwork(t *testing.T) {
	to := &rules.WantedNetwork{Prefix: netip.MustParsePrefix("198.51.100.9/24"), Gateways: []netip.Addr{netip.MustParseAddr("198.51.100.1")}}
	from := netip.MustParsePrefix("192.0.2.7/24")
	for _, tc := range []struct{ text, want string }{
		{"  address 192.0.2.7/24\n  gateway 192.0.2.1\n  dns-nameservers 192.0.2.1\n", "  address 198.51.100.9/24\n  gateway 198.51.100.1\n  dns-nameservers 192.0.2.1\n"},
		{"  address 192.0.2.7\n  netmask 255.255.255.0\n  gateway 192.0.2.1\n", "  address 198.51.100.9\n  netmask 255.255.255.0\n  gateway 198.51.100.1\n"},
		{"address1=192.0.2.77/24\n", "address1=192.0.2.77/24\n"},
	} {
		if got := moveNetwork(tc.text, from, to); got != tc.want {
			t.Errorf("%q, want %q", got, tc.want)
		}
	}
}

func TestEnvironmentBlock(t *testing.T) {
	got := environmentBlock("# GRUB Environment Block\nsaved_entry=old\nkernelopts=root=x ro\nbroken\n\x01bad=1\n####", "saved_entry", "new")
	if len(got) != environmentSize || !strings.HasPrefix(got, "# GRUB Environment Block\nkernelopts=root=x ro\nsaved_entry=new\n###") {
		t.Errorf("%d bytes: %q", len(got), got)
	}
	if got := environmentBlock(strings.Repeat("a=1234567\n", 200), "", ""); got != "" {
		t.Errorf("%d bytes for what does not fit", len(got))
	}
}

// FuzzLineEditors: an editor of lines keeps all other lines, whatever the file holds.
func FuzzLineEditors(f *testing.F) {
	f.Add("UUID=x / ext4 defaults 0 1\n# c\r\nMatch all\n  a \\\n b\n", 2, "eth0")
	f.Add("\\\n\\", 1, "\\")
	f.Add("é\u00a0x \t\n", 1, "é")
	f.Fuzz(func(t *testing.T, text string, number int, name string) {
		lines := splitText(text)
		if strings.Join(lines, "") != text {
			t.Fatal("the lines are not the text")
		}
		others := func(what, got string, isChanged func(int) bool) {
			after := splitText(got)
			if len(after) != len(lines) {
				t.Fatalf("%s: %d lines of %d", what, len(after), len(lines))
			}
			for i := range lines {
				if after[i] != lines[i] && !isChanged(i+1) {
					t.Fatalf("%s: line %d is %q, was %q", what, i+1, after[i], lines[i])
				}
			}
		}
		only := func(n int) bool { return n == number }
		after := func(n int) bool { return n >= number }
		for index := range 5 {
			others("editField", replaceLine(text, number, func(line string) string {
				return editField(line, index, func(field string) string {
					if fields := strings.Fields(line); index < len(fields) && fields[index] != field {
						t.Fatalf("field %d of %q is %q", index, line, field)
					}
					return addOptions(field, "nofail")
				})
			}), only)
		}
		commented := commentLines(text, number)
		others("commentLines", commented, after)
		if number > 0 && number <= len(lines) {
			if line := strings.TrimSpace(splitText(commented)[number-1]); line != "" && !strings.HasPrefix(line, "#") {
				t.Fatalf("line %d is no comment: %q", number, line)
			}
		}
		others("commentSSHD", commentSSHD(text, number), after)
		others("correctStanzas", correctStanzas(text, number), after)
		others("editColumn", replaceLine(text, number, func(line string) string { return editColumn(line, 2, "x") }), only)
		if !strings.ContainsAny(name, "\r\n") {
			any := func(int) bool { return true }
			others("replaceName", replaceName(text, name, "enp1s0", false), any)
			others("replaceArgument", replaceArgument(text, name, "root=x"), any)
			if got := replaceName(text, "\x00absent\x00", "x", false); got != text && !strings.Contains(text, "\x00absent\x00") {
				t.Fatal("a name that is not there was replaced")
			}
			if block := environmentBlock(text, "saved_entry", strings.Trim(name, "\x00")); block != "" && len(block) != environmentSize {
				t.Fatalf("%d bytes", len(block))
			}
		}
		if got := insertBefore(text, number, "+ : root : ALL"); strings.Replace(got, "+ : root : ALL\n", "", 1) != text && !slices.Contains(lines, "+ : root : ALL\n") && strings.HasSuffix(text, "\n") {
			t.Fatalf("insertBefore changed other lines: %q", got)
		}
		insertNftables(text, number, 22)
		insertIptables(text, 22)
		insertUFW(text, 22)
	})
}
