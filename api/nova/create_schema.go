package nova

import (
	"encoding/base64"
	"strings"

	"salvor/problem"
)

var (
	flavorRefSchema = func(at string, v any, minor int) error {
		if f, ok := v.(float64); ok && f >= 0 {
			return integerSchema(0, 1<<31-1)(at, v, minor)
		}
		return stringSchema(1, 255)(at, v, minor)
	}
	networkSchema = objectSchema(
		schemaProperty{name: "uuid", rule: nullableSchema(stringSchema(1, 255))}, schemaProperty{name: "fixed_ip", rule: nullableSchema(ipAddressSchema)}, schemaProperty{name: "port", rule: nullableSchema(uuidSchema)},
		schemaProperty{name: "tag", since: 32, until: 36, rule: tagSchema}, schemaProperty{name: "tag", since: 42, rule: tagSchema},
	)
	diskSchema = objectSchema(
		schemaProperty{name: "source_type", required: true, rule: oneOf("volume", "image", "snapshot", "blank")},
		schemaProperty{name: "destination_type", rule: oneOf("local", "volume")},
		schemaProperty{name: "uuid", rule: nullableSchema(uuidOrNothing)}, schemaProperty{name: "image_id", rule: uuidSchema}, schemaProperty{name: "volume_id", rule: uuidSchema}, schemaProperty{name: "snapshot_id", rule: uuidSchema},
		schemaProperty{name: "volume_size", rule: nullableSchema(sizeOrNothing)}, schemaProperty{name: "boot_index", rule: nullableSchema(integerSchema(-1, 1<<16))},
		schemaProperty{name: "delete_on_termination", rule: booleanSchema}, schemaProperty{name: "guest_format", rule: nullableSchema(stringSchema(0, 255))},
		schemaProperty{name: "device_name", rule: nullableSchema(stringSchema(0, 255))}, schemaProperty{name: "device_type", rule: nullableSchema(stringSchema(0, 255))},
		schemaProperty{name: "disk_bus", rule: nullableSchema(stringSchema(0, 255))}, schemaProperty{name: "no_device", rule: anySchema}, schemaProperty{name: "connection_info", rule: stringSchema(0, 4096)},
		schemaProperty{name: "tag", since: 32, until: 32, rule: tagSchema}, schemaProperty{name: "tag", since: 42, rule: tagSchema},
		schemaProperty{name: "volume_type", since: 67, rule: nullableSchema(stringSchema(0, 255))},
	)
	personalitySchema  = arraySchema(0, 1000, objectSchema(schemaProperty{name: "path", rule: stringSchema(1, 255)}, schemaProperty{name: "contents", rule: secretSchema(1 << 20)}))
	certificatesSchema = nullableSchema(uniqueItems(arraySchema(1, 50, stringSchema(1, 255))))
	userDataSchema     = nullableSchema(func(at string, v any, minor int) error {
		if err := secretSchema(maxUserData)(at, v, minor); err != nil {
			return err
		}
		if _, err := base64.StdEncoding.DecodeString(strings.Join(strings.Fields(v.(string)), "")); err != nil {
			return problem.Invalidf("Invalid input for field/attribute user_data. It is not a 'base64'")
		}
		return nil
	})
	schedulerHintsSchema = openObject()

	serverSchema = objectSchema(
		schemaProperty{name: "name", required: true, rule: nameSchema},
		schemaProperty{name: "flavorRef", required: true, rule: flavorRefSchema},
		schemaProperty{name: "imageRef", rule: uuidOrNothing},
		schemaProperty{name: "adminPass", rule: secretSchema(1024)},
		schemaProperty{name: "metadata", rule: metadataSchema},
		schemaProperty{name: "networks", until: 36, rule: nullableSchema(arraySchema(0, maxNICs, networkSchema))},
		schemaProperty{name: "networks", since: 37, required: true, rule: networksSchema},
		schemaProperty{name: "block_device_mapping_v2", rule: arraySchema(0, maxDisks, diskSchema)},
		schemaProperty{name: "block_device_mapping", rule: arraySchema(0, 0, anySchema)},
		schemaProperty{name: "key_name", rule: nullableSchema(stringSchema(1, 255))},
		schemaProperty{name: "user_data", rule: userDataSchema},
		schemaProperty{name: "config_drive", rule: nullableSchema(boolOrNothing)},
		schemaProperty{name: "availability_zone", rule: nullableSchema(stringSchema(1, 255))},
		schemaProperty{name: "security_groups", rule: arraySchema(0, 64, objectSchema(schemaProperty{name: "name", rule: stringSchema(1, 255)}))},
		schemaProperty{name: "min_count", rule: integerSchema(1, maxServers)}, schemaProperty{name: "max_count", rule: integerSchema(1, maxServers)},
		schemaProperty{name: "return_reservation_id", rule: booleanSchema},
		schemaProperty{name: "OS-DCF:diskConfig", rule: oneOf("AUTO", "MANUAL")},
		schemaProperty{name: "accessIPv4", rule: noAddressSchema}, schemaProperty{name: "accessIPv6", rule: noAddressSchema},
		schemaProperty{name: "personality", until: 56, rule: personalitySchema},
		schemaProperty{name: "description", since: 19, rule: nullableSchema(stringSchema(0, 255))},
		schemaProperty{name: "tags", since: 52, rule: tagListSchema},
		schemaProperty{name: "trusted_image_certificates", since: 63, rule: certificatesSchema},
		schemaProperty{name: "host", since: 74, rule: stringSchema(1, 255)}, schemaProperty{name: "hypervisor_hostname", since: 74, rule: stringSchema(1, 255)},
	)
	createSchema = objectSchema(
		schemaProperty{name: "server", required: true, rule: serverSchema},
		schemaProperty{name: "os:scheduler_hints", rule: schedulerHintsSchema}, schemaProperty{name: "OS-SCH-HNT:scheduler_hints", rule: schedulerHintsSchema},
	)
)

func networksSchema(at string, v any, minor int) error {
	if s, ok := v.(string); ok {
		return oneOf("auto", "none")(at, s, minor)
	}
	return arraySchema(0, maxNICs, networkSchema)(at, v, minor)
}

func sizeOrNothing(at string, v any, minor int) error {
	if v == "" {
		return nil
	}
	return integerSchema(1, 1<<31-1)(at, v, minor)
}

func boolOrNothing(at string, v any, minor int) error {
	if v == "" {
		return nil
	}
	return booleanSchema(at, v, minor)
}
