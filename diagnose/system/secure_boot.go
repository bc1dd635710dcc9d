package system

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"salvor/diagnose"
	"salvor/diagnose/config"
)

// Bounds of what is read of a program for UEFI.
const (
	maxProgramSize = 256 << 20 // bytes of which a digest is made
	maxSBATSize    = 64 << 10  // bytes
)

func secureBootRules() []diagnose.Rule {
	return []diagnose.Rule{{IDs: []string{"secure-boot-unsigned", "secure-boot-revoked", "grub-module-unsigned"}, Look: lookSecureBoot}}
}

// refusal is why a firmware with Secure Boot, or a shim, does not start a program.
type refusal struct {
	id, why  string
	evidence diagnose.Evidence
}

// lookSecureBoot finds a boot loader or a kernel that a firmware with Secure Boot refuses. It does not check whom a signature is of, so it
// knows what is refused for sure, and not what is accepted.
func lookSecureBoot(s *diagnose.System) []diagnose.Finding {
	if !s.Firmware.UEFI || !s.Firmware.SecureBoot {
		return nil
	}
	first, refused := startedProgram(s)
	if first == nil {
		return nil
	}
	if refused != nil {
		return []diagnose.Finding{refusedLoader(s, refused)}
	}
	return append(lookUnsignedModules(s, first), lookKernelSignature(s, first.path)...)
}

// startedProgram is the program that the firmware starts: the first in its boot order that it does not refuse. Where it refuses all, it is the
// first one with the reason. nil: no entry leads to a program that can be read.
func startedProgram(s *diagnose.System) (*espLoader, *refusal) {
	var candidates []espLoader
	entries := diskEntries(s)
	for _, number := range s.Firmware.Order {
		for i := range entries {
			e := &entries[i]
			switch {
			case e.entry.Number != number || !e.entry.Active:
			case e.unknown: // it may be the one that starts
				return nil, nil
			case e.works() && e.entry.Path != "":
				candidates = append(candidates, espLoader{e.device, e.entry.Path})
			}
		}
	}
	for _, d := range espDevices(s) {
		name := `\EFI\BOOT\` + fallbackName(s.KernelArch)
		if damage, found := loaderDamage(s, d, name); found && damage == "" {
			candidates = append(candidates, espLoader{d, name})
		}
	}
	var first *refusal
	for i := range candidates {
		refused := refusedChain(s, candidates[i])
		if refused == nil {
			return &candidates[i], nil
		}
		if first == nil {
			first = refused
		}
	}
	if first == nil {
		return nil, nil
	}
	return &candidates[0], first
}

// refusedChain checks a loader and what a shim starts after it.
func refusedChain(s *diagnose.System, l espLoader) *refusal {
	for _, name := range []string{l.path, secondStage(l.path)} {
		tree, at, found := espFolder(s, l.device, name)
		if name == "" || !found || name != l.path && s.Firmware.ShimUnchecked {
			continue
		}
		if r := refusedProgram(s, tree, at, strings.ReplaceAll(name, `\`, "/")+" on "+l.device.Path); r != nil {
			return r
		}
	}
	return nil
}

// refusedProgram says why a program is refused; nil where no reason is known. shown is how a person names it.
func refusedProgram(s *diagnose.System, t *diagnose.Tree, at, shown string) *refusal {
	f, err := config.OpenReadAt(t, at)
	if err != nil {
		return nil
	}
	defer f.Close()
	pe, err := config.ReadPE(f)
	if err != nil || pe.Damage != "" || f.Size > maxProgramSize {
		return nil
	}
	digest, err := imageDigest(f)
	if err != nil {
		return nil
	}
	made := func(id, why string) *refusal { return &refusal{id, why, config.FileEvidence(shown, 0, why)} }
	switch {
	case slices.Contains(s.Firmware.Revoked, digest):
		return made("secure-boot-revoked", "the firmware or shim lists its digest "+digest+" as revoked")
	case slices.Contains(s.Firmware.Enrolled, digest):
		return nil
	case pe.Certificates == 0:
		return made("secure-boot-unsigned", "it has no signature, and its digest is not enrolled")
	}
	for _, section := range pe.Sections {
		if section.Name == ".sbat" {
			b := make([]byte, min(max(section.Size, 0), maxSBATSize))
			n, _ := f.ReadAt(b, section.Offset)
			if why := oldGeneration(string(b[:n]), s.Firmware.SBATLevel); why != "" {
				return made("secure-boot-revoked", why)
			}
		}
	}
	return nil
}

// oldGeneration compares the section .sbat of a program with the least generations that shim accepts. Both are lines of comma-separated
// values: component, generation, and more, as the documentation of shim says.
func oldGeneration(program, level string) string {
	least := sbatGenerations(level)
	for _, line := range strings.Split(strings.TrimRight(program, "\x00"), "\n") {
		component, generation, ok := sbatLine(line)
		if want := least[component]; ok && generation < want {
			return fmt.Sprintf("its component %s is of generation %d, and shim requires %d", component, generation, want)
		}
	}
	return ""
}

func sbatGenerations(text string) map[string]int {
	out := map[string]int{}
	for _, line := range strings.Split(text, "\n") {
		if component, generation, ok := sbatLine(line); ok {
			out[component] = generation
		}
	}
	return out
}

func sbatLine(line string) (component string, generation int, ok bool) {
	fields := strings.Split(strings.TrimSpace(line), ",")
	if len(fields) < 2 {
		return "", 0, false
	}
	generation, err := strconv.Atoi(fields[1])
	return fields[0], generation, err == nil
}

// imageDigest is the SHA-256 digest of a program for UEFI as Authenticode defines it: of all but its checksum, the place of its signatures and
// the signatures themselves, filled up to 8 bytes. The file holds its sections in their order, as all that linkers make do.
func imageDigest(f *config.ReadAtFile) (string, error) {
	le := binary.LittleEndian
	head := readPiece(f, 0, 8192)
	at := int64(le.Uint32(head[0x3c:]))
	optional := at + 24
	if at < 0x40 || optional+160 > int64(len(head)) || le.Uint16(head[optional:]) != 0x20b {
		return "", errors.New("it is no program for UEFI with 64 bits")
	}
	checksum, directory := optional+64, optional+112+4*8
	end := f.Size
	if start, length := int64(le.Uint32(head[directory:])), int64(le.Uint32(head[directory+4:])); start > 0 && length > 0 && start < end {
		if start < directory+8 {
			return "", errors.New("its signatures lie in its head")
		}
		end = start
	}
	sum := sha256.New()
	for _, piece := range [][2]int64{{0, checksum}, {checksum + 4, directory}, {directory + 8, end}} {
		if _, err := io.Copy(sum, io.NewSectionReader(f, piece[0], max(piece[1]-piece[0], 0))); err != nil {
			return "", err
		}
	}
	sum.Write(make([]byte, -end&7))
	return hex.EncodeToString(sum.Sum(nil)), nil
}

// refusedLoader is the finding about a boot loader.
func refusedLoader(s *diagnose.System, r *refusal) diagnose.Finding {
	f := diagnose.Finding{
		ID: r.id, Stage: diagnose.Loader, Severity: diagnose.BlocksBoot, Confidence: 0.9, Evidence: []diagnose.Evidence{secureBootEvidence(), r.evidence},
		Title:  fmt.Sprintf("The firmware refuses the boot loader %s, because Secure Boot is on and %s.", r.evidence.Path, r.why),
		ByHand: "Install the newest signed packages of the boot loader (such as shim-signed and grub-efi-amd64-signed), or have the owner change Secure Boot.",
	}
	if s.Firmware.SBATLevel != "" && r.id == "secure-boot-revoked" {
		f.Evidence = append(f.Evidence, config.DeviceEvidence("/sys/firmware/efi/efivars/SbatLevelRT"+shimVendor, strings.Join(strings.Fields(s.Firmware.SBATLevel), " ")))
	}
	return f
}

const (
	globalVendor = "-8be4df61-93ca-11d2-aa0d-00e098032b8c"
	shimVendor   = "-605dab50-e046-4300-abb6-3dd810dd8b23"
)

func secureBootEvidence() diagnose.Evidence {
	return config.DeviceEvidence("/sys/firmware/efi/efivars/SecureBoot"+globalVendor, "Secure Boot is on")
}

// verifiesKernels says whether a loader has the firmware or shim check the kernels that it starts. A GRUB that the owner signed may have been
// built to check none.
func verifiesKernels(s *diagnose.System, loader string) bool {
	name := strings.ToLower(loader)
	isShim := secondStage(name) != "" || strings.HasPrefix(name, `\efi\boot\`) && secondStageBeside(s)
	return isShim && !s.Firmware.ShimUnchecked || strings.Contains(name, "systemd-boot")
}

// secondStageBeside: the loader that firmware starts without an entry is a copy of shim, which has its GRUB beside it.
func secondStageBeside(s *diagnose.System) bool {
	return slices.ContainsFunc(espDevices(s), func(d *diagnose.Device) bool {
		return slices.ContainsFunc([]string{"grubx64.efi", "grubaa64.efi"}, func(name string) bool {
			_, found := loaderDamage(s, d, `\EFI\BOOT\`+name)
			return found
		})
	})
}

// lookKernelSignature checks the kernel of the default entry, and proposes another entry whose kernel is signed.
func lookKernelSignature(s *diagnose.System, loader string) []diagnose.Finding {
	if s.Files == nil || !verifiesKernels(s, loader) {
		return nil
	}
	entries := loadEntries(s)
	first := defaultEntry(entries)
	if first == nil || !first.Kernel.Found {
		return nil
	}
	r := refusedKernel(s, first)
	if r == nil {
		return nil
	}
	out := []diagnose.Finding{{
		ID: r.id, Stage: diagnose.Kernel, Severity: diagnose.BlocksBoot, Confidence: 0.9, Evidence: []diagnose.Evidence{secureBootEvidence(), r.evidence},
		Title:  fmt.Sprintf("The boot loader refuses the kernel %s, because Secure Boot is on and %s.", first.Kernel.Shown, r.why),
		ByHand: "Boot a signed kernel of the distribution, or have the owner sign this one and enrol the key (mokutil --import).",
	}}
	if e := newEntryChecker(s).wholeEntry(entries, first); e != nil {
		proposeEntry(out, e)
	}
	return out
}

// refusedKernel is refusedProgram for the kernel of an entry. A kernel that is no program for UEFI cannot be signed.
func refusedKernel(s *diagnose.System, e *loadEntry) *refusal {
	f, err := config.OpenReadAt(e.Kernel.Tree, e.Kernel.Path)
	if err != nil {
		return nil
	}
	defer f.Close()
	k := config.ReadKernelImage(f)
	if _, err := config.ReadPE(f); err != nil && k.Format == "bzImage" && k.Damage == "" {
		const why = "it is no program for UEFI, so it has no signature"
		return &refusal{"secure-boot-unsigned", why, config.FileEvidence(e.Kernel.Shown, 0, why)}
	}
	return refusedProgram(s, e.Kernel.Tree, e.Kernel.Path, e.Kernel.Shown)
}
