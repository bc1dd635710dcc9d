// Package ironic holds the JSON of OpenStack's bare metal API as it goes over the wire,
// for the server, its clients and the ramdisk agent alike: names, shapes and the
// microversion of each field. It knows no behaviour and no other wire.
package ironic
