package agent

import (
	"encoding/json"
	"strings"

	"salvor/boot/media"
	"salvor/problem"
)

// maxDrive bounds a config drive on its way to the agent, in bytes of base64.
const maxDrive = 8 << 20

// configDrive brings the stored drive into the form that agents take: a URL, or base64 of a gzipped image.
func configDrive(nodeID string, stored json.RawMessage) (string, error) {
	if len(stored) == 0 || string(stored) == "null" {
		return "", nil
	}
	var text string
	if json.Unmarshal(stored, &text) == nil {
		if len(text) > maxDrive {
			return "", problem.Invalidf("it takes %d bytes; at most %d reach an agent: give a URL instead", len(text), maxDrive)
		}
		return text, nil
	}
	files, err := driveFiles(nodeID, stored)
	if err != nil {
		return "", err
	}
	if text, err = media.PackConfigDrive(files); err != nil {
		return "", err
	}
	if len(text) > maxDrive {
		return "", problem.Invalidf("it takes %d bytes packed; at most %d reach an agent", len(text), maxDrive)
	}
	return text, nil
}

// ConfigDriveImage gives the ISO 9660 image of a stored config drive: of an object, or of base64 of a gzipped image. NotFound if there is
// none; Invalid if it is a URL or cannot be unpacked.
func ConfigDriveImage(nodeID string, stored json.RawMessage) ([]byte, error) {
	text, err := configDrive(nodeID, stored)
	switch {
	case err != nil:
		return nil, problem.New(problem.KindOf(err), "config drive of node %s: %w", nodeID, err)
	case text == "":
		return nil, problem.NotFoundf("node %s has no config drive", nodeID)
	case strings.Contains(text, "://"):
		return nil, problem.Invalidf("the config drive of node %s is a URL, which virtual media cannot show: give an object, or base64 of a gzipped ISO image", nodeID)
	}
	return unpackDrive(text)
}

// driveFiles are the files of a drive that was given as an object, by path.
func driveFiles(nodeID string, stored json.RawMessage) (map[string][]byte, error) {
	var o struct {
		Meta    map[string]any  `json:"meta_data"`
		Network json.RawMessage `json:"network_data"`
		Vendor  json.RawMessage `json:"vendor_data"`
		User    json.RawMessage `json:"user_data"`
	}
	if err := json.Unmarshal(stored, &o); err != nil {
		return nil, problem.Invalidf("it is neither a string nor an object with meta_data, user_data, network_data and vendor_data")
	}
	if o.Meta == nil {
		o.Meta = map[string]any{}
	}
	// A system takes another uuid for another machine, and starts from anew.
	if o.Meta["uuid"] == nil {
		o.Meta["uuid"] = nodeID
	}
	meta, err := json.Marshal(o.Meta)
	if err != nil {
		return nil, err
	}
	files := map[string][]byte{"openstack/latest/meta_data.json": meta}
	for name, raw := range map[string]json.RawMessage{"network_data.json": o.Network, "vendor_data2.json": o.Vendor} {
		if len(raw) > 0 && string(raw) != "null" {
			files["openstack/latest/"+name] = raw
		}
	}
	if len(o.User) > 0 && string(o.User) != "null" {
		var text string
		if json.Unmarshal(o.User, &text) != nil {
			text = string(o.User) // an object is its own JSON
		}
		files["openstack/latest/user_data"] = []byte(text)
	}
	return files, nil
}
