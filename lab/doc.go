// Package lab is a small world of real machines: QEMU guests with disks, each behind a
// Redfish or IPMI BMC, on Linux bridges, all inside namespaces of their own. The demo, the
// end-to-end tests and users' rehearsals run in it.
//
// A lab is a process tree. Up re-executes the program into new net, pid and mount namespaces
// (and a new user namespace where the caller is not root); pid 1 there holds everything: when it
// ends, even by kill -9, the kernel ends every machine and BMC with it. Requests to a living lab
// go over one unix socket: status, faults, down, and commands to be run inside the namespaces.
//
// A VM host of the lab is such a tree again, inside: a libvirt daemon and its guests in namespaces whose
// first process a Redfish BMC can kill and start anew, with a boot id of their own. Its cables can be
// cut and all of it be frozen.
//
// The package knows QEMU, the two BMC protocols from the server's side, and the layout of the
// networks. It must not know salvor's own control plane: to the lab, salvor is one more program
// that speaks to its BMCs and serves boot files on its bridges.
package lab
