// Package ironic holds the JSON of OpenStack's bare metal API as it goes over the wire: names, shapes and the microversion of each field.
// The server, its clients and the ramdisk agent share it. It knows no behaviour and no other wire format.
package ironic
