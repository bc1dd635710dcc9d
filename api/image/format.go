package image

import (
	"bytes"
	"encoding/binary"
	"math"

	"salvor/problem"
)

const (
	// headSize is how much of an image is looked at before the rest is taken in.
	headSize    = 64 << 10
	isoMark     = 32769
	qcowHeader2 = 72
	qcowHeader3 = 104
	maxVirtual  = 4 << 40
)

const qcowMark = "QFI\xfb"

// disguises are formats that a hypervisor would follow out of the file, by what stands where.
var disguises = []struct {
	format string
	at     int
	mark   string
}{
	{"qcow2", 0, qcowMark}, {"qed", 0, "QED\x00"}, {"vmdk", 0, "KDMV"}, {"vmdk", 0, "COWD"}, {"vmdk descriptor", 0, "# Disk DescriptorFile"}, {"vhdx", 0, "vhdxfile"}, {"vhd", 0, "conectix"},
	{"vdi", 0, "<<< "}, {"vdi", 0x40, "\x7f\x10\xda\xbe"}, {"luks", 0, "LUKS\xba\xbe"}, {"parallels", 0, "WithoutFreeSpace"}, {"parallels", 0, "WithouFreSpacExt"},
}

// checkFormat looks whether the first bytes of an image are of the format that it is said to
// have, and of a kind that needs no other file. virtual is the size of the disk in it; 0: that of the file.
func checkFormat(format string, head []byte) (virtual int64, err error) {
	isISO := len(head) >= isoMark+5 && string(head[isoMark:isoMark+5]) == "CD001"
	switch {
	case format == "qcow2":
		return checkQcow2(head)
	case format == "iso" && !isISO:
		return 0, problem.Invalidf("The bytes are no ISO 9660 image, as disk_format says.")
	}
	for _, d := range disguises {
		if len(head) > d.at && bytes.HasPrefix(head[d.at:], []byte(d.mark)) {
			return 0, problem.Invalidf("The bytes are of the format %s, but disk_format says %s.", d.format, format)
		}
	}
	return 0, nil
}

// qcowFeatures are those that are refused, by bit; beside the bits 0 (reference counts are dirty)
// and 3 (another compression), all others are unknown.
var qcowFeatures = map[int]string{1: "it is marked as corrupt", 2: "it keeps its data in another file", 4: "it has extended L2 entries"}

func checkQcow2(head []byte) (int64, error) {
	refuse := func(why string) (int64, error) {
		return 0, problem.Invalidf("The qcow2 image cannot be taken: %s.", why)
	}
	be := binary.BigEndian
	if !bytes.HasPrefix(head, []byte(qcowMark)) {
		return 0, problem.Invalidf("The bytes are no qcow2 image, as disk_format says.")
	}
	if len(head) < qcowHeader2 {
		return refuse("its header is cut off")
	}
	version, bits, virtual := be.Uint32(head[4:]), be.Uint32(head[20:]), be.Uint64(head[24:])
	switch {
	case version != 2 && version != 3:
		return refuse("its version is neither 2 nor 3")
	case be.Uint64(head[8:]) != 0 || be.Uint32(head[16:]) != 0:
		return refuse("it has a backing file")
	case be.Uint32(head[32:]) != 0:
		return refuse("it is encrypted")
	case bits < 9 || bits > 21:
		return refuse("the size of its clusters is out of range")
	case virtual == 0 || virtual > maxVirtual || virtual > math.MaxInt64:
		return refuse("the size of its disk is out of range")
	}
	at := qcowHeader2
	if version == 3 {
		if len(head) < qcowHeader3 {
			return refuse("its header is cut off")
		}
		features := be.Uint64(head[72:])
		for bit := range 64 {
			if features>>bit&1 == 0 || bit == 0 || bit == 3 {
				continue
			}
			if why, ok := qcowFeatures[bit]; ok {
				return refuse(why)
			}
			return refuse("it needs a feature that is not known here")
		}
		if at = int(be.Uint32(head[100:])); at < qcowHeader3 || at > 4096 || at%8 != 0 {
			return refuse("the length of its header is out of range")
		}
	}
	return int64(virtual), checkQcowExtensions(head[:min(len(head), 1<<bits)], at)
}

// The extensions of a qcow2 header that are refused.
const (
	qcowDataFile   = 0x44415441
	qcowEncryption = 0x0537be77
)

// checkQcowExtensions walks the extensions of the header, which end in the first cluster.
func checkQcowExtensions(cluster []byte, at int) error {
	for at+8 <= len(cluster) {
		kind, length := binary.BigEndian.Uint32(cluster[at:]), int64(binary.BigEndian.Uint32(cluster[at+4:]))
		switch {
		case kind == 0:
			return nil
		case kind == qcowDataFile:
			return problem.Invalidf("The qcow2 image cannot be taken: it names an external data file.")
		case kind == qcowEncryption:
			return problem.Invalidf("The qcow2 image cannot be taken: it is encrypted.")
		case length > int64(len(cluster)-at-8):
			return problem.Invalidf("The qcow2 image cannot be taken: an extension of its header is cut off or too long.")
		}
		at += 8 + int(length+7)/8*8
	}
	return nil
}
