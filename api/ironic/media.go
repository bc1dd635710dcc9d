package ironic

import (
	"encoding/json"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"salvor/metal"
	"salvor/problem"
	"salvor/secret"
)

// mediaTypes are the devices that virtual media can be.
var mediaTypes = []string{"cdrom", "disk", "floppy"}

// mediaSchemes are those of the URLs that machines' controllers fetch.
var mediaSchemes = []string{"http", "https", "nfs", "cifs", "smb"}

func (s *server) getMedia(c *ironicCall) error {
	n, err := c.node()
	if err != nil {
		return err
	}
	list := []metal.Medium{}
	if err := c.ask(n, newQuestion("get virtual media", struct{}{}), &list); err != nil {
		return err
	}
	return c.JSON(http.StatusOK, list)
}

func (s *server) attachMedium(c *ironicCall) error {
	n, body, err := c.bodyFor("device_type", "image_url", "image_download_source")
	if err != nil {
		return err
	}
	device, err := oneOf("device_type", body["device_type"], mediaTypes...)
	if err != nil {
		return err
	}
	image, err := imageURL(body["image_url"])
	if err != nil {
		return err
	}
	// Ironic can fetch the image and serve it by itself; here the machine's controller fetches it.
	if source := body["image_download_source"]; source != nil && source != "http" {
		return problem.Invalidf("Invalid image_download_source. Only http is supported: the machine's controller fetches the image from its URL by itself.")
	}
	hidden, err := json.Marshal(metal.MediumArgs{ImageURL: image})
	if err != nil {
		return err
	}
	q := newCommand("attach virtual media", metal.MediumArgs{DeviceType: device})
	q.Secret = secret.New(string(hidden))
	return c.changeMedia(n, q)
}

// imageURL checks the URL of an image, which may hold credentials and so is in no error.
func imageURL(v any) (string, error) {
	text, err := wantText("image_url", v)
	if err != nil {
		return "", problem.Invalidf("image_url must be a string")
	}
	u, err := url.Parse(text)
	if err != nil || u.Host == "" || len(text) > 4096 {
		return "", problem.Invalidf("image_url must be a URL with a host, of at most 4096 bytes")
	}
	if !slices.Contains(mediaSchemes, strings.ToLower(u.Scheme)) {
		return "", problem.Invalidf("Unsupported or missing URL scheme: %s. Use one of %s.", truncateInput(u.Scheme), strings.Join(mediaSchemes, ", "))
	}
	return text, nil
}

func (s *server) detachMedia(c *ironicCall) error {
	if err := c.only("device_types"); err != nil {
		return err
	}
	var types []string
	for word := range strings.SplitSeq(strings.Join(c.Query["device_types"], ","), ",") {
		if word = strings.TrimSpace(word); word == "" || slices.Contains(types, word) {
			continue
		}
		if !slices.Contains(mediaTypes, word) {
			return problem.Invalidf("Invalid device type(s) %s (valid are %s)", truncateInput(word), strings.Join(mediaTypes, ", "))
		}
		types = append(types, word)
	}
	n, err := c.nodeForChange()
	if err != nil {
		return err
	}
	return c.changeMedia(n, newCommand("detach virtual media", metal.MediumArgs{Types: types}))
}

func (c *ironicCall) changeMedia(n *metal.Node, q metal.Question) error {
	if n.Maintenance && n.Fault == metal.PowerFailure {
		return problem.Unavailablef("Node %s: its controller does not answer (fault %q); virtual media cannot be changed now.", n.ID, n.Fault)
	}
	if err := c.runCommand(n, q); err != nil {
		return err
	}
	return c.Empty(http.StatusNoContent)
}
