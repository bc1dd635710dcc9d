package config

// Nova is [nova]: OpenStack Compute, which is sent what becomes of the power of its servers' machines.
type Nova struct {
	Credentials
	// SendPowerNotifications has Nova learn of changes of power, where the section says how Nova is reached.
	SendPowerNotifications bool
}

var novaOptions = append(credentialOptions("nova", "Nova", "timeout", "no power-update events are sent",
	func(c *Config) *Credentials { return &c.Nova.Credentials }),
	newOption("nova", "send_power_notifications", "true", boolean, func(c *Config) *bool { return &c.Nova.SendPowerNotifications },
		"Send Nova a power-update event when the power of a node with an instance_uuid changes, if this section says how Nova is reached."),
)

// SendsPower tells whether changes of power are sent to Nova.
func (n Nova) SendsPower() bool { return n.SendPowerNotifications && n.Reachable() }
