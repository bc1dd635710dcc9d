package store

import (
	"strings"

	"salvor/compute"
	"salvor/record"
)

// Flavors is compute.Store's, as are the tables below.
func (s serverTables) Flavors() record.Table[compute.Flavor, compute.FlavorFilter] {
	return recordTable[compute.Flavor, compute.FlavorFilter]{s.storeCore, flavors}
}

var flavors = &recordKind[compute.Flavor, compute.FlavorFilter]{
	table: "flavor", word: "flavor", head: ofRecord[compute.Flavor],
	num:     func(f *compute.Flavor) *int64 { return &f.Num },
	columns: []string{"ref", "name", "vcpus", "ram", "disk", "public", "disabled"},
	fields: func(f *compute.Flavor) []any {
		return []any{&f.Ref, &f.Name, &f.VCPUs, &f.RAM, &f.Disk, &f.Public, &f.Disabled}
	},
	body: func(f *compute.Flavor) any {
		return &struct {
			Ephemeral, Swap *int
			Description     *string
			ExtraSpecs      *map[string]string
		}{&f.Ephemeral, &f.Swap, &f.Description, &f.ExtraSpecs}
	},
	names: []string{"ref", "name"},
	sort:  map[string]string{"flavorid": "ref", "memory_mb": "ram", "root_gb": "disk"},
	keys: []uniqueKey[compute.Flavor]{
		{[]string{"ref"}, func(f *compute.Flavor) string { return "Flavor with ID " + f.Ref + " already exists." }},
		{[]string{"name"}, func(f *compute.Flavor) string { return "Flavor with name " + f.Name + " already exists." }},
	},
	narrow: func(c *whereClause, f compute.FlavorFilter) {
		if f.Public != nil {
			c.and("t.public = " + c.arg(*f.Public))
		}
		c.atLeast("t.ram", f.MinRAM)
		c.atLeast("t.disk", f.MinDisk)
		c.equal("t.name", f.Name)
	},
}

// atLeast narrows to numbers from n on, unless it is 0.
func (c *whereClause) atLeast(column string, n int) {
	if n > 0 {
		c.and(column + " >= " + c.arg(int64(n)))
	}
}

// Images keeps what servers are made from.
func (s serverTables) Images() record.Table[compute.Image, compute.ImageFilter] {
	return recordTable[compute.Image, compute.ImageFilter]{s.storeCore, images}
}

var images = &recordKind[compute.Image, compute.ImageFilter]{
	table: "image", word: "image", head: ofRecord[compute.Image],
	num: func(i *compute.Image) *int64 { return &i.Num },
	columns: []string{"name", "owner", "visibility", "status", "container_format", "disk_format", "size", "digest", "sha512",
		"tags"},
	fields: func(i *compute.Image) []any {
		tags := encodeTagLines(i.Tags)
		return []any{&i.Name, &i.Owner, &i.Visibility, &i.Status, &i.ContainerFormat, &i.DiskFormat, &i.Size, &i.Digest, &i.SHA512, &tags}
	},
	body: func(i *compute.Image) any {
		return &struct {
			Protected       *bool
			VirtualSize     *int64
			MD5, URL        *string
			MinDisk, MinRAM *int
			Tags            *[]string
			Properties      *map[string]string
		}{&i.Protected, &i.VirtualSize, &i.MD5, &i.URL, &i.MinDisk, &i.MinRAM, &i.Tags, &i.Properties}
	},
	mine: func(c *whereClause, f compute.ImageFilter) string {
		return c.mine("(m.owner = %s OR m.visibility IN ('public', 'community'))", f.Project)
	},
	narrow: func(c *whereClause, f compute.ImageFilter) {
		if f.Project != "" {
			others := "'public'"
			if f.Visibility == "community" { // listed only for those who ask for them
				others = "'public', 'community'"
			}
			c.and("(t.owner = " + c.arg(f.Project) + " OR t.visibility IN (" + others + "))")
		}
		for _, e := range []struct{ column, value string }{{"t.name", f.Name}, {"t.owner", f.Owner}, {"t.visibility", f.Visibility},
			{"t.status", f.Status}, {"t.disk_format", f.DiskFormat}, {"t.sha512", f.OSHash}} {
			c.equal(e.column, e.value)
		}
		if f.Tag != "" {
			c.and("t.tags LIKE " + c.arg("%\n"+likeWord(f.Tag)+"\n%") + " ESCAPE '!'")
		}
		c.any("t.id", f.IDs)
	},
}

// encodeTagLines puts each word between line breaks, so that one is found whole by LIKE; empty for none.
func encodeTagLines(lines []string) string {
	if len(lines) == 0 {
		return ""
	}
	return "\n" + strings.Join(lines, "\n") + "\n"
}

// Keypairs keeps users' public keys.
func (s serverTables) Keypairs() record.Table[compute.Keypair, compute.KeypairFilter] {
	return recordTable[compute.Keypair, compute.KeypairFilter]{s.storeCore, keypairs}
}

var keypairs = &recordKind[compute.Keypair, compute.KeypairFilter]{
	table: "keypair", word: "key pair", head: ofRecord[compute.Keypair],
	columns: []string{"user_name", "name", "type"},
	fields:  func(k *compute.Keypair) []any { return []any{&k.User, &k.Name, &k.Type} },
	body: func(k *compute.Keypair) any {
		return &struct{ PublicKey, Fingerprint *string }{&k.PublicKey, &k.Fingerprint}
	},
	keys: []uniqueKey[compute.Keypair]{{[]string{"name", "user_name"}, func(k *compute.Keypair) string {
		return "Key pair '" + k.Name + "' already exists."
	}}},
	mine: func(c *whereClause, f compute.KeypairFilter) string { return c.mine("m.user_name = %s", f.User) },
	narrow: func(c *whereClause, f compute.KeypairFilter) {
		c.equal("t.user_name", f.User)
		c.equal("t.name", f.Name)
	},
}
