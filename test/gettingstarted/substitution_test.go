package gettingstarted

import "salvor/lab"

// notRun are commands of the page that the walk leaves out, each with its reason.
var notRun = map[string]string{
	"make build":                 "the programs of the test are built",
	"export PATH=$PWD/bin:$PATH": "the PATH of the walk has them",
}

// substitutions are what the page names otherwise than the lab: the machine, its BMC, and the address of salvor.
var substitutions = []struct {
	page string
	lab  func(lab.MachineStatus) string
}{
	{"https://192.0.2.7", func(m lab.MachineStatus) string { return m.Address }},
	{"redfish_username=admin", func(m lab.MachineStatus) string { return "redfish_username=" + m.User }},
	{"bmc-secret", func(m lab.MachineStatus) string { return m.Password }},
	{"52:54:00:aa:bb:cc", func(m lab.MachineStatus) string { return m.MAC }},
	{"198.51.100.1", func(lab.MachineStatus) string { return "10.78.0.1" }},
	{"198.51.100.7", func(m lab.MachineStatus) string { return m.TenantAddress }},
	{"boot_mode:uefi", func(lab.MachineStatus) string { return "boot_mode:bios" }},
	// ssh would ask a person for the password, and whether the host key is right.
	{"ssh rescue@", func(lab.MachineStatus) string {
		return "sshpass -f password ssh -o LogLevel=ERROR -o ConnectTimeout=20 -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null -o PreferredAuthentications=password rescue@"
	}},
}
