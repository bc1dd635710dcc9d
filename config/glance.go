package config

// Glance is [glance]: OpenStack's image service, for images that nodes name by UUID.
type Glance struct{ Credentials }

var glanceOptions = credentialOptions("glance", "Glance", "timeout", "nodes cannot name images by UUID",
	func(c *Config) *Credentials { return &c.Glance.Credentials })
