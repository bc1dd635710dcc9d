package metal

import (
	"encoding/json"
	"net/url"
	"slices"
	"strings"

	"salvor/problem"
)

// Image is the system image that a node's instance_info names.
type Image struct {
	// Source is a URL: http, https, glance or, for files of the conductor, file.
	Source string
	// Format is raw, qcow2 or gpt; empty: whatever of the permitted formats it turns out to be.
	Format string
	// Algorithm and Sum go together; Sum is hex or the URL of a checksum file. Algorithm is empty where Sum's length tells it.
	Algorithm, Sum string
	// Size in bytes; 0: not known.
	Size int64 `json:",omitempty"`
}

// diskFormats are the formats that an agent can bring to a disk; gpt is raw with a partition table.
var diskFormats = []string{"raw", "qcow2", "gpt"}

// digits are those of a checksum by its algorithm.
var digits = map[string]int{"sha256": 64, "sha512": 128}

const hexDigits = "0123456789abcdef"

// hintKeys are the root device hints that agents know.
var hintKeys = []string{"name", "model", "vendor", "serial", "size", "wwn", "wwn_with_extension", "wwn_vendor_extension", "rotational", "hctl", "by_path"}

// ImageOf reads what instance_info says of the image. permitted are the formats that may be
// deployed here. Invalid tells what is missing or wrong, as validate shows it. Of an image of Glance it gives only the source:
// GlanceImage.System tells the rest, whatever instance_info says.
func ImageOf(n *Node, permitted []string) (Image, error) {
	info := func(key string) string { return strings.TrimSpace(formatScalar(n.InstanceInfo[key])) }
	img := Image{Source: info("image_source"), Format: strings.ToLower(info("image_disk_format"))}
	if img.Source == "" {
		return img, problem.Invalidf("instance_info lacks image_source: the URL of the image that is to be written")
	}
	if id := GlanceID(img.Source); id != "" {
		return Image{Source: GlanceRef(id)}, checkPlacement(n)
	}
	if err := checkImageURL("image_source", img.Source, true); err != nil {
		return img, err
	}
	if img.Format != "" && (!slices.Contains(diskFormats, img.Format) || !slices.Contains(permitted, img.Format)) {
		return img, problem.Invalidf("instance_info image_disk_format %.40q is not permitted: use one of %s", img.Format, strings.Join(permittedDisks(permitted), ", "))
	}
	if t := info("image_type"); t != "" && t != "whole-disk" && t != "whole-disk-image" {
		return img, problem.Invalidf("instance_info image_type %.40q is not served: only whole-disk images are written", t)
	}
	if info("kernel") != "" && info("ramdisk") != "" && info("image_type") == "" {
		return img, problem.Invalidf("instance_info names a kernel and a ramdisk beside image_source, as for a partition image: only whole-disk images are written; remove them or set image_type to whole-disk")
	}
	var err error
	if img.Algorithm, img.Sum, err = checksumOf(info); err != nil {
		return img, err
	}
	return img, checkPlacement(n)
}

func permittedDisks(permitted []string) []string {
	var out []string
	for _, f := range diskFormats {
		if slices.Contains(permitted, f) {
			out = append(out, f)
		}
	}
	return out
}

func checkImageURL(what, source string, file bool) error {
	u, err := url.Parse(source)
	switch {
	case err != nil:
	case (u.Scheme == "http" || u.Scheme == "https") && u.Hostname() != "":
		return nil
	case u.Scheme == "file" && file && strings.HasPrefix(u.Path, "/") && u.Host == "":
		return nil
	}
	return problem.Invalidf("instance_info %s is neither an http, https or file URL nor the UUID of an image of Glance", what)
}

// checksumOf wants a checksum in one of Ironic's two forms: nothing is written unproved.
func checksumOf(info func(string) string) (algorithm, sum string, err error) {
	algorithm, sum = strings.ToLower(info("image_os_hash_algo")), info("image_os_hash_value")
	switch {
	case sum == "" && algorithm == "":
		sum = info("image_checksum")
	case sum == "" || algorithm == "":
		return "", "", problem.Invalidf("instance_info needs image_os_hash_algo and image_os_hash_value together")
	case algorithm != "sha256" && algorithm != "sha512":
		return "", "", problem.Invalidf("instance_info image_os_hash_algo %.40q is not served: use sha256 or sha512", algorithm)
	}
	if sum == "" {
		return "", "", problem.Invalidf("instance_info lacks a checksum of the image: image_checksum, or image_os_hash_algo and image_os_hash_value")
	}
	if strings.Contains(sum, "://") {
		return algorithm, sum, checkImageURL("checksum", sum, false)
	}
	sum = strings.ToLower(sum)
	if strings.Trim(sum, hexDigits) != "" || len(sum) != 64 && len(sum) != 128 || algorithm != "" && len(sum) != digits[algorithm] {
		return "", "", problem.Invalidf("instance_info holds no usable checksum of the image: want 64 hex digits of sha256, 128 of sha512, or the URL of a checksum file")
	}
	return algorithm, sum, nil
}

// checkPlacement looks at what says where the image goes and how it boots.
func checkPlacement(n *Node) error {
	for _, o := range []Object{n.InstanceInfo, n.Properties} {
		hints, given := o["root_device"]
		if !given || hints == nil {
			continue
		}
		m, ok := hints.(map[string]any)
		if !ok {
			return problem.Invalidf("root_device must be an object of hints")
		}
		for key := range m {
			if !slices.Contains(hintKeys, key) {
				return problem.Invalidf("root_device hint %.40q is not known: use %s", key, strings.Join(hintKeys, ", "))
			}
		}
	}
	switch option := Capability(n.InstanceInfo["capabilities"], "boot_option"); option {
	case "", "local":
	default:
		return problem.Invalidf("instance_info capabilities boot_option %.40q is not served: an image boots from its disk (local)", option)
	}
	switch mode := Capability(n.InstanceInfo["capabilities"], "boot_mode"); mode {
	case "", "bios", "uefi":
	default:
		return problem.Invalidf("instance_info capabilities boot_mode %.40q is neither bios nor uefi", mode)
	}
	return nil
}

// Capability reads one of "key:value,key:value", of an object, or of an object as text, which Nova makes of a flavor's capabilities.
func Capability(v any, key string) string {
	switch v := capabilitiesOf(v).(type) {
	case map[string]string:
		return v[key]
	case string:
		for _, pair := range strings.Split(v, ",") {
			if k, value, ok := strings.Cut(strings.TrimSpace(pair), ":"); ok && strings.TrimSpace(k) == key {
				return strings.TrimSpace(value)
			}
		}
	}
	return ""
}

// capabilitiesOf gives capabilities that are an object, or an object as text, as a map[string]string of their scalars, and others as they
// are.
func capabilitiesOf(v any) any {
	object, ok := v.(map[string]any)
	if text, isText := v.(string); isText && strings.HasPrefix(strings.TrimSpace(text), "{") {
		ok = json.Unmarshal([]byte(text), &object) == nil
	}
	if !ok {
		return v
	}
	out := map[string]string{}
	for key, value := range object {
		switch value.(type) {
		case string, bool, float64:
			out[key] = formatScalar(value)
		}
	}
	return out
}

// SetCapability gives the capabilities with one of them set, as text in Ironic's form.
func SetCapability(v any, key, value string) string {
	var pairs []string
	switch v := capabilitiesOf(v).(type) {
	case map[string]string:
		for k, value := range v {
			if k != key {
				pairs = append(pairs, k+":"+value)
			}
		}
		slices.Sort(pairs)
	case string:
		for _, pair := range strings.Split(v, ",") {
			k, _, ok := strings.Cut(strings.TrimSpace(pair), ":")
			if ok && strings.TrimSpace(k) != key {
				pairs = append(pairs, strings.TrimSpace(pair))
			}
		}
	}
	return strings.Join(append(pairs, key+":"+value), ",")
}
