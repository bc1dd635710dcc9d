package system

import "testing"

// TestCorrectStanzas corrects lines of /etc/network/interfaces in such a way that ifupdown reads the whole file.
func TestCorrectStanzas(t *testing.T) {
	const lo = "auto lo\niface lo inet loopback\n"
	for _, c := range []struct {
		name, text, want string
		lines            []int
	}{
		{"misspelt method", lo + "auto eth0\niface eth0 inet dchp\n", lo + "auto eth0\niface eth0 inet dhcp\n", []int{4}},
		{"no method, with an address", lo + "iface eth0 inet\n  address 192.0.2.7/24\n", lo + "iface eth0 inet static\n  address 192.0.2.7/24\n", []int{3}},
		{"method on the next line", lo + "iface eth0 inet\n\tdhcp\n\t# note\nauto eth0\n", lo + "iface eth0 inet dhcp\n# \tdhcp\n\t# note\nauto eth0\n", []int{3}},
		{"method of a bridge's port on the next line", "iface eno1 inet\n\tmanual\n", "iface eno1 inet manual\n# \tmanual\n", []int{1}},
		{"a value on the next line", lo + "iface eth0 inet\n\taddress\\\n 192.0.2.7/24\n\tdhcp\n", lo + "iface eth0 inet dhcp\n\taddress\\\n 192.0.2.7/24\n# \tdhcp\n", []int{3}},
		{"an option without a value", lo + "iface eth0 inet dhcp\n\thostname\n\tmetric 5\n", lo + "iface eth0 inet dhcp\n# \thostname\n\tmetric 5\n", []int{4}},
		{"a command that goes on", lo + "iface eth0 inet\n\tup echo \\\n one\n", lo + "iface eth0 inet dhcp\n\tup echo \\\n one\n", []int{3}},
		{"no family", lo + "iface eth0 inte dhcp\n\tmetric 5\nauto eth0\n", lo + "# iface eth0 inte dhcp\n# \tmetric 5\nauto eth0\n", []int{3}},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := correctStanzas(c.text, c.lines...); got != c.want {
				t.Errorf("got\n%s\nwant\n%s", got, c.want)
			}
		})
	}
}
