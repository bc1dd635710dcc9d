package config

import "time"

// Storage is [storage]: what serves the volumes of servers, and can take them away from a dead host.
type Storage struct {
	// Driver is none, tgt or hook.
	Driver string
	// Portal is where exported volumes are reached.
	Portal string
	// TgtControl, TgtSocket, TgtCommand and TgtFiles are of the daemon tgtd.
	TgtControl                      int
	TgtSocket, TgtCommand, TgtFiles string
	// Hook is the program.
	Hook        string
	HookTimeout time.Duration
}

var volumeOptions = []Option{
	newOption("storage", "driver", "none", oneOf("none", "tgt", "hook"), func(c *Config) *string { return &c.Storage.Driver },
		"The driver that exports the volumes of servers. tgt: the Linux target daemon (tgtd) on this machine. hook: a command of yours. none: salvor exports no volumes. With tgt or hook, only the host of a volume's server may log in to the volume, and fencing the host revokes that."),
	newOption("storage", "portal", "", text, func(c *Config) *string { return &c.Storage.Portal },
		"The ADDRESS:PORT by which initiators reach the volumes that tgt exports."),
	newOption("storage", "tgt_control", "0", integerSyntax(0, 65535), func(c *Config) *int { return &c.Storage.TgtControl },
		"The control number of the daemon (tgtd -C)."),
	newOption("storage", "tgt_socket", "", path, func(c *Config) *string { return &c.Storage.TgtSocket },
		"The path of the daemon's control socket without the control number at its end. By default tgt's own."),
	newOption("storage", "tgt_command", "tgtadm", text, func(c *Config) *string { return &c.Storage.TgtCommand },
		"The program that controls the daemon: its name or its path."),
	newOption("storage", "tgt_files", "", path, func(c *Config) *string { return &c.Storage.TgtFiles },
		"The path of volumes' files, with VOLUMEID in place of the volume. Empty: tgt exports none. Example: /srv/volumes/VOLUMEID.raw"),
	newOption("storage", "hook", "", path, func(c *Config) *string { return &c.Storage.Hook },
		"The program that the driver hook runs. See docs/volumes.md."),
	newOption("storage", "hook_timeout", "20", secondsSyntax(1), func(c *Config) *time.Duration { return &c.Storage.HookTimeout },
		"How long a call of the hook may take."),
}
