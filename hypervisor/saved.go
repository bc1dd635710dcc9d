package hypervisor

import "salvor/problem"

// RefusalOfSaved is the refusal to switch a guest off that would lose its saved memory. guest is its name at the hypervisor.
func RefusalOfSaved(guest string) error {
	return problem.Conflictf("guest %s: its memory is saved on its host (virsh managedsave), and a power off would lose it: resume the server, or reboot it hard", guest)
}

// RefusalToChangeSaved is the refusal to attach a disk to a guest whose memory is saved, or to detach one. The saved memory has its own definition of the
// guest: the guest goes on with the disks that it had. So a detached disk would be written by two guests.
func RefusalToChangeSaved(guest, disk string) error {
	return problem.Conflictf("guest %s: disk %s is neither attached nor detached while the memory of the guest is saved on its host (virsh managedsave): resume the server first", guest, disk)
}
