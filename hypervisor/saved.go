package hypervisor

import "salvor/problem"

// RefusalOfSaved is the refusal to switch a guest off that would lose its saved memory. guest is its name at the hypervisor.
func RefusalOfSaved(guest string) error {
	return problem.Conflictf("guest %s: its memory is saved on its host (virsh managedsave), and a power off would lose it: resume the server, or reboot it hard", guest)
}
