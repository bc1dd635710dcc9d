package diagnose

// placeMarks are names that the file system of a place holds at its top, as patterns of path.Match. A file system fits where it holds the wanted number
// of them.
var placeMarks = []struct {
	place  string
	wanted int
	names  []string
}{
	{"/boot", 1, []string{"vmlinuz*", "vmlinux*", "bzImage*", "Image", "grub", "grub2", "loader", "extlinux", "syslinux"}},
	{"/boot/firmware", 1, []string{"start*.elf", "bootcode.bin", "cmdline.txt"}},
	{"/usr", 3, []string{"bin", "lib", "sbin", "share"}},
	{"/var", 3, []string{"lib", "log", "cache", "spool"}},
	{"/etc", 2, []string{"passwd", "group", "fstab", "hostname"}},
}

// PlacesOf lists the places of an installed system, such as /boot, that the files of a file system fit by their names. A root fits none of them.
func PlacesOf(t *Tree) []string {
	if len(t.Match("/", "etc")) > 0 && len(t.Match("/", "usr")) > 0 {
		return nil // the root of an installed system, which may have links to kernels at its top
	}
	var out []string
	for _, m := range placeMarks {
		found := 0
		for _, name := range m.names {
			if len(t.Match("/", name)) > 0 {
				found++
			}
		}
		if found >= m.wanted {
			out = append(out, m.place)
		}
	}
	return out
}
