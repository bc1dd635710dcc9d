package node

import (
	"cmp"
	"strings"

	"salvor/driver"
	"salvor/metal"
	"salvor/problem"
)

// addOfGlance tells whether err is a reason. A Glance that is slower than a check waits is none: the operation asks it again, with retries,
// before it touches the machine.
func (p *nodePreflight) addOfGlance(kind string, err error) bool {
	if err == nil || p.ctx.Err() != nil && problem.Is(err, problem.Unavailable) {
		return false
	}
	p.add(kind, err)
	return true
}

// image looks at an image and at the file of its checksum; what instance_info lacks is told by the deploy interface's own needs.
func (p *nodePreflight) image(imager driver.Imager) {
	i, _ := p.m.info.Find(p.m.node, "deploy")
	img, err := metal.ImageOf(p.m.node, i.ImageFormats)
	if err != nil {
		return
	}
	if metal.GlanceID(img.Source) != "" {
		if !p.c.GlanceElsewhere {
			_, err := glanceImages{p.c}.system(p.ctx, p.m)
			p.addOfGlance("deploy", err)
		}
		return
	}
	file, err := imager.LocalImage(p.m.node)
	p.add("deploy", err)
	if p.readable("deploy", "image", file, FetchedByAgent); file == "" && err == nil {
		p.readable("deploy", "image", img.Source, FetchedByAgent)
	}
	if strings.Contains(img.Sum, "://") {
		p.readable("deploy", "checksum file", img.Sum, FetchedByAgent)
	}
}

// Fetcher is who fetches what a URL names: what hinders one is no hindrance to another.
type Fetcher int

// The fetchers.
const (
	FetchedByUs Fetcher = iota
	FetchedByAgent
	FetchedByFirmware
)

// readable adds the reason why a file cannot be given to the machine. It tells whether there is none.
func (p *nodePreflight) readable(kind, what, file string, by Fetcher) bool {
	if strings.Contains(file, "://") {
		if p.c.WebFile == nil {
			return true
		}
		err := p.c.WebFile(p.ctx, file, by)
		if err != nil {
			// Whoever names URLs would learn from the words what is on our networks, so only administrators read them.
			p.add(kind, problem.Invalidf("node %s: the %s %s cannot be given to the machine: the server does not give it: %s; correct the URL, or put the file there",
				p.m.node.ID, what, driver.Sanitize(cmp.Or(metal.BareURL(file), "(not a URL)")), problem.Quote(err.Error())))
		}
		return err == nil
	}
	if file == "" || p.c.Readable == nil {
		return true
	}
	err := p.c.Readable(file)
	if err != nil {
		p.add(kind, problem.Invalidf("node %s: the %s %s cannot be given to the machine: %v; put the file there, or let the user of salvor serve read it",
			p.m.node.ID, what, driver.Sanitize(file), err))
	}
	return err == nil
}
