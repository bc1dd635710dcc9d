// Package lab is a small network of real machines: QEMU guests with disks, each behind a Redfish or IPMI BMC, on Linux bridges. All of it
// is inside namespaces of its own. The demo, the end-to-end tests and users' rehearsals run in it.
//
// A lab is a process tree. Up re-executes the program into new net, pid and mount namespaces (and a new user namespace where the caller is
// not root). Process 1 there holds everything: when it ends, even by kill -9, the kernel ends every machine and BMC with it. Requests to a
// running lab go over one unix socket: status, faults, down, and commands to be run inside the namespaces.
//
// A VM host of the lab is another such process tree inside the lab: a libvirt daemon and its guests in namespaces of their own. A Redfish
// BMC can kill the first process of these namespaces and start it anew; each start has its own boot id. The lab can cut the host's network
// links, except those of the storage network, and freeze the whole host.
//
// The package knows QEMU, the two BMC protocols from the server's side, and the layout of the networks. It must not know salvor's own
// control plane: to the lab, salvor is one more program that speaks to its BMCs and serves boot files on its bridges.
package lab
