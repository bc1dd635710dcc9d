package config

import "time"

// Repair is [repair].
type Repair struct {
	// UndoMaxMiB bounds what is kept to undo one repair.
	UndoMaxMiB int
	// UndoProjectMaxMiB bounds what is kept of all repairs of the nodes of a project.
	UndoProjectMaxMiB int
	// ProofTimeout is how long a repaired machine may take until it proves that it works.
	ProofTimeout time.Duration
}

var repairOptions = []Option{
	newOption("repair", "undo_max_mib", "256", integerSyntax(1, 65536), func(c *Config) *int { return &c.Repair.UndoMaxMiB },
		"How many MiB what undoes one repair of a node may take in the database. A repair that needs more is not written. Three repairs of a node are kept."),
	newOption("repair", "undo_project_max_mib", "4096", integerSyntax(1, 1<<20), func(c *Config) *int { return &c.Repair.UndoProjectMaxMiB },
		"How many MiB the repairs of all nodes of a project may take in the database. Beyond that, the oldest repairs lose their plans and what undoes them. A node belongs to its lessee, or else to its owner."),
	newOption("repair", "proof_timeout", "600", secondsSyntax(1), func(c *Config) *time.Duration { return &c.Repair.ProofTimeout },
		"How long a repaired machine may take until its sshd answers with its own host key, or its owner confirms that it works. Then the repair is unproven."),
}
