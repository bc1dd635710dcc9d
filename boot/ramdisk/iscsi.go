package ramdisk

import "context"

// ISCSIModules reach volumes over TCP, with what firmware says of the one it booted from.
var ISCSIModules = []string{"iscsi_tcp", "iscsi_ibft", "sd_mod"}

// AddISCSI puts iscsistart with its libraries into a tree: it logs into a volume once, and the kernel
// keeps the session without any daemon.
func (s *Source) AddISCSI(ctx context.Context, t *Tree) error {
	if err := s.archive.fetch(ctx, "open-iscsi"); err != nil {
		return err
	}
	return t.program(ctx, s.archive, "open-iscsi", "sbin/iscsistart")
}
