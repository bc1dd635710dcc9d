package media

import (
	"strings"

	"salvor/problem"
)

const (
	// MaxParams is the longest kernel parameter text in bytes. The kernel of x86
	// takes 2047 and boot loaders add names of kernel and initrd to it.
	MaxParams = 1920
	// fieldSize is the room that images keep for the parameters.
	fieldSize = 2048
	// DefaultParams suit the ramdisks that salvor builds: messages on the screen and
	// on the first serial port, of which the last is where the ramdisk writes; a
	// reboot instead of a dead machine after a panic. quiet matters: a serial console
	// at 115200 baud costs seconds.
	DefaultParams = "console=tty0 console=ttyS0,115200n8 quiet panic=30"
)

// CheckParams refuses kernel parameters that are too long or hold a character that
// means something to a boot loader's configuration or script (isolinux, GRUB, iPXE)
// rather than to the kernel: line ends, control characters, quotes, backslash,
// expansions and separators of commands. Only ASCII passes. The kind is
// problem.Invalid; the text of the parameters is not repeated, it may hold a token.
func CheckParams(params string) error {
	if len(params) > MaxParams {
		return problem.Invalidf("kernel parameters: %d bytes, at most %d", len(params), MaxParams)
	}
	for i := range len(params) {
		c := params[i]
		if c < ' ' || c > '~' || strings.IndexByte("\"'`\\$;|<>{}#", c) >= 0 {
			return problem.Invalidf("kernel parameters: byte %d (%q) is not allowed", i, rune(c))
		}
	}
	// "&&" as a word joins commands in iPXE; one & inside a URL does not.
	for _, word := range strings.Fields(params) {
		if word == "&&" || word == "&" {
			return problem.Invalidf("kernel parameters: the word %q is not allowed", word)
		}
	}
	return nil
}
