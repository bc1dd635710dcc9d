// Package tgt is storage by Linux SCSI target daemons, spoken to by tgtadm.
package tgt
