package host

import (
	"bufio"
	"os"
	"path/filepath"
	"strings"
)

// libvirtGuestsFiles are the files that set what libvirt-guests does when its host starts, in the order in which it reads them: the program of Debian or
// of Fedora, then the administrator's settings.
var libvirtGuestsFiles = []string{"usr/lib/libvirt/libvirt-guests.sh", "usr/libexec/libvirt-guests.sh", "etc/default/libvirt-guests", "etc/sysconfig/libvirt-guests"}

// libvirtGuestsStarts tells whether libvirt-guests below root, if it is installed, starts guests when its host starts. A guest that was moved away meanwhile
// would then run twice.
func libvirtGuestsStarts(root string) bool {
	onBoot := ""
	for _, name := range libvirtGuestsFiles {
		if word, set := readShellSetting(filepath.Join(root, name), "ON_BOOT"); set {
			onBoot = word
		}
	}
	return onBoot != "" && onBoot != "ignore"
}

// readShellSetting gives the last value that a shell script assigns to a name at the beginning of a line, without quotes. A file that cannot be read sets
// nothing.
func readShellSetting(path, name string) (value string, set bool) {
	f, err := os.Open(path)
	if err != nil {
		return "", false
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		word, assigns := strings.CutPrefix(strings.TrimSpace(lines.Text()), name+"=")
		if !assigns {
			continue
		}
		word, _, _ = strings.Cut(word, "#")
		value, set = strings.Trim(strings.TrimSpace(word), `"'`), true
	}
	return value, set
}
