package netboot

import (
	"net/url"
	"strings"

	"salvor/boot/media"
	"salvor/metal"
	"salvor/problem"
)

// renderScript renders the iPXE script of a plan. Kernel and ramdisk are named relative to
// the script, so that the machine fetches them from where it got the script, or by
// their own URL where the plan holds one. After a failed fetch the script is fetched
// anew, because the plan may have changed; where that fails too the firmware goes on.
func renderScript(plan *metal.BootPlan, params string) (string, error) {
	// Checked here again, so that no caller can put a line end or ${...} into a script.
	if err := media.CheckParams(params); err != nil {
		return "", err
	}
	kernel, err := scriptSource(plan.Kernel, metal.BootKernel)
	if err != nil {
		return "", err
	}
	ramdisk, err := scriptSource(plan.Ramdisk, metal.BootRamdisk)
	if err != nil {
		return "", err
	}
	line := strings.TrimSpace("initrd=initrd BOOTIF=01-${netX/mac:hexhyp} " + params)
	return strings.Join([]string{
		"#!ipxe",
		"kernel --name kernel " + kernel + " " + line + " || goto failed",
		"initrd --name initrd " + ramdisk + " || goto failed",
		"boot || goto failed",
		":failed",
		"sleep 2",
		"chain --replace --autofree " + metal.BootScript + " || exit 1",
		"",
	}, "\n"), nil
}

// scriptSource gives what a script fetches: the name of our own file, or the plan's URL.
func scriptSource(ref, name string) (string, error) {
	if !metal.IsURL(ref) {
		return name, nil
	}
	u, err := url.Parse(ref)
	if err != nil || u.Host == "" {
		return "", problem.Invalidf("boot plan: %s is not a URL", name)
	}
	out := u.String()
	if strings.ContainsAny(out, " \t") || media.CheckParams(out) != nil {
		return "", problem.Invalidf("boot plan: URL of the %s holds a character that is not allowed", name)
	}
	return out, nil
}
