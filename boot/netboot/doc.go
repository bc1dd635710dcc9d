// Package netboot gives booting machines what their stored boot plan says: DHCP
// answers, boot loaders over TFTP, and over HTTP boot scripts, kernels, ramdisks and
// images with this machine's parameters. Everything is rendered when a machine asks;
// no file per machine exists, so any conductor may answer.
//
// It knows plans, packets and boot files. It must not know who made a plan or why,
// nor change anything: it reads plans through Plans and tells what it saw through
// Config.RecordProgress.
//
// A machine without a plan is given nothing, unless an interface serves guests. A plan counts
// only while its boot number is the node's: what an ended boot left behind is refused.
//
// Only IPv4 is served: there is no DHCPv6. Firmware that tries IPv6 as well waits for a
// router advertisement first (iPXE: 13 s); Interface.Advertise sends one.
package netboot
