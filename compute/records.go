package compute

import "salvor/record"

func newFlavors(c *core) *Flavors {
	return record.NewCollection("flavor", c.store.Flavors(), c.jobs, c.now)
}

func newImages(c *core) *Images {
	return record.NewCollection("image", c.store.Images(), c.jobs, c.now)
}

func newKeypairs(c *core) *Keypairs {
	return record.NewCollection("keypair", c.store.Keypairs(), c.jobs, c.now)
}

func newNetworks(c *core) *Networks {
	return record.NewCollection("network", c.store.Networks(), c.jobs, c.now)
}

func newVolumes(c *core) *Volumes {
	return record.NewCollection("volume", c.store.Volumes(), c.jobs, c.now)
}
