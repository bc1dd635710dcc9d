package system

import (
	"fmt"
	"path"
	"slices"
	"strings"

	"gopkg.in/yaml.v2"

	"salvor/diagnose"
	"salvor/diagnose/config"
)

// cloudInitRules are about what cloud-init will do at the next boot.
func cloudInitRules() []diagnose.Rule {
	return []diagnose.Rule{{IDs: []string{"cloud-init-config-invalid", "cloud-init-new-instance", "cloud-init-disabled"}, Files: true, Look: findCloudInit}}
}

func findCloudInit(s *diagnose.System) []diagnose.Finding {
	tree := s.Files
	if config.FirstExisting(tree, "/usr/bin/cloud-init", "/usr/local/bin/cloud-init") == "" {
		return nil
	}
	_, err := tree.Lstat("/var/lib/cloud/instance")
	ran := err == nil
	if !config.CloudInitEnabled(tree) {
		if ran {
			return nil
		}
		return []diagnose.Finding{{
			ID: "cloud-init-disabled", Stage: diagnose.Login, Severity: diagnose.Info, Confidence: 0.9, Explains: []string{"login-impossible", "ssh-login-impossible"},
			Title:    "The service cloud-init never ran and is disabled, so it makes no users and no keys.",
			Evidence: []diagnose.Evidence{config.FileEvidence("/etc/cloud/cloud-init.disabled", 0, "it exists"), config.FileEvidence("/var/lib/cloud/instance", 0, "it does not exist")},
			ByHand:   "Remove the file if cloud-init is to set the machine up.",
		}}
	}
	var out []diagnose.Finding
	files := append([]string{"/etc/cloud/cloud.cfg"}, tree.Match("/etc/cloud/cloud.cfg.d", "*.cfg")...)
	for _, file := range files[:min(len(files), 256)] {
		text, err := tree.Read(file)
		if err != nil || len(text) > config.MaxYAML {
			continue
		}
		line, why := yamlFault(string(text))
		if why == "" {
			continue
		}
		out = append(out, diagnose.Finding{
			ID: "cloud-init-config-invalid", Stage: diagnose.Login, Severity: diagnose.Degrades, Confidence: 0.9,
			Title:    fmt.Sprintf("The service cloud-init cannot read %s: %s.", place(file, line), why),
			Evidence: []diagnose.Evidence{config.FileEvidence(file, line, why)},
			ByHand:   "Correct the file; cloud-init leaves out what it cannot read.",
		})
	}
	if ran {
		if f := newInstance(s); f != nil {
			out = append(out, *f)
		}
	}
	return out
}

// yamlFault says why a text is no YAML mapping; empty where it is one, or is empty.
func yamlFault(text string) (line int, why string) {
	if strings.TrimSpace(text) == "" || strings.Contains(text, "{{") || strings.Contains(text, "{%") { // a template
		return 0, ""
	}
	var document any
	if err := yaml.Unmarshal([]byte(text), &document); err != nil {
		return config.LineOfYAMLError(err), "it is no valid YAML"
	}
	if _, ok := document.(map[any]any); !ok && document != nil {
		return 0, "it is no mapping of YAML"
	}
	return 0, ""
}

// newInstance is a finding where the seed of cloud-init names another instance than the one that ran; nil where it does not.
func newInstance(s *diagnose.System) *diagnose.Finding {
	tree := s.Files
	text, err := tree.Read("/var/lib/cloud/data/instance-id")
	before := strings.TrimSpace(string(text))
	if err != nil || before == "" || len(before) > 128 {
		return nil
	}
	seeds := []seed{}
	for _, folder := range []string{"/var/lib/cloud/seed/nocloud", "/var/lib/cloud/seed/nocloud-net"} {
		seeds = append(seeds, seed{folder + "/meta-data", seedInstance(tree, folder+"/meta-data")})
	}
	for i := range s.Devices {
		d := &s.Devices[i]
		label := strings.ToLower(d.Label)
		if d.Tree == nil || (label != "cidata" && label != "config-2") {
			continue
		}
		name := "/meta-data"
		if label == "config-2" {
			name = "/openstack/latest/meta_data.json"
		}
		seeds = append(seeds, seed{d.Path + ":" + name, seedInstance(d.Tree, name)})
	}
	var found []seed
	for _, one := range seeds {
		if one.instance != "" {
			found = append(found, one)
		}
	}
	if len(found) == 0 || slices.ContainsFunc(found, func(one seed) bool { return strings.EqualFold(one.instance, before) }) {
		return nil
	}
	return &diagnose.Finding{
		ID: "cloud-init-new-instance", Stage: diagnose.Login, Severity: diagnose.Degrades, Confidence: 0.8,
		Title: fmt.Sprintf("The service cloud-init takes the machine for a new one at the next boot, because %s names another instance.", found[0].path),
		Evidence: []diagnose.Evidence{
			config.FileEvidence(found[0].path, 0, "the instance is "+found[0].instance),
			config.FileEvidence("/var/lib/cloud/data/instance-id", 1, "the instance was "+before),
		},
		ByHand: "cloud-init will make new host keys, and write users and the network again. Write the former instance-id into the seed if that is not meant.",
	}
}

// seed is a place from which cloud-init takes its instance.
type seed struct{ path, instance string }

// seedInstance returns the instance that a file of meta data names.
func seedInstance(tree *diagnose.Tree, file string) string {
	text, err := tree.Read(file)
	if err != nil || len(text) > config.MaxYAML {
		return ""
	}
	var data map[string]any
	if yaml.Unmarshal(text, &data) != nil {
		return ""
	}
	key := "instance-id"
	if path.Ext(file) == ".json" {
		key = "uuid"
	}
	id, _ := data[key].(string)
	if len(id) > 128 {
		return ""
	}
	return id
}
