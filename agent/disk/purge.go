package disk

import (
	"encoding/binary"
	"fmt"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"

	"salvor/problem"
)

// Allow tells which ways of a disk to erase itself may be used.
type Allow struct{ NVMe, ATA bool }

// NVMe: the admin command and the namespace by ioctl, identify and format.
const (
	nvmeID       = 0x4e40
	nvmeAdmin    = 0xc0484e41
	nvmeIdentify = 0x06
	nvmeFormat   = 0x80
	formatTime   = 6 * 3600 * 1000 // milliseconds
	eraseUser    = 1
	eraseCrypto  = 2
)

// Purge has the disk erase itself. false without an error: it cannot.
func (d *Device) Purge(allow Allow) (bool, error) {
	switch {
	case !d.block:
		return false, nil
	case strings.HasPrefix(d.name, "/dev/nvme"):
		return d.purgeNVMe(allow.NVMe)
	case strings.HasPrefix(d.name, "/dev/sd"):
		return d.purgeATA(allow.ATA)
	case strings.HasPrefix(d.name, "/dev/mmcblk"):
		return d.rangeIoctl(unix.BLKSECDISCARD, 0, d.size) == nil, nil
	}
	return false, nil
}

// nvmeCommand is struct nvme_passthru_cmd.
type nvmeCommand struct {
	opcode, flags          uint8
	reserved               uint16
	nsid, cdw2, cdw3       uint32
	metadata               uint64
	address                unsafe.Pointer
	metadataLength, length uint32
	cdw10, cdw11, cdw12    uint32
	cdw13, cdw14, cdw15    uint32
	timeout, result        uint32
}

func (d *Device) nvme(c *nvmeCommand, buffer []byte) error {
	if len(buffer) > 0 {
		c.address, c.length = unsafe.Pointer(&buffer[0]), uint32(len(buffer))
	}
	status, _, errno := unix.Syscall(unix.SYS_IOCTL, d.file.Fd(), nvmeAdmin, uintptr(unsafe.Pointer(c)))
	if errno != 0 {
		return errno
	}
	if status != 0 {
		return fmt.Errorf("NVMe status %#x", status)
	}
	return nil
}

// purgeNVMe formats the namespace with the same block format, by key where the drive
// encrypts, else by erasing user data.
func (d *Device) purgeNVMe(allowed bool) (bool, error) {
	if !allowed {
		return false, nil
	}
	namespace, _, errno := unix.Syscall(unix.SYS_IOCTL, d.file.Fd(), nvmeID, 0)
	if errno != 0 {
		return false, nil
	}
	controller, space := make([]byte, 4096), make([]byte, 4096)
	if err := d.nvme(&nvmeCommand{opcode: nvmeIdentify, cdw10: 1}, controller); err != nil {
		return false, fmt.Errorf("NVMe identify controller: %w", err)
	}
	if err := d.nvme(&nvmeCommand{opcode: nvmeIdentify, nsid: uint32(namespace)}, space); err != nil {
		return false, fmt.Errorf("NVMe identify namespace: %w", err)
	}
	if binary.LittleEndian.Uint16(controller[256:])&2 == 0 {
		return false, nil // no Format NVM
	}
	if controller[524]&1 != 0 && binary.LittleEndian.Uint32(controller[516:]) > 1 {
		return false, nil // it would format the other namespaces too
	}
	way := uint32(eraseUser)
	if controller[524]&4 != 0 {
		way = eraseCrypto
	}
	format := &nvmeCommand{opcode: nvmeFormat, nsid: uint32(namespace), cdw10: uint32(space[26]&0xf) | way<<9, timeout: formatTime}
	if err := d.nvme(format, nil); err != nil {
		return false, fmt.Errorf("NVMe format: %w", err)
	}
	return true, nil
}

// ATA security by SG_IO; the words of IDENTIFY say what the disk can.
const (
	hdioIdentity  = 0x030d
	sgIO          = 0x2285
	ataSupported  = 1 << 0
	ataEnabled    = 1 << 1
	ataLocked     = 1 << 2
	ataFrozen     = 1 << 3
	ataExpired    = 1 << 4
	ataEnhanced   = 1 << 5
	ataSetPass    = 0xf1
	ataPrepare    = 0xf3
	ataErase      = 0xf4
	ataDisable    = 0xf6
	ataTime       = 12 * 3600 * 1000 // milliseconds
	sgToDevice    = -2
	sgNone        = -1
	protocolNone  = 3 << 1
	protocolWrite = 5 << 1
)

// sgHeader is struct sg_io_hdr.
type sgHeader struct {
	id, direction           int32
	commandLength, senseMax uint8
	iovecs                  uint16
	length                  uint32
	data, command, sense    unsafe.Pointer
	timeout, flags          uint32
	pack                    int32
	_                       int32
	user                    uintptr
	status, masked, msg     uint8
	senseLength             uint8
	host, driver            uint16
	residual                int32
	duration, info          uint32
}

// ata sends a command, with 512 bytes to the disk if there are any.
func (d *Device) ata(command byte, data []byte) error {
	block := [16]byte{0x85, protocolNone, 0x20}
	block[14] = command
	sense := [32]byte{}
	h := sgHeader{id: 'S', direction: sgNone, commandLength: 16, senseMax: uint8(len(sense)), timeout: ataTime}
	if len(data) > 0 {
		block[1], block[2], block[6] = protocolWrite, 0x06, 1
		h.direction, h.length, h.data = sgToDevice, uint32(len(data)), unsafe.Pointer(&data[0])
	}
	h.command, h.sense = unsafe.Pointer(&block[0]), unsafe.Pointer(&sense[0])
	_, _, errno := unix.Syscall(unix.SYS_IOCTL, d.file.Fd(), sgIO, uintptr(unsafe.Pointer(&h)))
	switch {
	case errno != 0:
		return errno
	case h.host != 0 || h.driver&0xf != 0 && h.driver&0xf != 8 || h.status != 0 && sense[0]&0x7f != 0x72:
		return fmt.Errorf("ATA command %#x: status %#x, host %#x, driver %#x", command, h.status, h.host, h.driver)
	case sense[0]&0x7f == 0x72 && sense[8] == 9 && sense[21]&1 != 0: // ATA status return with the error bit
		return fmt.Errorf("ATA command %#x: the disk refuses it (error %#x)", command, sense[11])
	}
	return nil
}

func (d *Device) security() uint16 {
	var words [256]uint16
	_, _, errno := unix.Syscall(unix.SYS_IOCTL, d.file.Fd(), hdioIdentity, uintptr(unsafe.Pointer(&words)))
	if errno != 0 {
		return 0
	}
	return words[128]
}

// purgeATA sets a password, without which no disk erases itself, and erases, which
// takes the password away. It is public, so a cut in between locks nobody out.
func (d *Device) purgeATA(allowed bool) (bool, error) {
	is := d.security()
	switch {
	case !allowed || is&ataSupported == 0:
		return false, nil
	case is&ataLocked != 0 || is&ataExpired != 0:
		return false, problem.Conflictf("it is locked by an ATA password")
	case is&ataFrozen != 0:
		return false, problem.Conflictf("the firmware has frozen its security settings: switch that off or power the machine off and on")
	case is&ataEnabled != 0:
		return false, problem.Conflictf("an ATA password is set: remove it first")
	}
	secret := make([]byte, 512)
	copy(secret[2:], "NULL")
	if err := d.ata(ataSetPass, secret); err != nil {
		return false, fmt.Errorf("set the password of the erasure: %w", err)
	}
	if is&ataEnhanced != 0 {
		secret[0] |= 2
	}
	err := d.ata(ataPrepare, nil)
	if err == nil {
		err = d.ata(ataErase, secret)
	}
	if err != nil || d.security()&ataEnabled != 0 {
		secret[0] = 0
		_ = d.ata(ataDisable, secret) // so that the next boot finds it open
		return false, fmt.Errorf("ATA security erase: %v", err)
	}
	return true, nil
}
