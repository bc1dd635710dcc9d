package nova

import (
	"fmt"
	"strings"

	"salvor/compute"
	"salvor/problem"
	"salvor/record"
)

func readCount(creation *compute.Creation, body jsonObject) error {
	least, most := 1, 1
	if n, ok := intOf(body["min_count"]); ok {
		least, most = n, n
	}
	if n, ok := intOf(body["max_count"]); ok {
		most = n
	}
	if least > most {
		return problem.Invalidf("min_count must be <= max_count")
	}
	creation.Count = most
	return nil
}

// readNetworks reads "auto", "none" or a list; an empty list is "auto", as in Nova.
func (c serverCall) readNetworks(v any) ([]compute.NetworkRequest, error) {
	if v == "none" {
		return nil, nil
	}
	wanted := listOf(v)
	if len(wanted) == 0 {
		return c.onlyNetwork()
	}
	out := make([]compute.NetworkRequest, 0, len(wanted))
	for _, n := range wanted {
		id := stringProperty(n, "uuid")
		switch {
		case stringProperty(n, "port") != "":
			return nil, problem.Invalidf("Port %s could not be found: servers get their interfaces with their networks", stringProperty(n, "port"))
		case id == "":
			return nil, problem.Invalidf("Invalid input for field/attribute networks. A network needs its uuid")
		}
		if _, err := c.network(id); problem.Is(err, problem.NotFound) {
			return nil, problem.Invalidf("Network %s could not be found.", truncateText(id))
		} else if err != nil {
			return nil, err
		}
		out = append(out, compute.NetworkRequest{Network: id, Address: stringProperty(n, "fixed_ip")})
	}
	return out, nil
}

// onlyNetwork is the network that a server gets where its user names none: the only one there is, if there is one.
func (c serverCall) onlyNetwork() ([]compute.NetworkRequest, error) {
	all, err := c.s.Services.Networks.List(c.R.Context(), compute.NetworkFilter{Project: c.requester.Project}, record.Page{Limit: 2})
	switch {
	case err != nil, len(all) == 0:
		return nil, err
	case len(all) > 1:
		return nil, problem.Conflictf("Multiple possible networks found, use a Network ID to be more specific.")
	}
	return []compute.NetworkRequest{{Network: all[0].ID}}, nil
}

// readDisks reads the block device mapping. The disk that an image is copied to is the flavor's own, so it is none beside it.
func readDisks(creation *compute.Creation, mapping []jsonObject) error {
	invalid := func(format string, args ...any) error {
		return problem.Invalidf("Block Device Mapping is Invalid: %s", fmt.Sprintf(format, args...))
	}
	for _, m := range mapping {
		index := -1
		if n, ok := intOf(m["boot_index"]); ok {
			index = n
		}
		keep, _ := boolOf(m["delete_on_termination"])
		size, _ := intOf(m["volume_size"])
		source, destination, id := stringProperty(m, "source_type"), stringProperty(m, "destination_type"), strings.ToLower(stringProperty(m, "uuid"))
		switch {
		case source == "volume" && id == "":
			return invalid("a volume needs its uuid")
		case source == "volume" && destination == "local":
			return invalid("Mapping volume to local is not supported.")
		case source == "volume":
			creation.Disks = append(creation.Disks, compute.DiskRequest{VolumeID: id, BootIndex: index, Device: stringProperty(m, "device_name"), DeleteOnTermination: keep})
		case source == "image" && destination == "local" && index == 0 && (creation.Image == "" || creation.Image == id):
			creation.Image = id
		case source == "image" && destination == "local":
			return invalid("Mapping image to local is not supported but for the boot disk.")
		case source == "blank" && destination != "volume":
			if size == 0 {
				return invalid("a blank disk needs its volume_size")
			}
			if stringProperty(m, "guest_format") == "swap" { // of swap disks it is in MiB
				size = (size + 1023) / 1024
			}
			creation.Disks = append(creation.Disks, compute.DiskRequest{SizeGiB: size, BootIndex: index, Device: stringProperty(m, "device_name"), DeleteOnTermination: true})
		default:
			return invalid("volumes are not made from %s sources here; name one that exists", source)
		}
	}
	for _, d := range creation.Disks {
		if d.BootIndex == 0 && creation.Image != "" {
			return invalid("Boot sequence for the instance and image/block device mapping combination is not valid.")
		}
	}
	if creation.Image == "" && !hasBootVolume(creation.Disks) {
		if len(mapping) == 0 {
			return problem.Invalidf("Invalid imageRef provided.")
		}
		return invalid("Boot sequence for the instance and image/block device mapping combination is not valid.")
	}
	return nil
}

func hasBootVolume(disks []compute.DiskRequest) bool {
	for _, d := range disks {
		if d.BootIndex == 0 && d.VolumeID != "" {
			return true
		}
	}
	return false
}
