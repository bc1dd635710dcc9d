package efi

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"strings"

	"salvor/diagnose"
)

// Vendors of the variables that say which programs a machine with Secure Boot starts.
const (
	imageSecurity = "-d719b2cb-3d3a-4596-a3bc-dad00e67656f" // of the UEFI specification: db and dbx
	shimLock      = "-605dab50-e046-4300-abb6-3dd810dd8b23" // of shim, which mirrors its variables under names that end in RT
)

// maxDigests bounds what is read of one list. The dbx of 2025 has about 450.
const maxDigests = 4096

// sha256Type is the GUID EFI_CERT_SHA256_GUID as it is stored.
var sha256Type = []byte{0x26, 0x16, 0xc4, 0xc1, 0x4c, 0x50, 0x92, 0x40, 0xac, 0xa9, 0x41, 0xf9, 0x36, 0x93, 0x43, 0x28}

// readPolicy reads what the firmware and shim refuse and accept.
func (v efivarsDir) readPolicy(s *diagnose.FirmwareState) {
	digests := func(names ...string) (all []string) {
		for _, name := range names {
			if b, err := v.readFile(name); err == nil {
				all = append(all, parseDigests(b)...)
			}
		}
		return all
	}
	s.Revoked = digests("dbx"+imageSecurity, "MokListXRT"+shimLock)
	s.Enrolled = digests("db"+imageSecurity, "MokListRT"+shimLock)
	if b, err := v.readFile("SbatLevelRT" + shimLock); err == nil {
		s.SBATLevel = strings.TrimRight(string(b), "\x00")
	}
	if b, err := v.readFile("MokSBStateRT" + shimLock); err == nil && len(b) > 0 {
		s.ShimUnchecked = b[0] == 1
	}
}

// parseDigests reads the SHA-256 digests of a chain of EFI_SIGNATURE_LIST, which is described in chapter 32.4 of the UEFI specification.
func parseDigests(b []byte) []string {
	le := binary.LittleEndian
	const head, owner, digest = 28, 16, 32
	var out []string
	for len(b) >= head {
		size, header, one := int64(le.Uint32(b[16:])), int64(le.Uint32(b[20:])), int64(le.Uint32(b[24:]))
		if size < head || size > int64(len(b)) {
			return out
		}
		if bytes.Equal(b[:16], sha256Type) && one == owner+digest && header <= size-head {
			for rest := b[head+header : size]; int64(len(rest)) >= one && len(out) < maxDigests; rest = rest[one:] {
				out = append(out, hex.EncodeToString(rest[owner:one]))
			}
		}
		b = b[size:]
	}
	return out
}
