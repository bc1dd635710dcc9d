package system

import (
	"encoding/binary"
	"strings"
	"testing"
	"testing/fstest"

	"salvor/diagnose"
	"salvor/diagnose/config"
)

// signedProgram is a peFile with one signature behind it, and with that text as its section .sbat.
func signedProgram(sbat string) string {
	b := []byte(peFile(peAMD64, ".sbat"))
	le := binary.LittleEndian
	copy(b[0x1400:], sbat)
	le.PutUint32(b[0x98+144:], uint32(len(b)))
	le.PutUint32(b[0x98+148:], 16)
	return string(append(le.AppendUint32(b, 16), make([]byte, 12)...))
}

const newSBAT = "sbat,1,SBAT Version,sbat,1,https://github.com/rhboot/shim\ngrub,3,Free Software Foundation,grub,2.06,https://www.gnu.org/software/grub/\n"

// secured has the machine boot with Secure Boot, and with signed loaders and kernels.
func secured(in *installed) {
	in.Firmware.SecureBoot = true
	in.Firmware.SBATLevel = "sbat,1,2022052400\ngrub,2\n"
	for _, name := range []string{"/EFI/debian/shimx64.efi", "/EFI/debian/grubx64.efi", "/EFI/systemd/systemd-bootx64.efi", "/EFI/BOOT/BOOTX64.EFI"} {
		if in.esp[strings.TrimPrefix(name, "/")] != nil {
			in.espFile(name, signedProgram(newSBAT))
		}
	}
	for _, release := range []string{debian12, debianOld} {
		if kernel := "/4bd1b1c0a7b14b2f9b0f7d2f4f1f2a3c/" + release + "/linux"; in.esp[strings.TrimPrefix(kernel, "/")] != nil {
			in.espFile(kernel, signedKernel(release, 1))
		}
		in.write("/boot/vmlinuz-"+release, signedKernel(release, 1))
	}
}

func programDigest(t *testing.T, text string) string {
	t.Helper()
	f, err := config.OpenReadAt(diagnose.NewTree(fstest.MapFS{"x": &fstest.MapFile{Data: []byte(text)}}), "/x")
	if err != nil {
		t.Fatal(err)
	}
	digest, err := imageDigest(f)
	if err != nil {
		t.Fatal(err)
	}
	return digest
}

func init() {
	with := func(change func(*testing.T, *installed)) func(*testing.T, *installed) {
		return func(t *testing.T, in *installed) {
			secured(in)
			change(t, in)
		}
	}
	esp := func(name, text string) func(*testing.T, *installed) {
		return with(func(_ *testing.T, in *installed) { in.espFile(name, text) })
	}
	const grub, shim, kernel = "/EFI/debian/grubx64.efi", "/EFI/debian/shimx64.efi", "/boot/vmlinuz-" + debian12
	ruleCases = append(ruleCases, []ruleCase{
		{"GRUB", "debian-uefi", "secure-boot-unsigned", diagnose.BlocksBoot, esp(grub, peFile(peAMD64))},
		{"shim", "debian-uefi", "secure-boot-unsigned", diagnose.BlocksBoot, esp(shim, peFile(peAMD64))},
		{"a kernel of the owner's own", "debian-uefi", "secure-boot-unsigned", diagnose.BlocksBoot, with(func(_ *testing.T, in *installed) { in.write(kernel, signedKernel(debian12, 0)) })},
		{"a kernel without UEFI", "debian-uefi", "secure-boot-unsigned", diagnose.BlocksBoot, with(func(_ *testing.T, in *installed) { in.write(kernel, bzImage(debian12)) })},
		{"a kernel of systemd-boot", "debian-systemd-boot", "secure-boot-unsigned", diagnose.BlocksBoot, esp("/4bd1b1c0a7b14b2f9b0f7d2f4f1f2a3c/"+debian12+"/linux", bzImage(debian12))},
		{"all are signed", "debian-uefi", "secure-boot-unsigned", nearMiss, with(func(*testing.T, *installed) {})},
		{"Secure Boot is off", "debian-uefi", "secure-boot-unsigned", nearMiss, func(_ *testing.T, in *installed) { in.espFile(grub, peFile(peAMD64)) }},
		{"its digest is enrolled", "debian-uefi", "secure-boot-unsigned", nearMiss, with(func(t *testing.T, in *installed) {
			in.espFile(grub, peFile(peAMD64))
			in.Firmware.Enrolled = []string{programDigest(t, peFile(peAMD64))}
		})},
		{"shim checks nothing", "debian-uefi", "secure-boot-unsigned", nearMiss, with(func(_ *testing.T, in *installed) {
			in.espFile(grub, peFile(peAMD64))
			in.write(kernel, bzImage(debian12))
			in.Firmware.ShimUnchecked = true
		})},
		{"a GRUB of the owner's own", "debian-uefi", "secure-boot-unsigned", nearMiss, with(func(_ *testing.T, in *installed) {
			in.Firmware.Entries[2].Path = `\EFI\debian\grubx64.efi`
			in.write(kernel, bzImage(debian12))
		})},
		{"the firmware goes on to another loader", "debian-uefi", "secure-boot-unsigned", nearMiss, with(func(_ *testing.T, in *installed) {
			in.espFile(grub, peFile(peAMD64))
			in.espFile("/EFI/BOOT/BOOTX64.EFI", signedProgram(newSBAT))
		})},
		{"an old kernel is not signed", "debian-uefi", "secure-boot-unsigned", nearMiss, with(func(_ *testing.T, in *installed) { in.write("/boot/vmlinuz-"+debianOld, bzImage(debianOld)) })},

		{"the generation of GRUB", "debian-uefi", "secure-boot-revoked", diagnose.BlocksBoot, esp(grub, signedProgram(strings.Replace(newSBAT, "grub,3", "grub,1", 1)))},
		{"the digest of shim", "debian-uefi", "secure-boot-revoked", diagnose.BlocksBoot, with(func(t *testing.T, in *installed) {
			in.espFile(shim, signedProgram(""))
			in.Firmware.Revoked = []string{programDigest(t, signedProgram(""))}
		})},
		{"the same generation", "debian-uefi", "secure-boot-revoked", nearMiss, esp(grub, signedProgram(strings.Replace(newSBAT, "grub,3", "grub,2", 1)))},
		{"a component that is not listed", "debian-uefi", "secure-boot-revoked", nearMiss, esp(grub, signedProgram(newSBAT+"grub.debian,1,Debian,grub2,2.06,x\n"))},
		{"not booted by shim", "debian-uefi", "secure-boot-revoked", nearMiss, with(func(_ *testing.T, in *installed) {
			in.espFile(grub, signedProgram("grub,1\n"))
			in.Firmware.SBATLevel = ""
		})},
	}...)
}

// TestUnsignedKernelProposesASignedOne: the older kernel is whole and signed.
func TestUnsignedKernelProposesASignedOne(t *testing.T) {
	in := debianUEFI()
	secured(in)
	in.write("/boot/vmlinuz-"+debian12, signedKernel(debian12, 0))
	found := lookSecureBoot(in.system())
	if len(found) != 1 || found[0].Repair == nil || !strings.Contains(found[0].Repair.Summary, debianOld) {
		t.Errorf("%+v", found)
	}
}

// TestImageDigest: neither the checksum nor a signature changes the digest, and every other byte does.
func TestImageDigest(t *testing.T) {
	whole := programDigest(t, signedProgram(newSBAT))
	changed := []byte(signedProgram(newSBAT))
	changed[0x98+64]++        // of the checksum
	changed[len(changed)-1]++ // of the signature
	unsigned := peFile(peAMD64, ".sbat")
	if programDigest(t, string(changed)) != whole || programDigest(t, unsigned) == whole {
		t.Error("the checksum or the signature counts, or the section does not")
	}
	changed[0x500]++
	if programDigest(t, string(changed)) == whole {
		t.Error("a byte of the first section does not count")
	}
}
